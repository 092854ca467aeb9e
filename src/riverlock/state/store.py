"""What a task needs from a store: reading apart from writing.

A store holds the entries of one task's key groups at one *version*, the end of a
committed epoch. It is a cache of the snapshot files: it may be thrown away at any time,
and it never holds anything that was not committed.

Order of calls: ``version`` → ``apply`` until the version is the wanted one → ``read``
for the whole epoch. ``apply`` is atomic and repeatable. Stores belong to one thread of
one process; several processes may open one path.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeAlias

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from contextlib import AbstractContextManager

    import pyarrow as pa

__all__ = [
    "EVENT",
    "PROCESSING",
    "Changes",
    "Rows",
    "StateReader",
    "Store",
    "Version",
]

EVENT, PROCESSING = 0, 1
# Ids and their payloads.
Rows: TypeAlias = "tuple[pa.BinaryArray, pa.BinaryArray]"


class Version(msgspec.Struct, frozen=True):
    """The committed epoch a store is at, and the schema its entries are coded in.

    ``token`` is that of the run that decided the epoch: a store restored from a backup
    can decide epoch 7 a second time, and the two must not be taken for one another.
    """

    epoch: int
    token: str
    schema: str


class Changes(msgspec.Struct):
    """What an epoch changes, in the bytes of a store."""

    puts: dict[bytes, bytes]
    deletes: list[bytes]
    # (kind byte + time, key id, payload); a payload of None removes the timer.
    timers: list[tuple[bytes, bytes, bytes | None]]
    # time + entry id of entries that expire.
    expiries: list[bytes]

    @classmethod
    def empty(cls) -> Changes:
        """Return a change set without changes."""
        return cls({}, [], [], [])


class StateReader(Protocol):
    """A consistent view of one version.

    Entries are found by their ids. For some operators, ids are ordered by a number, the
    *ordinal*, within each key group: the end of a pane, or whatever else the operator
    looks up by spans. All entries of such an operator are ordered.
    """

    def get(self, entry_id: bytes) -> bytes | None:
        """Return the payload of an entry."""
        ...

    def get_many(self, ids: Sequence[bytes]) -> list[bytes | None]:
        """Return the payloads of entries, None for those that do not exist."""
        ...

    def scan(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield the entries whose id begins with ``prefix``, in order."""
        ...

    def span(self, after: int | None, until: int) -> Rows:
        """Return ordered entries of a span of ordinals, in the order of their ids.

        Args:
            after: Their ordinals are greater; None: whatever they are.
            until: Their ordinals are not greater.
        """
        ...

    def get_ordered(self, ids: pa.BinaryArray) -> pa.BinaryArray:
        """Return the payloads of ordered entries, null for those that do not exist."""
        ...

    def first_ordinal(self, after: int) -> int | None:
        """Return the least ordinal that is greater; its entries may be gone since."""
        ...

    def last_ordinal(self) -> int | None:
        """Return the greatest ordinal there is; its entries may be gone since."""
        ...

    def last(self, prefix: bytes) -> bytes | None:
        """Return the greatest id that begins with ``prefix``."""
        ...

    def due_timers(
        self, kind: int, until_us: int
    ) -> Iterator[tuple[int, bytes, bytes]]:
        """Yield (time, key id, payload) of timers at or before ``until_us``."""
        ...

    def first_timer(self, kind: int) -> int | None:
        """Return the time of the earliest timer."""
        ...


class Store(Protocol):
    """A working copy that can be moved from version to version."""

    def version(self) -> Version | None:
        """Return the version, or None for an empty store."""
        ...

    def apply(self, changes: Changes, version: Version) -> None:
        """Make the changes and take the version, in one transaction."""
        ...

    def purge(self, now_us: int, limit: int) -> int:
        """Remove at most ``limit`` entries that expired; return how many."""
        ...

    def clear(self) -> None:
        """Become empty."""
        ...

    def read(self) -> AbstractContextManager[StateReader]:
        """Open a view of the current version."""
        ...
