"""The resets of a store: each says that all regions go back (format §6.5)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from riverlock.core.errors import StorageNotFoundError
from riverlock.snapshot.format.cuts.cut_records import Reset
from riverlock.snapshot.format.sealed import seal, unseal
from riverlock.snapshot.format.store_layout import RESETS, numbered, reset_path

if TYPE_CHECKING:
    from riverlock.storage.base import Storage

__all__ = ["ResetLog"]


@dataclass(frozen=True)
class ResetLog:
    """The resets of a store."""

    storage: Storage

    def decide(self, reset: Reset) -> bool:
        """Put a reset if its number is free: from then on all regions go back."""
        return self.storage.put_if_absent(reset_path(reset.number), seal(reset))

    def last(self) -> Reset | None:
        """Return the last one; lists the store.

        Raises:
            SnapshotCorruptedError: It was altered.
        """
        listed = numbered(self.storage.list(RESETS))
        return self.after(listed[-1][0] - 1) if listed else None

    def after(self, number: int) -> Reset | None:
        """Return the last one after a number, without listing; None: there is none.

        Raises:
            SnapshotCorruptedError: It was altered.
        """
        last = number
        while self.storage.exists(reset_path(last + 1)):
            last += 1
        return None if last == number else self.read(last)

    def read(self, number: int) -> Reset | None:
        """Return one.

        Raises:
            SnapshotCorruptedError: It was altered.
        """
        path = reset_path(number)
        try:
            return unseal(self.storage.get(path), Reset, path=path)
        except StorageNotFoundError:
            return None
