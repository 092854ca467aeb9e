"""``riverlock stop``."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from riverlock.cli import text
from riverlock.cli.command import command, open_starting, store_argument
from riverlock.core.errors import InvalidConfigError

if TYPE_CHECKING:
    from riverlock.snapshot.catalog import Catalog
    from riverlock.snapshot.format.records import Run, Start

__all__ = ["stop"]

_POLL_SECONDS = 0.2


@command("stop")
@store_argument
@click.option("--savepoint", metavar="NAME", help="A name for the last epoch.")
@click.option(
    "--timeout", default="1 minute", help="How long to wait for it; default 1 minute."
)
def stop(*, store: str, savepoint: str | None, timeout: str, as_json: bool) -> int:
    r"""Ask a running flow to finish its epoch and stop, wherever it runs.

    This writes a request into the store, which the run sees within about a second, and
    waits. A flow that is still starting stops before its first epoch. With --savepoint
    its last epoch gets a name, so that you can go back to it.

    \b
    Examples:
      riverlock stop store
      riverlock stop store --savepoint before-upgrade
    """
    from riverlock.core.times import duration
    from riverlock.snapshot.format.records import Stop
    from riverlock.snapshot.format.requests import add_request
    from riverlock.snapshot.owner import life_of
    from riverlock.snapshot.starts import is_of

    deadline = time.monotonic() + duration(timeout).total_seconds()
    catalog, starting = open_starting(store)
    run = catalog.newest_run()
    is_running = run is not None and life_of(catalog, run).is_alive
    start = starting[-1] if starting and not is_running else None
    if not is_running and start is None:
        raise _nobody(catalog, "no run that is alive")
    if savepoint is not None:
        catalog.check_name(savepoint)
        if start is not None and catalog.newest() is None:
            raise _nobody(catalog, "one that starts, and has no epoch to name")
    asked = (
        Stop(run=0, start=start.id, savepoint=savepoint)
        if start is not None
        else Stop(run=run.run if run else 0, savepoint=savepoint)
    )
    add_request(catalog, asked, now_us=text.now_us())
    has_ended = True
    if start is not None:
        has_ended = _wait_for_start(catalog, start, deadline)
        newest = catalog.newest_run()
        run = newest if newest is not None and is_of(newest, start) else None
    if has_ended and run is not None:
        has_ended = _wait(catalog, run, deadline)
    return _tell(catalog, run, savepoint, has_ended=has_ended, as_json=as_json)


def _nobody(catalog: Catalog, found: str) -> InvalidConfigError:
    return InvalidConfigError(
        f"stop of {catalog.storage.uri}",
        expected="a running flow",
        found=found,
        hint="to name its newest epoch: riverlock snapshot STORE NAME",
    )


def _wait_for_start(catalog: Catalog, start: Start, deadline: float) -> bool:
    """Wait until a start has a run or has ended; False if it takes too long."""
    from riverlock.snapshot.starts import starts

    while start.id in {s.id for s in starts(catalog, now_us=text.now_us())}:
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_SECONDS)
    return True


def _wait(catalog: Catalog, run: Run, deadline: float) -> bool:
    from riverlock.snapshot.owner import life_of

    while life_of(catalog, run).is_alive:
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_SECONDS)
    return True


def _tell(
    catalog: Catalog,
    run: Run | None,
    savepoint: str | None,
    *,
    has_ended: bool,
    as_json: bool,
) -> int:
    names = {n.name: n.regions.get(catalog.region) for n in catalog.snapshots()}
    is_named = savepoint is None or savepoint in names
    epoch = names.get(savepoint or "")
    who = "the start" if run is None else f"run {run.run}"
    if as_json:
        number = None if run is None else run.run
        found = {"run": number, "ended": has_ended, "savepoint": savepoint}
        text.print_json({**found, "epoch": epoch})
    elif not has_ended:
        at = "still starting" if run is None else "still at its epoch"
        click.echo(f"{who} was asked to stop, and is {at}")
    elif not is_named:
        click.echo(f"{who} ended without the savepoint: riverlock status")
    else:
        kept = "" if savepoint is None else f"; epoch {epoch} is kept as {savepoint!r}"
        click.echo(f"{who} has ended{kept}")
    return 0 if has_ended and is_named else 1
