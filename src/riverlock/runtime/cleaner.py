"""Compaction and retention, beside the loop: a thread that the loop never waits for."""

from __future__ import annotations

import logging
import queue
import threading
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from riverlock.coordinator.events import Compacted
from riverlock.core import faults
from riverlock.snapshot.compaction import choose, compact
from riverlock.snapshot.retention import Retention, sweep
from riverlock.state.keys import group_range

if TYPE_CHECKING:
    from riverlock.snapshot.catalog import Catalog
    from riverlock.snapshot.records import Manifest

__all__ = ["Cleaner"]

log = logging.getLogger(__name__)
# Listing the store for retention is not free: once in so many epochs.
_SWEEP_EVERY = 10


@dataclass
class Cleaner:
    """Works on the newest manifest it is given; skips what it cannot keep up with."""

    catalog: Catalog
    retention: Retention
    results: queue.SimpleQueue[Compacted] = field(default_factory=queue.SimpleQueue)
    _inbox: queue.Queue[Manifest | None] = field(
        default_factory=lambda: queue.Queue(maxsize=1)
    )
    _thread: threading.Thread | None = None
    _since_sweep: int = 0

    def offer(self, manifest: Manifest) -> None:
        """Hand over the newest manifest, unless the cleaner is busy."""
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._work, name="riverlock-cleaner", daemon=True
            )
            self._thread.start()
        try:
            self._inbox.put_nowait(manifest)
        except queue.Full:
            return

    def stop(self) -> None:
        """Finish what is under way and end the thread."""
        if self._thread is not None:
            self._inbox.put(None)
            self._thread.join()
            self._thread = None

    def _work(self) -> None:
        while (manifest := self._inbox.get()) is not None:
            try:
                self.clean(manifest)
            except Exception as error:  # noqa: BLE001 - a dead cleaner would hang stop
                # The stream must not stop for this; the next epoch tries again.
                log.warning("cleaning failed after epoch %s: %s", manifest.epoch, error)

    def clean(self, manifest: Manifest) -> None:
        """Compact what is due and, now and then, delete what nothing reaches."""
        for uid, state in manifest.operators.items():
            plan = choose(uid, state)
            if plan is None:
                continue
            pieces = [
                group_range(t, manifest.parallelism, manifest.key_groups)
                for t in range(manifest.parallelism)
            ]
            made = compact(
                self.catalog.storage,
                self.catalog.paths,
                plan,
                now_us=manifest.now_us,
                pieces=pieces,
                attempt=f"c-{uuid.uuid4().hex[:12]}",
            )
            faults.hit("P12")
            self.results.put(
                Compacted(
                    region=self.catalog.region,
                    operator=uid,
                    replaced=tuple(f.path for f in plan.files),
                    by=made,
                )
            )
        self._since_sweep += 1
        if self._since_sweep >= _SWEEP_EVERY:
            self._since_sweep = 0
            sweep(self.catalog, self.retention)
