"""One writer per region: run numbers fence, a heartbeat is only courtesy.

A run owns the region by creating the file of the next run number. A newer number
fences all older runs: each looks for it before every durable decision. So that a second
start by mistake does not push a healthy run aside, a newcomer first looks whether the
owner's heart beats, and gives up if it does.
"""

from __future__ import annotations

import os
import socket
import threading
import time
import uuid
from typing import TYPE_CHECKING

import msgspec

from riverlock.core.errors import FencedError, StorageError
from riverlock.snapshot.owner import Beat, process_start, read_beat
from riverlock.snapshot.records import Run

if TYPE_CHECKING:
    from collections.abc import Callable

    from riverlock.snapshot.catalog import Catalog

__all__ = ["Heartbeat", "claim"]

_BEAT_SECONDS = 1.0
# Longer than a few beats, shorter than the five seconds we promise.
_PATIENCE_SECONDS = 3.5


def claim(catalog: Catalog, *, now_us: int) -> Run:
    """Claim the next run number of the region.

    Raises:
        FencedError: Another run is alive, or was faster; nothing was written.
    """
    newest = catalog.newest_run()
    if newest is not None and _is_alive(catalog, newest):
        raise _fenced(catalog, newest)
    run = Run(
        run=1 if newest is None else newest.run + 1,
        host=socket.gethostname(),
        pid=os.getpid(),
        token=uuid.uuid4().hex,
        started_us=now_us,
        process=process_start(os.getpid()) or "",
    )
    if not catalog.claim(run):
        winner = catalog.run(run.run)
        assert winner is not None
        raise _fenced(catalog, winner)
    return run


def _fenced(catalog: Catalog, owner: Run) -> FencedError:
    return FencedError(store=catalog.storage.uri, run=None, owner=describe(owner))


def describe(run: Run) -> str:
    """Name a run for people."""
    return f"run {run.run} (process {run.pid} on {run.host})"


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


class Heartbeat:
    """Beats while the run lives, and watches for a newer run."""

    def __init__(
        self, catalog: Catalog, run: Run, on_fenced: Callable[[], None]
    ) -> None:
        """Prepare; ``on_fenced`` is called once, from the heart's own thread."""
        self._catalog, self._run, self._on_fenced = catalog, run, on_fenced
        self._stop = threading.Event()
        self._count = 0
        self.owner: Run | None = None
        self._thread = threading.Thread(
            target=self._beat_on, name=f"riverlock-heart-{run.run}", daemon=True
        )

    def start(self) -> None:
        """Begin to beat."""
        self._write()
        self._thread.start()

    def stop(self) -> None:
        """Say that the run has ended, unless another owns the region by now."""
        self._stop.set()
        self._thread.join(timeout=10)
        if self.check() is None:
            self._write(has_ended=True)

    def check(self) -> Run | None:
        """Return the run that fences us, if there is one."""
        if self.owner is None:
            self.owner = self._catalog.run(self._run.run + 1)
        return self.owner

    def _beat_on(self) -> None:
        while not self._stop.wait(_BEAT_SECONDS):
            try:
                if self.check() is not None:
                    self._on_fenced()
                    return
                self._write()
            except StorageError:
                # The store is away; the loop will notice, and say so, by itself.
                continue

    def _write(self, *, has_ended: bool = False) -> None:
        self._count += 1
        beat = Beat(
            run=self._run.run,
            host=self._run.host,
            pid=self._run.pid,
            started=process_start(self._run.pid) or "",
            count=self._count,
            has_ended=has_ended,
        )
        self._catalog.storage.put(self._catalog.paths.owner, msgspec.json.encode(beat))
