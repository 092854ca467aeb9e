"""``riverlock rescale``."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from riverlock.cli import text
from riverlock.cli.command import command, open_catalog, store_argument
from riverlock.core.errors import InvalidConfigError

if TYPE_CHECKING:
    from riverlock.snapshot.catalog import Catalog
    from riverlock.snapshot.format.records import Manifest

__all__ = ["rescale"]

_POLL_SECONDS = 0.2


@command("rescale")
@store_argument
@click.argument("parallelism", type=click.IntRange(min=1))
@click.option(
    "--wait",
    "seconds",
    type=click.FloatRange(min=0),
    default=30.0,
    help="How long to wait for that epoch; default 30 seconds.",
)
def rescale(*, store: str, parallelism: int, seconds: float, as_json: bool) -> int:
    r"""Set the number of tasks per keyed stage of a running flow, from its next epoch.

    State follows: new owners of key groups read what they need, others keep theirs.
    There are at most as many tasks as key groups. A flow that waits for input changes
    with its next epoch.

    \b
    Examples:
      riverlock rescale store 8
      riverlock rescale s3://bucket/shop 2 --wait 0 --json
    """
    from riverlock.snapshot.format.records import Rescale
    from riverlock.snapshot.format.requests import add_request

    catalog = open_catalog(store)
    wanted = min(parallelism, catalog.flow().key_groups)
    newest = catalog.newest()
    before = -1 if newest is None else newest.epoch
    run = _run(catalog, parallelism)
    asked = Rescale(run=run, parallelism=parallelism)
    add_request(catalog, asked, now_us=text.now_us())
    found = _wait(catalog, before, run, wanted, seconds)
    epoch = None if found is None else found.epoch
    tasks = text.counted(wanted, "task")
    if as_json:
        text.print_json({"run": run, "parallelism": wanted, "epoch": epoch})
    elif epoch is None:
        click.echo(f"run {run} was asked for {tasks}; its next epoch has them")
    else:
        click.echo(f"{tasks} since epoch {epoch}")
    if wanted < parallelism and not as_json:
        click.echo(f"at most one task per key group: {wanted}")
    return 0


def _run(catalog: Catalog, parallelism: int) -> int:
    """Return the run to ask.

    Raises:
        InvalidConfigError: There is none.
    """
    from riverlock.snapshot.owner import read_beat

    beat = read_beat(catalog)
    if beat is None or beat.has_ended:
        raise InvalidConfigError(
            f"rescale of {catalog.storage.uri}",
            expected="a flow that runs",
            found="none" if beat is None else f"run {beat.run}, which has ended",
            hint=f"start it with parallelism {parallelism}",
        )
    return beat.run


def _wait(
    catalog: Catalog, before: int, run: int, wanted: int, seconds: float
) -> Manifest | None:
    """Return the first epoch that was seen with the new parallelism."""
    deadline = time.monotonic() + seconds
    while True:
        newest = catalog.newest()
        is_new = newest is not None and newest.epoch > before and newest.run == run
        if newest is not None and is_new and newest.parallelism == wanted:
            return newest
        if time.monotonic() >= deadline:
            return None
        time.sleep(_POLL_SECONDS)
