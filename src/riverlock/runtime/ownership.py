"""One writer per region: run numbers fence, a heartbeat is only courtesy.

A run owns the region by creating the file of the next run number (snapshot/claims). A
newer number fences all older runs: each looks for it before every durable decision.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from riverlock.core.errors import StorageError
from riverlock.snapshot.owner import Beat, process_start
from riverlock.snapshot.requests import read_request
from riverlock.snapshot.sealed import seal
from riverlock.snapshot.stops import stop_request

if TYPE_CHECKING:
    from collections.abc import Callable

    from riverlock.snapshot.catalog import Catalog
    from riverlock.snapshot.records import Run, StopRequest
    from riverlock.snapshot.requests import Request

__all__ = ["Heartbeat"]

_BEAT_SECONDS = 1.0


class Heartbeat:
    """Beats while the run lives, and watches for a newer run."""

    def __init__(
        self,
        catalog: Catalog,
        run: Run,
        on_fenced: Callable[[], None],
        on_stop: Callable[[StopRequest], None] = lambda _: None,
    ) -> None:
        """Prepare; both are called from the heart's own thread.

        ``on_fenced`` is called once, ``on_stop`` at each beat while a request is there.
        """
        self._on_stop = on_stop
        self._catalog, self._run, self._on_fenced = catalog, run, on_fenced
        self._stop = threading.Event()
        self._count = 0
        self.owner: Run | None = None
        # Called once for each request, from the heart's own thread.
        self.on_request: Callable[[Request], None] = lambda _: None
        self._answered = ""
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
                asked = stop_request(self._catalog, self._run.run)
                if asked is not None:
                    self._on_stop(asked)
                self._look_for_requests()
            except StorageError:
                # The store is away; the loop will notice, and say so, by itself.
                continue

    def _look_for_requests(self) -> None:
        found = read_request(self._catalog)
        if found is not None and found.run == self._run.run:
            if found.id != self._answered:
                self.on_request(found)
            self._answered = found.id

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
        self._catalog.storage.put(self._catalog.paths.owner, seal(beat))
