"""Epochs that are about to be deleted: announced, so that nobody pins them meanwhile.

Who pins writes its record, then looks for announcements; who deletes announces, then
looks for records. One of the two sees the other, whatever is killed in between.
"""

from __future__ import annotations

import contextlib
import uuid
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from riverlock.core.errors import StorageNotFoundError
from riverlock.snapshot.records import Expiring
from riverlock.snapshot.sealed import seal, unseal

if TYPE_CHECKING:
    from collections.abc import Iterable

    from riverlock.snapshot.catalog import Catalog

__all__ = ["announce", "announced", "forget_announcements"]

# Who announced so long ago has died on the way.
_DEAD = timedelta(minutes=10)


def announce(catalog: Catalog, epochs: Iterable[int]) -> str:
    """Say which epochs will be deleted; returns the path of what says so."""
    path = f"{catalog.paths.expiring}{uuid.uuid4().hex}.json"
    catalog.storage.put(path, seal(Expiring(epochs=tuple(epochs))))
    return path


def announced(catalog: Catalog) -> set[int]:
    """Return the epochs that somebody is deleting."""
    found: set[int] = set()
    living = datetime.now(UTC) - _DEAD
    for entry in catalog.storage.list(catalog.paths.expiring):
        if entry.mtime >= living:
            with contextlib.suppress(StorageNotFoundError):
                data = catalog.storage.get(entry.path)
                found.update(unseal(data, Expiring, path=entry.path).epochs)
    return found


def forget_announcements(catalog: Catalog, *, now: datetime) -> None:
    """Delete what the dead have announced."""
    for entry in catalog.storage.list(catalog.paths.expiring):
        if entry.mtime < now - _DEAD:
            catalog.storage.delete(entry.path)
