"""Compaction and retention, beside the loop: a thread that the loop never waits for."""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from riverlock.coordinator.events import Compacted
from riverlock.core import faults
from riverlock.snapshot.format.merged_files import (
    damaged,
    fits,
    forget_merged,
    is_there,
    note_merged,
    waiting,
)
from riverlock.snapshot.format.records import Merged
from riverlock.snapshot.retention.compaction import choose, compact
from riverlock.snapshot.retention.deletion import move_aside
from riverlock.snapshot.retention.policy import Retention, sweep
from riverlock.snapshot.verbs.inspection import QUARANTINE
from riverlock.state.keys import group_range

if TYPE_CHECKING:
    from collections.abc import Callable

    from riverlock.snapshot.catalog import Catalog
    from riverlock.snapshot.format.records import Manifest
    from riverlock.snapshot.retention.compaction import Compaction

__all__ = ["Cleaner"]

log = logging.getLogger(__name__)
# Listing the store for retention is not free: once in so many epochs.
_SWEEP_EVERY = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pending:
    """A compaction that was handed over; its files are in no manifest yet."""

    merged: Merged
    offered: int  # the newest epoch that the loop had decided by then
    record: str  # where it is written down, for the next run

    def is_settled(self, manifest: Manifest) -> bool:
        """Tell whether a manifest took it, or will never take it."""
        # The epoch after the one offered may have been sealed already, not the next.
        had_its_chance = manifest.epoch >= self.offered + 2
        return had_its_chance or not fits(self.merged, manifest)


@dataclass
class Cleaner:
    """Works on the newest manifest it gets; skips what it cannot keep up with."""

    catalog: Catalog
    retention: Retention
    # Called when older epochs were deleted.
    then: Callable[[], object] = lambda: None
    results: queue.SimpleQueue[Compacted] = field(default_factory=queue.SimpleQueue)
    _inbox: queue.Queue[Manifest | None] = field(
        default_factory=lambda: queue.Queue(maxsize=1)
    )
    _thread: threading.Thread | None = None
    _offered: int = -1
    _swept: int | None = None
    _pending: dict[str, _Pending] = field(default_factory=dict)

    def take_up(self) -> None:
        """Hand over what an earlier run has merged and no epoch refers to yet.

        What cannot be read is moved aside: without it, the files are merged again.
        """
        for path, error in damaged(self.catalog):
            move_aside(self.catalog, [path], f"{QUARANTINE}merged/")
            log.warning("moved aside, and nothing is lost by it: %s", error)
        found = dict(waiting(self.catalog))
        newest = self.catalog.newest() if found else None
        for path, merged in found.items():
            if newest is None or not fits(merged, newest):
                continue
            if merged.operator in self._pending or not is_there(self.catalog, merged):
                continue
            self._hand_over(merged, path, offered=newest.epoch)

    def offer(self, manifest: Manifest) -> None:
        """Hand over the newest manifest, in place of one that still waits."""
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._work, name="riverlock-cleaner", daemon=True
            )
            self._thread.start()
        self._offered = manifest.epoch
        # Nobody else puts, so there is room after the older one is taken out.
        with contextlib.suppress(queue.Empty):
            self._inbox.get_nowait()
        self._inbox.put_nowait(manifest)

    def stop(self) -> None:
        """Finish the work in progress and end the thread."""
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
        for uid, pending in [*self._pending.items()]:
            if pending.is_settled(manifest):
                del self._pending[uid]
                forget_merged(self.catalog, pending.record)
        for uid, state in manifest.operators.items():
            plan = None if uid in self._pending else choose(uid, state)
            if plan is not None:
                self._compact(manifest, plan)
        # At first too: runs may be short, as those with available_now are.
        if self._swept is None or manifest.epoch >= self._swept + _SWEEP_EVERY:
            self._swept = manifest.epoch
            sweep(self.catalog, self.retention)
            self.then()

    def _compact(self, manifest: Manifest, plan: Compaction) -> None:
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
        replaced = tuple(f.path for f in plan.files)
        merged = Merged(operator=plan.operator, replaced=replaced, by=made)
        path = note_merged(self.catalog, merged)
        if path is not None:
            self._hand_over(merged, path, offered=manifest.epoch)

    def _hand_over(self, merged: Merged, record: str, *, offered: int) -> None:
        result = Compacted(
            region=self.catalog.region,
            operator=merged.operator,
            replaced=merged.replaced,
            by=merged.by,
        )
        self.results.put(result)
        # Looked up after the result is there: what is sealed from then on has it.
        self._pending[merged.operator] = _Pending(
            merged=merged, offered=max(self._offered, offered), record=record
        )
