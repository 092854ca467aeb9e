"""The one place that deletes what epochs consist of.

What may be deleted is never taken from an earlier plan. A round

1. announces which epochs it means to delete (``expiring/``), and only then looks at
   what keeps epochs: whoever pins one writes that down, then looks for announcements,
   so that one of the two sees the other, whatever is killed in between;
2. deletes manifests, looks once more, and puts back what was pinned in spite of an
   announcement that had grown too old meanwhile;
3. lists what is left, and deletes only files that nothing of it reaches.

A look is valid for some seconds. A round that was paused looks again before it
continues.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from riverlock.core import faults
from riverlock.core.errors import StorageNotFoundError
from riverlock.snapshot.file_lists import whole
from riverlock.snapshot.format.closed_numbers import CLOSED, Contested
from riverlock.snapshot.format.records import Manifest
from riverlock.snapshot.format.sealed import unseal
from riverlock.snapshot.retention.expiring import (
    Announcement,
    announced,
    forget_announcements,
)
from riverlock.snapshot.retention.inventory import look

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from datetime import datetime

    from riverlock.snapshot.catalog import Catalog
    from riverlock.snapshot.retention.inventory import Look

__all__ = ["Round", "move_aside"]


@dataclass
class Round:
    """One round of deletion.

    Attributes:
        catalog: The store.
        at: The present; None: by the storage's own clock.
        removed: The deleted manifests, as they were stored.
        gone: The paths of everything deleted.
    """

    catalog: Catalog
    at: datetime | None = None
    removed: dict[int, bytes] = field(default_factory=dict)
    gone: set[str] = field(default_factory=set)
    _read: dict[int, Manifest] = field(default_factory=dict)

    def run(
        self,
        choose: Callable[[Look], set[int]],
        leftovers: Callable[[Look], Iterable[str]],
    ) -> None:
        """Delete epochs, then files.

        Args:
            choose: Returns, for a look, which epochs may be deleted. The newest and
                pinned ones stay in any case.
            leftovers: Returns, for a look that is taken when the epochs are gone, which
                files may be deleted. Those that an epoch reaches stay in any case.

        Raises:
            SnapshotError: A manifest or a pin cannot be read: what it needs is unknown.
            StorageError: The storage refused; what is left is whole.
        """
        announcement = Announcement.begin(self.catalog)
        try:
            wanted = choose(self._look(announcement))
        except BaseException:
            announcement.end()
            raise
        while wanted:
            wanted = self._delete_epochs(announcement, wanted, choose)
        # Only now: after an error it stays, and nobody pins what may be half gone.
        announcement.end()
        faults.hit("V3")
        while not self._delete_files(self._look(announcement), leftovers):
            pass
        forget_announcements(self.catalog, now=self._now(announcement))

    def _now(self, announcement: Announcement) -> datetime:
        return announcement.began if self.at is None else self.at

    def _look(self, announcement: Announcement) -> Look:
        return look(self.catalog, now=self._now(announcement))

    def _delete_epochs(
        self,
        announcement: Announcement,
        wanted: set[int],
        choose: Callable[[Look], set[int]],
    ) -> set[int]:
        """Delete some epochs; return those for which it must look again."""
        announcement.name(wanted)
        faults.hit("V7")
        found = self._look(announcement)
        chosen = wanted & choose(found) - found.pinned - {found.newest}
        left, found, contested = set(chosen), found.read(), Contested(self.catalog)
        for epoch in sorted(chosen):
            if not found.is_fresh:
                break
            left.discard(epoch)
            self._delete_manifest(epoch, contested)
        for epoch in sorted(self._look(announcement).pinned & self.removed.keys()):
            path = self.catalog.paths.manifest(epoch)
            self.catalog.storage.put(path, self.removed.pop(epoch))
            self.gone.discard(path)
        return left

    def _delete_manifest(self, epoch: int, contested: Contested) -> None:
        path = self.catalog.paths.manifest(epoch)
        is_contested = contested.has(epoch)
        try:
            found = self.catalog.storage.get(path)
        except StorageNotFoundError:
            return
        if found == CLOSED:
            return
        self.removed[epoch] = found
        if is_contested:
            self.catalog.storage.put(path, CLOSED)
            self.gone.add(path)
        else:
            self._delete(path)
        faults.hit("V2")

    def _delete_files(
        self, found: Look, leftovers: Callable[[Look], Iterable[str]]
    ) -> bool:
        """Delete files; False if it must look again."""
        reached, paths = found.reached(), list(leftovers(found))
        missing = found.pinned - found.written.keys()
        if missing and missing & announced(self.catalog, now=None):
            # Another round sleeps, and puts it back when it wakes: with which files is
            # not known.
            return True
        found = found.read()
        for path in paths:
            if not found.is_fresh:
                return False
            if path not in reached and path not in self.gone:
                self._delete(path)
                faults.hit("V4")
        return True

    def _delete(self, path: str) -> None:
        self.catalog.storage.delete(path)
        self.gone.add(path)

    def manifests_removed(self) -> list[Manifest]:
        """Return the deleted manifests.

        To be called before anything that they refer to is deleted; later too.
        """
        path = self.catalog.paths.manifest
        for epoch in self.removed.keys() - self._read.keys():
            found = unseal(self.removed[epoch], Manifest, path=path(epoch))
            self._read[epoch] = whole(self.catalog.storage, found)
        return [self._read[epoch] for epoch in self.removed]


def move_aside(catalog: Catalog, paths: Iterable[str], folder: str) -> None:
    """Move files to another folder of the store; may be repeated."""
    for path in paths:
        try:
            catalog.storage.put(f"{folder}{path}", catalog.storage.get(path))
        except StorageNotFoundError:
            continue
        faults.hit("V4")
        if path.startswith(catalog.paths.epochs):
            catalog.storage.put(path, CLOSED)
        else:
            catalog.storage.delete(path)
