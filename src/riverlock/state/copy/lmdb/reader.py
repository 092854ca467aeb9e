"""A view of an LMDB file: one read transaction, every value checked."""

from __future__ import annotations

from itertools import takewhile
from typing import TYPE_CHECKING
from zlib import crc32

import numpy as np
import pyarrow as pa

from riverlock.core.errors import StateCorruptedError
from riverlock.state.columns.key_columns import group_column, ordinals_of
from riverlock.state.copy.lmdb.checks import CRC, DAMAGE, TIMERS, Sums
from riverlock.state.keys import (
    MAX_ORDINAL,
    ordinal_of,
    ordinal_span,
    time_bytes,
    time_of,
)
from riverlock.state.store import Changes, Rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import lmdb

    from riverlock.state.copy.lmdb.checks import Open

__all__ = ["LmdbReader"]

# Whether an ordinal is here at all takes a look into each key group.
_FEW_ORDINALS = 16
# So many entries are given to another store in one transaction.
_AT_ONCE = 100_000


class LmdbReader:
    """One read transaction; every value is checked against its CRC.

    Errors of LMDB itself are translated here and not only around the transaction:
    they may pass through user code, which must not be blamed for them.
    """

    def __init__(self, txn: lmdb.Transaction[bytes], opened: Open, path: str) -> None:
        self._entries = txn.cursor(opened.dbs[0])
        self._timers = txn.cursor(opened.dbs[1])
        self._txn = txn
        self._db = opened.dbs[0]
        self._timers_db, self._expiry = opened.dbs[1:3]
        self._meta = opened.dbs[3]
        self._trusted = opened.trusted
        self._path = path

    def _checked(self, name: bytes, raw: bytes) -> bytes:
        payload = raw[4:]
        if CRC.pack(crc32(payload, crc32(name))) != raw[:4]:
            raise self._damage("a value fails its CRC")
        return payload

    def _damage(self, why: str) -> StateCorruptedError:
        return StateCorruptedError(path=self._path, why=why)

    def _trust(self, group: bytes) -> None:
        """Make sure that no entry of a key group, or no timer, has vanished."""
        if group in self._trusted:
            return
        sums = Sums(self._txn, self._meta)
        db = self._timers_db if group == TIMERS else self._db
        cursor, get = self._txn.cursor(db), self._txn.get
        ids: Iterator[bytes] = iter(())
        if group == TIMERS:
            ids = cursor.iternext(values=False)
        elif cursor.set_range(group):
            ids = takewhile(
                lambda i: i.startswith(group), cursor.iternext(values=False)
            )
        total = 0
        for entry_id in ids:
            total += crc32(entry_id) + 1
            # Being there is not enough: the way down the tree must lead to it.
            if get(entry_id, db=db) is None:
                raise self._damage("entries cannot be found")
        if not sums.is_whole or total != sums.of.get(group, 0):
            raise self._damage("entries have vanished")
        self._trusted.add(group)

    def _damaged(self, error: lmdb.Error) -> StateCorruptedError:
        return StateCorruptedError(path=self._path, why=str(error))

    def _groups(self) -> Iterable[bytes]:
        """Return all key groups that have entries, or should have."""
        sums = Sums(self._txn, self._meta)
        if not sums.is_whole:
            raise self._damage("the sums of ids fail their CRC")
        return (g for g in sums.of if g != TIMERS)

    def get(self, entry_id: bytes) -> bytes | None:
        """Return the payload of an entry."""
        try:
            raw = self._txn.get(entry_id, db=self._db)
            if raw is None:
                self._trust(entry_id[:2])
                return None
        except DAMAGE as error:
            raise self._damaged(error) from error
        return self._checked(entry_id, raw)

    def get_many(self, ids: Sequence[bytes]) -> list[bytes | None]:
        """Return the payloads of entries, None for those that do not exist."""
        checked = self._checked
        found = {i: checked(i, raw) for i, raw in self._entries.getmulti(ids)}
        if len(found) < len(ids):
            for group in {i[:2] for i in ids if i not in found} - self._trusted:
                self._trust(group)
        return list(map(found.get, ids))

    def scan(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield the entries whose id begins with ``prefix``, in order."""
        try:
            for group in [prefix[:2]] if prefix else list(self._groups()):
                self._trust(group)
            # A cursor of its own: user code may look up while it iterates.
            cursor = self._txn.cursor(self._db)
            if not (cursor.set_range(prefix) if prefix else cursor.first()):
                return
            for entry_id, raw in cursor.iternext():
                if not entry_id.startswith(prefix):
                    return
                yield entry_id, self._checked(entry_id, raw)
        except DAMAGE as error:
            raise self._damaged(error) from error

    @property
    def size(self) -> int:
        """How many entries there are."""
        return int(self._txn.stat(self._db)["entries"])

    def part(self, groups: Iterable[bytes]) -> Iterator[Changes]:
        """Yield all that some key groups have, as changes of an empty store.

        Args:
            groups: What the ids of their entries begin with.
        """
        names, found = set(groups), Changes.empty()
        for group in sorted(names):
            for entry_id, payload in self.scan(group):
                found.puts[entry_id] = payload
                if len(found.puts) == _AT_ONCE:
                    yield found
                    found = Changes.empty()
        try:
            self._trust(TIMERS)
            for raw_id, raw in self._txn.cursor(self._timers_db).iternext():
                if raw_id[9:11] in names:
                    payload = self._checked(raw_id, raw)
                    found.timers.append((raw_id[:9], raw_id[9:], payload))
            for item in self._txn.cursor(self._expiry).iternext(values=False):
                if item[8:10] in names:
                    found.expiries.append(item)
        except DAMAGE as error:
            raise self._damaged(error) from error
        yield found

    def span(self, after: int | None, until: int) -> Rows:
        """Return ordered entries of a span of ordinals, in the order of their ids."""
        low, high = ordinal_span(after, until)
        ids: list[bytes] = []
        found: list[bytes] = []
        try:
            for group in sorted(self._groups()):
                self._trust(group)
                if not self._entries.set_range(group + low):
                    continue
                past = group + high
                for entry_id, raw in self._entries.iternext():
                    if entry_id >= past:
                        break
                    ids.append(entry_id)
                    found.append(raw)
        except DAMAGE as error:
            raise self._damaged(error) from error
        payloads = [raw[4:] for raw in found]
        # As ``_checked`` does one by one.
        sums = np.fromiter(map(crc32, payloads, map(crc32, ids)), "<u4", len(ids))
        if sums.tobytes() != b"".join([raw[:4] for raw in found]):
            raise self._damage("a value fails its CRC")
        return pa.array(ids, pa.binary()), pa.array(payloads, pa.binary())

    def get_ordered(self, ids: pa.BinaryArray) -> pa.BinaryArray:
        """As ``get_many``; entries whose ordinal nobody has are not looked for."""
        for group in np.unique(group_column(ids).to_numpy()).tolist():
            self._trust(group.to_bytes(2))
        ordinals = ordinals_of(ids)
        distinct = np.unique(ordinals).tolist()
        unknown = []
        if len(distinct) <= _FEW_ORDINALS:
            unknown = [e for e in distinct if not self._has_ordinal(e)]
        if not unknown:
            return pa.array(self.get_many(ids.to_pylist()), pa.binary())
        asked = np.flatnonzero(~np.isin(ordinals, unknown))
        mine = self.get_many(ids.take(pa.array(asked)).to_pylist())
        found = np.full(len(ids), None, dtype=object)
        found[asked] = mine
        return pa.array(found, pa.binary())

    def _has_ordinal(self, ordinal: int) -> bool:
        """Whether any key has an entry of an ordinal."""
        return self.first_ordinal(ordinal - 1) == ordinal

    def first_ordinal(self, after: int) -> int | None:
        """Return the least ordinal that is greater."""
        low, high = ordinal_span(after, MAX_ORDINAL)
        found: list[int] = []
        try:
            for group in self._groups():
                self._trust(group)
                if self._entries.set_range(group + low):
                    entry_id = self._entries.key()
                    if entry_id < group + high:
                        found.append(ordinal_of(entry_id)[0])
        except DAMAGE as error:
            raise self._damaged(error) from error
        return min(found, default=None)

    def last_ordinal(self) -> int | None:
        """Return the greatest ordinal."""
        low, high = ordinal_span(None, MAX_ORDINAL)
        found: list[int] = []
        cursor = self._entries
        try:
            for group in self._groups():
                self._trust(group)
                past = group + high
                if cursor.prev() if cursor.set_range(past) else cursor.last():
                    entry_id = cursor.key()
                    if entry_id >= group + low:
                        found.append(ordinal_of(entry_id)[0])
        except DAMAGE as error:
            raise self._damaged(error) from error
        return max(found, default=None)

    def last(self, prefix: bytes) -> bytes | None:
        """Return the greatest id that begins with ``prefix``."""
        cursor = self._entries
        try:
            self._trust(prefix[:2])
            past = prefix + b"\xff" * 16
            found = cursor.prev() if cursor.set_range(past) else cursor.last()
            key = cursor.key() if found else b""
        except DAMAGE as error:
            raise self._damaged(error) from error
        return key if key.startswith(prefix) else None

    def due_timers(
        self, kind: int, until_us: int
    ) -> Iterator[tuple[int, bytes, bytes]]:
        """Yield (time, key id, payload) of timers at or before ``until_us``."""
        until = bytes((kind,)) + time_bytes(until_us)
        self._trust(TIMERS)
        if not self._timers.set_range(bytes((kind,))):
            return
        for raw_id, raw in self._timers.iternext():
            if raw_id[:9] > until:
                return
            yield time_of(raw_id[1:9]), raw_id[9:], self._checked(raw_id, raw)

    def first_timer(self, kind: int) -> int | None:
        """Return the time of the earliest timer."""
        self._trust(TIMERS)
        if not self._timers.set_range(bytes((kind,))):
            return None
        raw_id = self._timers.key()
        return time_of(raw_id[1:9]) if raw_id[0] == kind else None
