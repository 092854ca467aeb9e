"""One writer per region: run numbers fence, a heartbeat is only courtesy.

A run owns the region by creating the file of the next run number (snapshot/claims). A
newer number fences all older runs: each looks for it before every durable decision.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from riverlock.core.errors import (
    SnapshotCorruptedError,
    StorageError,
    StoreChangedError,
)
from riverlock.snapshot.format.requests import requests_after
from riverlock.snapshot.format.sealed import seal
from riverlock.snapshot.owner import Beat, process_start

if TYPE_CHECKING:
    from collections.abc import Callable

    from riverlock.snapshot.catalog import Catalog
    from riverlock.snapshot.format.records import Manifest, Request, Run

__all__ = ["Heartbeat"]

_BEAT_SECONDS = 1.0


class Heartbeat:
    """Beats while the run lives, and watches for a newer run."""

    def __init__(
        self,
        catalog: Catalog,
        run: Run,
        on_fenced: Callable[[], None],
    ) -> None:
        """Prepare; ``on_fenced`` is called once, from the heart's own thread."""
        self._catalog, self._run, self._on_fenced = catalog, run, on_fenced
        self._stop = threading.Event()
        self._count = 0
        # Whether the run could end now with nothing half done.
        self.is_well = True
        self.owner: Run | None = None
        self._on_request: Callable[[Request], None] | None = None
        self._last_request = 0
        self._looking = threading.Lock()
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

    def check_store(self, manifest: Manifest) -> None:
        """Check that the store still has our claim, and what an epoch continues from.

        A store that is put back from a backup lacks them. What this run decided next
        would refer to files that are not there.

        Raises:
            StoreChangedError: It lacks one of them.
        """
        lacks, parent = None, manifest.parent
        if not self._has_claim():
            lacks = f"the claim of run {self._run.run}"
        elif parent is not None and not self._catalog.storage.exists(
            self._catalog.paths.manifest(parent)
        ):
            lacks = f"epoch {parent}"
        if lacks is not None:
            raise StoreChangedError(
                store=self._catalog.storage.uri,
                run=self._run.run,
                epoch=manifest.epoch,
                lacks=lacks,
            )

    def _has_claim(self) -> bool:
        try:
            found = self._catalog.run(self._run.run)
        except SnapshotCorruptedError:
            # Damaged, but there: the put fences whoever else has the number.
            return True
        return found is not None and found.token == self._run.token

    def _beat_on(self) -> None:
        while not self._stop.wait(_BEAT_SECONDS):
            try:
                if self.check() is not None:
                    self._on_fenced()
                    return
                self._write()
                self.look_for_requests()
            except StorageError:
                # The store is away; the loop will notice, and say so, by itself.
                continue

    def listen(self, on_request: Callable[[Request], None], *, after: int) -> None:
        """Tell of each request after one, once and in order; those there are, now."""
        self._on_request, self._last_request = on_request, after
        self.look_for_requests()

    def look_for_requests(self) -> None:
        """Look now, not at the next beat; callable from anywhere."""
        with self._looking:
            if self._on_request is not None:
                for request in requests_after(self._catalog, self._last_request):
                    self._last_request = request.number
                    self._on_request(request)

    def _write(self, *, has_ended: bool = False) -> None:
        self._count += 1
        beat = Beat(
            run=self._run.run,
            host=self._run.host,
            pid=self._run.pid,
            started=process_start(self._run.pid) or "",
            count=self._count,
            has_ended=has_ended,
            has_failed=has_ended and not self.is_well,
        )
        self._catalog.storage.put(self._catalog.paths.owner, seal(beat))
