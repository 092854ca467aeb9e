"""What a store has, and what keeps it, at one moment.

What keeps epochs and files is read before epochs are listed. Who goes back to an epoch
holds it until the new epoch is decided: it is found among the former, or its epoch
among the latter. So are merged files, which wait for an epoch.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from riverlock.core.times import micros
from riverlock.snapshot.format.merged_files import fits, waiting
from riverlock.snapshot.format.references import references
from riverlock.snapshot.retention.pins import pins

if TYPE_CHECKING:
    from datetime import datetime, timedelta

    from riverlock.snapshot.catalog import Catalog
    from riverlock.snapshot.format.records import Manifest, Merged
    from riverlock.snapshot.retention.pins import Pin

__all__ = ["Look", "look"]

# Older than this, it is taken again before anything more is deleted.
_FRESH_SECONDS = 5.0


@dataclass(frozen=True, kw_only=True)
class Look:
    """A listing of epochs and of what keeps them.

    Attributes:
        catalog: The store.
        now: The present, by the clock of the storage.
        pins: What keeps epochs.
        waiting: Merged files that may wait for an epoch, by the paths of the records.
        written: When the manifest of each retained epoch was written, oldest first.
        taken: When we began to look, and for how long we did, in seconds of a clock
            that only runs forward.
    """

    catalog: Catalog
    now: datetime
    pins: tuple[Pin, ...]
    waiting: dict[str, Merged]
    written: dict[int, datetime]
    taken: tuple[float, float]
    _read: dict[int, Manifest] = field(default_factory=dict)

    @property
    def newest(self) -> int | None:
        """The newest epoch."""
        return max(self.written, default=None)

    @property
    def pinned(self) -> set[int]:
        """The epochs that something keeps."""
        return set().union(*(self.kept_by(pin) for pin in self.pins))

    def kept_by(self, pin: Pin) -> set[int]:
        """Return the epochs that a pin keeps."""
        if not pin.is_onward:
            return {pin.epoch}
        return {epoch for epoch in self.written if epoch >= pin.epoch}

    def younger_than(self, grace: timedelta) -> set[int]:
        """Return the epochs that were decided less long ago."""
        return {e for e, at in self.written.items() if at >= self.now - grace}

    @property
    def manifests(self) -> dict[int, Manifest]:
        """The manifests of all retained epochs.

        Raises:
            SnapshotError: One cannot be read: what it needs is unknown.
        """
        for epoch in self.written.keys() - self._read.keys():
            self._read[epoch] = self.catalog.manifest(epoch)
        return {epoch: self._read[epoch] for epoch in self.written}

    def reached(self) -> set[str]:
        """Return the files that retained epochs refer to, or the next one may.

        Raises:
            SnapshotError: A manifest cannot be read: what it needs is unknown.
        """
        over = self.settled()
        waits = [m.by for path, m in self.waiting.items() if path not in over]
        reached = {file.path for by in waits for file in by}
        return reached.union(*(references(m) for m in self.manifests.values()))

    def settled(self) -> set[str]:
        """Return the records of merged files that no later epoch will take up.

        They were read before epochs were listed, so that the newest is not older than
        the one that they were made for.
        """
        if self.newest is None:
            return set()
        newest = self.manifests[self.newest]
        return {
            path for path, merged in self.waiting.items() if not fits(merged, newest)
        }

    def read(self) -> Look:
        """Return it with the time that it took to read what it led to, manifests too.

        However long that is, what was decided by it can be begun.
        """
        began, _ = self.taken
        return replace(self, taken=(began, seconds() - began))

    @property
    def is_fresh(self) -> bool:
        """Whether we may still go by it."""
        began, took = self.taken
        return seconds() - began <= _FRESH_SECONDS + 2 * took


def look(catalog: Catalog, *, now: datetime) -> Look:
    """Look at a store now."""
    began = seconds()
    kept = tuple(pins(catalog, now_us=micros(now)))
    merged = dict(waiting(catalog))
    written = {epoch: entry.mtime for epoch, entry in catalog.listed_epochs()}
    return Look(
        catalog=catalog,
        now=now,
        pins=kept,
        waiting=merged,
        written=written,
        taken=(began, seconds() - began),
    )


def seconds() -> float:
    """Return the time of a clock that only runs forward."""
    return time.monotonic()
