"""The slow, obvious store: sorted dictionaries. The oracle for LMDB."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import pyarrow as pa

from riverlock.state.keys import (
    MAX_ORDINAL,
    ordinal_of,
    ordinal_span,
    time_bytes,
    time_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from riverlock.state.store import Changes, Rows, StateReader, Version

__all__ = ["MemoryStore"]


class MemoryStore:
    """Holds one version in memory."""

    def __init__(self) -> None:
        """Begin empty."""
        self._entries: dict[bytes, bytes] = {}
        self._timers: dict[bytes, bytes] = {}
        self._expiries: set[bytes] = set()
        self._version: Version | None = None

    def version(self) -> Version | None:
        """Return the version, or None for an empty store."""
        return self._version

    def apply(self, changes: Changes, version: Version) -> None:
        """Make the changes and take the version."""
        for entry_id in changes.deletes:
            self._entries.pop(entry_id, None)
        self._entries.update(changes.puts)
        for at, key_id, payload in changes.timers:
            if payload is None:
                self._timers.pop(at + key_id, None)
            else:
                self._timers[at + key_id] = payload
        self._expiries.update(changes.expiries)
        self._version = version

    def purge(self, now_us: int, limit: int) -> int:
        """Remove entries that expired."""
        due = sorted(e for e in self._expiries if e[:8] <= time_bytes(now_us))[:limit]
        for expiry in due:
            self._expiries.discard(expiry)
            payload = self._entries.get(expiry[8:])
            if payload is not None and payload[:8] == expiry[:8]:
                del self._entries[expiry[8:]]
        return len(due)

    def clear(self) -> None:
        """Become empty."""
        self.__init__()  # type: ignore[misc]

    @contextmanager
    def read(self) -> Iterator[StateReader]:
        """Open a view; it is the store itself, which nobody else changes."""
        yield self

    def get(self, entry_id: bytes) -> bytes | None:
        """Return the payload of an entry."""
        return self._entries.get(entry_id)

    def get_many(self, ids: Sequence[bytes]) -> list[bytes | None]:
        """Return the payloads of entries, None for those that do not exist."""
        return list(map(self._entries.get, ids))

    def scan(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield the entries whose id begins with ``prefix``, in order."""
        found = sorted(i for i in self._entries if i.startswith(prefix))
        return ((i, self._entries[i]) for i in found)

    def span(self, after: int | None, until: int) -> Rows:
        """Return ordered entries of a span of ordinals."""
        low, high = ordinal_span(after, until)
        ids = sorted(i for i in self._entries if low <= i[2:] < high)
        rows = [self._entries[i] for i in ids]
        return pa.array(ids, pa.binary()), pa.array(rows, pa.binary())

    def get_ordered(self, ids: pa.BinaryArray) -> pa.BinaryArray:
        """Return the payloads of ordered entries, null for those that do not exist."""
        return pa.array(self.get_many(ids.to_pylist()), pa.binary())

    def first_ordinal(self, after: int) -> int | None:
        """Return the least ordinal that is greater."""
        ids, _ = self.span(after, MAX_ORDINAL)
        return min((ordinal_of(i)[0] for i in ids.to_pylist()), default=None)

    def last_ordinal(self) -> int | None:
        """Return the greatest ordinal."""
        ids, _ = self.span(None, MAX_ORDINAL)
        return max((ordinal_of(i)[0] for i in ids.to_pylist()), default=None)

    def last(self, prefix: bytes) -> bytes | None:
        """Return the greatest id that begins with ``prefix``."""
        return max((i for i in self._entries if i.startswith(prefix)), default=None)

    def due_timers(
        self, kind: int, until_us: int
    ) -> Iterator[tuple[int, bytes, bytes]]:
        """Yield the due timers in time order."""
        until = bytes((kind,)) + time_bytes(until_us)
        for raw in sorted(self._timers):
            if raw[0] == kind and raw[:9] <= until:
                yield time_of(raw[1:9]), raw[9:], self._timers[raw]

    def first_timer(self, kind: int) -> int | None:
        """Return the time of the earliest timer."""
        first = min((t for t in self._timers if t[0] == kind), default=None)
        return None if first is None else time_of(first[1:9])
