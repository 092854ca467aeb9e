"""Epochs that are about to be deleted: announced, so that nobody pins them meanwhile.

Whoever pins writes its record, then looks for announcements; whoever deletes announces,
then looks for records. One of the two sees the other, whatever is killed in between.
"""

from __future__ import annotations

import contextlib
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from riverlock.core.errors import StorageNotFoundError
from riverlock.snapshot.format.records import Expiring
from riverlock.snapshot.format.sealed import seal, unseal
from riverlock.snapshot.format.store_layout import records

if TYPE_CHECKING:
    from collections.abc import Iterable

    from riverlock.snapshot.catalog import Catalog

__all__ = ["Announcement", "announced", "forget_announcements", "written_at"]

# Who announced so long ago has died on the way: nobody waits for it to end,
_DEAD = timedelta(minutes=10)
# but should it only sleep, what it may put back is spared for longer.
_FORGOTTEN = timedelta(days=1)


@dataclass(frozen=True)
class Announcement:
    """What a round of deletion announces before it acts.

    Attributes:
        catalog: The store.
        path: The file of the announcement.
        began: When the round began, by the clock of the storage: ours may be wrong, and
            files are only as old as that clock says.
    """

    catalog: Catalog
    path: str
    began: datetime

    @classmethod
    def begin(cls, catalog: Catalog) -> Announcement:
        """Announce a round that does not know yet what it will delete."""
        path = f"{catalog.paths.expiring}{uuid.uuid4().hex}.json"
        catalog.storage.put(path, seal(Expiring(epochs=())))
        return cls(catalog, path, written_at(catalog, path))

    def name(self, epochs: Iterable[int]) -> None:
        """Say which epochs will be deleted."""
        data = seal(Expiring(epochs=tuple(sorted(epochs))))
        self.catalog.storage.put(self.path, data)

    def end(self) -> None:
        """Withdraw it."""
        self.catalog.storage.delete(self.path)


def written_at(catalog: Catalog, path: str) -> datetime:
    """Return when a file of ours was written, by the clock of the storage."""
    entry = catalog.storage.head(path)
    return datetime.now(UTC) if entry is None else entry.mtime


def announced(catalog: Catalog, *, now: datetime | None) -> set[int]:
    """Return the epochs that somebody is deleting; None: since whenever."""
    found: set[int] = set()
    for entry in records(catalog.storage.list(catalog.paths.expiring)):
        if now is None or entry.mtime >= now - _DEAD:
            with contextlib.suppress(StorageNotFoundError):
                data = catalog.storage.get(entry.path)
                found.update(unseal(data, Expiring, path=entry.path).epochs)
    return found


def forget_announcements(catalog: Catalog, *, now: datetime) -> None:
    """Delete what the dead have announced."""
    for entry in catalog.storage.list(catalog.paths.expiring):
        if entry.mtime < now - _FORGOTTEN:
            catalog.storage.delete(entry.path)
