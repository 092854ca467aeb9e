"""Claiming a region: whoever creates the file of a run number owns it.

A newcomer first checks whether the owner's heart beats, and gives up if it does, so
that a second start by mistake does not push a healthy run aside.
"""

from __future__ import annotations

import os
import socket
import time
import uuid
from contextlib import suppress
from typing import TYPE_CHECKING

from riverlock.core.errors import FencedError, SnapshotCorruptedError, SnapshotError
from riverlock.snapshot.format.records import Run
from riverlock.snapshot.format.sealed import seal
from riverlock.snapshot.owner import Beat, life_of, process_start, read_beat

if TYPE_CHECKING:
    from riverlock.snapshot.catalog import Catalog

__all__ = ["check_stopped", "claim", "describe", "release"]

# Longer than a few beats, shorter than the five seconds we promise.
_PATIENCE_SECONDS = 3.5


def claim(catalog: Catalog, *, now_us: int) -> Run:
    """Claim the next run number of the region.

    Raises:
        FencedError: Another run is alive, or was faster; nothing was written.
    """
    newest = _newest_claim(catalog)
    if newest is not None and _is_alive(catalog, newest):
        raise _fenced(catalog, newest)
    run = Run(
        run=1 if newest is None else newest.run + 1,
        host=socket.gethostname(),
        pid=os.getpid(),
        token=uuid.uuid4().hex,
        started_us=now_us,
        process=process_start(os.getpid()) or "",
        is_alone=_is_alone(catalog, newest),
    )
    if not catalog.claim(run):
        winner = catalog.run(run.run)
        assert winner is not None
        raise _fenced(catalog, winner)
    return run


def _newest_claim(catalog: Catalog) -> Run | None:
    """Return the newest claim; of a damaged one, only its number is known."""
    try:
        return catalog.newest_run()
    except SnapshotCorruptedError:
        number = catalog.listed_runs()[-1][0]
        return Run(run=number, host="", pid=0, token="", started_us=0)


def _is_alone(catalog: Catalog, before: Run | None) -> bool:
    """Tell whether no earlier run can decide an epoch any more.

    The one before has said that it ended; and those before it had ended too, or it has
    decided an epoch, whose number was the last that they could want.
    """
    if before is None:
        return True
    beat = read_beat(catalog)
    if beat is None or beat.run != before.run or not beat.has_ended:
        return False
    with suppress(SnapshotError):
        newest = None if before.is_alone else catalog.newest()
        return before.is_alone or (newest is not None and newest.run == before.run)
    return False


def _fenced(catalog: Catalog, owner: Run) -> FencedError:
    return FencedError(store=catalog.storage.uri, run=None, owner=describe(owner))


def describe(run: Run) -> str:
    """Name a run for people."""
    return f"run {run.run} (process {run.pid} on {run.host})"


def check_stopped(catalog: Catalog) -> None:
    """Refuse a region that seems to run, at once; a claim would look more closely.

    Raises:
        FencedError: Its heart beats.
    """
    run = catalog.newest_run()
    if run is not None and life_of(catalog, run).is_beating:
        raise _fenced(catalog, run)


def _is_alive(catalog: Catalog, run: Run) -> bool:
    beat = read_beat(catalog)
    if beat is None or beat.run != run.run:
        # Claimed but not beating yet: it is starting up, or died at once.
        return _is_local_and_alive(run)
    if beat.has_ended:
        return False
    is_here = beat.host == socket.gethostname()
    # Empty where the system cannot tell processes apart: then only the heart counts.
    if is_here and beat.started and process_start(beat.pid) != beat.started:
        return False
    # Alive or paused, here or elsewhere: watch whether the heart beats.
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while time.monotonic() < deadline:
        time.sleep(0.1)
        later = read_beat(catalog)
        if later is not None and later.count != beat.count:
            return not later.has_ended
    return False


def _is_local_and_alive(run: Run) -> bool:
    if run.host != socket.gethostname():
        return False
    found = process_start(run.pid)
    return found is not None and run.process in ("", found)


def release(catalog: Catalog, run: Run) -> None:
    """Say that a run without a heart has ended, unless another owns the region."""
    if catalog.run(run.run + 1) is None:
        beat = Beat(
            run=run.run,
            host=run.host,
            pid=run.pid,
            started=run.process,
            count=1,
            has_ended=True,
        )
        catalog.storage.put(catalog.paths.owner, seal(beat))
