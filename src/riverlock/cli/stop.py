"""``riverlock stop``."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from riverlock.cli import text
from riverlock.cli.command import command, open_catalog, store_argument
from riverlock.core.errors import InvalidConfigError

if TYPE_CHECKING:
    from riverlock.snapshot.catalog import Catalog
    from riverlock.snapshot.records import Run

__all__ = ["stop"]

_POLL_SECONDS = 0.2


@command("stop")
@store_argument
@click.option("--savepoint", metavar="NAME", help="A name for the last epoch.")
@click.option(
    "--timeout", default="1 minute", help="How long to wait for it; default 1 minute."
)
def stop(*, store: str, savepoint: str | None, timeout: str, as_json: bool) -> int:
    r"""Ask a running flow to finish its epoch and end, wherever it runs.

    Writes a request into the store, which the run sees within about a second, and
    waits. With --savepoint its last epoch gets a name, so that it can be gone back to.

    \b
    Examples:
      riverlock stop store
      riverlock stop store --savepoint before-upgrade
    """
    from riverlock.core.times import duration
    from riverlock.snapshot.owner import life_of
    from riverlock.snapshot.records import Stop
    from riverlock.snapshot.requests import add_request

    patience = duration(timeout).total_seconds()
    catalog = open_catalog(store)
    run = catalog.newest_run()
    if run is None or not life_of(catalog, run).is_alive:
        raise InvalidConfigError(
            f"flow of {catalog.storage.uri}",
            expected="one that runs",
            found="no run that is alive",
            hint="to name its newest epoch: riverlock snapshot STORE NAME",
        )
    if savepoint is not None:
        catalog.check_name(savepoint)
    asked = Stop(run=run.run, savepoint=savepoint)
    add_request(catalog, asked, now_us=text.now_us())
    has_ended = _wait(catalog, run, patience)
    return _tell(catalog, run, savepoint, has_ended=has_ended, as_json=as_json)


def _wait(catalog: Catalog, run: Run, patience: float) -> bool:
    from riverlock.snapshot.owner import life_of

    deadline = time.monotonic() + patience
    while life_of(catalog, run).is_alive:
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_SECONDS)
    return True


def _tell(
    catalog: Catalog, run: Run, savepoint: str | None, *, has_ended: bool, as_json: bool
) -> int:
    names = {n.name: n.regions.get(catalog.region) for n in catalog.snapshots()}
    is_named = savepoint is None or savepoint in names
    epoch = names.get(savepoint or "")
    if as_json:
        found = {"run": run.run, "ended": has_ended, "savepoint": savepoint}
        text.print_json({**found, "epoch": epoch})
    elif not has_ended:
        click.echo(f"run {run.run} was asked to stop, and is still at its epoch")
    elif not is_named:
        click.echo(f"run {run.run} ended without the savepoint: riverlock status")
    else:
        kept = "" if savepoint is None else f"; epoch {epoch} is kept as {savepoint!r}"
        click.echo(f"run {run.run} has ended{kept}")
    return 0 if has_ended and is_named else 1
