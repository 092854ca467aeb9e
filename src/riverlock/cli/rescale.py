"""``riverlock rescale``."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from riverlock.cli import text
from riverlock.cli.command import (
    command,
    known_region,
    open_catalog,
    store_argument,
)
from riverlock.core.errors import InvalidConfigError

if TYPE_CHECKING:
    from riverlock.snapshot.catalog import Catalog
    from riverlock.snapshot.format.records import Manifest

__all__ = ["rescale"]

_POLL_SECONDS = 0.2


@command("rescale")
@store_argument
@click.argument("parallelism", type=click.IntRange(min=1))
@click.option("--region", help="This region alone; default: all that run.")
@click.option(
    "--wait",
    "seconds",
    type=click.FloatRange(min=0),
    default=30.0,
    help="How long to wait for that epoch; default 30 seconds.",
)
def rescale(
    *,
    store: str,
    parallelism: int,
    region: str | None,
    seconds: float,
    as_json: bool,
) -> int:
    r"""Set the number of tasks per keyed stage of a running flow, from its next epoch.

    State follows: new owners of key groups read what they need, others keep theirs.
    There are at most as many tasks as key groups. A flow that waits for input changes
    with its next epoch.

    \b
    Examples:
      riverlock rescale store 8 --region billing
      riverlock rescale s3://bucket/shop 2 --wait 0 --json
    """
    catalog = open_catalog(store)
    names = catalog.living_regions() or [catalog.region]
    if region is not None:
        names = [known_region(region, names)]
    if len(names) == 1:
        asked = [_ask(catalog.of(names[0]), parallelism)]
    else:
        asked = [
            _ask(part, parallelism) for part in map(catalog.of, names) if _runs(part)
        ]
    deadline = time.monotonic() + seconds
    told = [_told(each, deadline) for each in asked]
    if as_json:
        several = {part["region"]: part for part in told}
        only = {name: told[0][name] for name in ("run", "parallelism", "epoch")}
        text.print_json(only if len(names) == 1 else {"regions": several})
        return 0
    for part in told:
        _print(part, parallelism, is_one=len(names) == 1)
    return 0


@dataclass(frozen=True, kw_only=True)
class _Asked:
    """A region that was asked for a number of tasks."""

    catalog: Catalog
    run: int
    wanted: int
    before: int


def _runs(catalog: Catalog) -> bool:
    from riverlock.snapshot.owner import read_beat

    beat = read_beat(catalog)
    return beat is not None and not beat.has_ended


def _ask(catalog: Catalog, parallelism: int) -> _Asked:
    from riverlock.snapshot.format.records import Rescale
    from riverlock.snapshot.format.requests import add_request

    newest, run = catalog.newest(), _run(catalog, parallelism)
    add_request(
        catalog, Rescale(run=run, parallelism=parallelism), now_us=text.now_us()
    )
    return _Asked(
        catalog=catalog,
        run=run,
        wanted=min(parallelism, catalog.flow().key_groups),
        before=-1 if newest is None else newest.epoch,
    )


def _told(asked: _Asked, deadline: float) -> dict[str, Any]:
    found = _wait(asked, deadline)
    epoch = None if found is None else found.epoch
    return {
        "region": asked.catalog.region,
        "run": asked.run,
        "parallelism": asked.wanted,
        "epoch": epoch,
    }


def _print(told: dict[str, Any], parallelism: int, *, is_one: bool) -> None:
    tasks, where = text.counted(told["parallelism"], "task"), ""
    if not is_one:
        where = f"region {told['region']}: "
    if told["epoch"] is None:
        run = told["run"]
        click.echo(f"{where}run {run} was asked for {tasks}; its next epoch has them")
    else:
        click.echo(f"{where}{tasks} since epoch {told['epoch']}")
    if told["parallelism"] < parallelism:
        click.echo(f"at most one task per key group: {told['parallelism']}")


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


def _wait(asked: _Asked, deadline: float) -> Manifest | None:
    """Return the first epoch that was seen with the new parallelism."""
    while True:
        newest = asked.catalog.newest()
        is_new = newest is not None and newest.epoch > asked.before
        is_ours = is_new and newest is not None and newest.run == asked.run
        if is_ours and newest is not None and newest.parallelism == asked.wanted:
            return newest
        if time.monotonic() >= deadline:
            return None
        time.sleep(_POLL_SECONDS)
