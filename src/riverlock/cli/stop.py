"""``riverlock stop``."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from riverlock.cli import text
from riverlock.cli.command import (
    command,
    known_region,
    open_starting,
    store_argument,
)
from riverlock.core.errors import InvalidConfigError

if TYPE_CHECKING:
    from riverlock.snapshot.catalog import Catalog
    from riverlock.snapshot.format.records import Run, Start

__all__ = ["stop"]

_POLL_SECONDS = 0.2


@dataclass(frozen=True, kw_only=True)
class _Alive:
    """A region that runs, or is about to."""

    catalog: Catalog
    run: Run | None = None
    start: Start | None = None


@command("stop")
@store_argument
@click.option("--region", help="Stop this region alone; the others go on.")
@click.option("--savepoint", metavar="NAME", help="A name for the last epoch.")
@click.option(
    "--timeout", default="1 minute", help="How long to wait for it; default 1 minute."
)
def stop(
    *,
    store: str,
    region: str | None,
    savepoint: str | None,
    timeout: str,
    as_json: bool,
) -> int:
    r"""Ask a running flow to finish its epoch and stop, wherever it runs.

    This writes a request into the store, which the run sees within about a second, and
    waits. A flow that is still starting stops before its first epoch. With --savepoint
    its last epoch gets a name, so that you can go back to it. Of a flow with several
    regions all are asked, in whichever processes they run; a savepoint, of all of them,
    is taken before.

    \b
    Examples:
      riverlock stop store --region billing
      riverlock stop store --savepoint before-upgrade
    """
    from riverlock.core.times import duration

    seconds = duration(timeout).total_seconds()
    deadline = time.monotonic() + seconds
    catalog, _ = open_starting(store)
    names = catalog.living_regions() or [catalog.region]
    if region is not None:
        names = [known_region(region, names)]
    found = [alive for name in names if (alive := _alive(catalog.of(name)))]
    if not found:
        raise _nobody(catalog, "no run that is alive")
    is_one = len(found) == 1 and len(catalog.living_regions()) < 2
    if savepoint is not None and not is_one:
        if region is not None:
            raise click.UsageError("a savepoint has all regions: leave out --region")
        _cut(catalog, savepoint, seconds)
    elif savepoint is not None:
        catalog.check_name(savepoint)
        if found[0].start is not None and catalog.newest() is None:
            raise _nobody(catalog, "one that starts, and has no epoch to name")
    for alive in found:
        _ask(alive, savepoint if is_one else None)
    if not is_one:
        return _tell_all([_ended(each, deadline) for each in found], as_json=as_json)
    run, has_ended = _ended(found[0], deadline)[1:]
    return _tell(found[0].catalog, run, savepoint, has_ended=has_ended, as_json=as_json)


def _alive(catalog: Catalog) -> _Alive | None:
    from riverlock.snapshot.owner import life_of
    from riverlock.snapshot.starts import starts

    starting = starts(catalog, now_us=text.now_us())
    run = catalog.newest_run()
    if run is not None and life_of(catalog, run).is_alive:
        return _Alive(catalog=catalog, run=run)
    return _Alive(catalog=catalog, start=starting[-1]) if starting else None


def _cut(catalog: Catalog, name: str, seconds: float) -> None:
    from riverlock.snapshot.verbs.cut import take_cut

    now_us, timeout_us = text.now_us(), int(seconds * 1e6)
    take_cut(catalog, name, now_us=now_us, timeout_us=timeout_us)


def _ask(alive: _Alive, savepoint: str | None) -> None:
    from riverlock.snapshot.format.records import Stop
    from riverlock.snapshot.format.requests import add_request

    asked = (
        Stop(run=0, start=alive.start.id, savepoint=savepoint)
        if alive.start is not None
        else Stop(run=alive.run.run if alive.run else 0, savepoint=savepoint)
    )
    add_request(alive.catalog, asked, now_us=text.now_us())


def _ended(alive: _Alive, deadline: float) -> tuple[str, Run | None, bool]:
    """Return the region, its run, and whether it has ended in time."""
    from riverlock.snapshot.starts import is_of

    catalog, run, has_ended = alive.catalog, alive.run, True
    if alive.start is not None:
        has_ended = _wait_for_start(catalog, alive.start, deadline)
        newest = catalog.newest_run()
        run = newest if newest is not None and is_of(newest, alive.start) else None
    if has_ended and run is not None:
        has_ended = _wait(catalog, run, deadline)
    return catalog.region, run, has_ended


def _tell_all(ended: list[tuple[str, Run | None, bool]], *, as_json: bool) -> int:
    if as_json:
        text.print_json(
            {
                "regions": {
                    region: {"run": run.run if run else None, "ended": has_ended}
                    for region, run, has_ended in ended
                }
            }
        )
    else:
        for region, run, has_ended in ended:
            who = "the start" if run is None else f"run {run.run}"
            what = "has ended" if has_ended else "was asked to stop, and has not yet"
            click.echo(f"region {region}: {who} {what}")
    return 0 if all(has_ended for _, _, has_ended in ended) else 1


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
