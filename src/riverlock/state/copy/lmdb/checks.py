"""How damage of an LMDB file is told: checksums of values, sums of ids."""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Any
from zlib import crc32

import lmdb
import msgspec

from riverlock.core.values.known_types import known

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["CRC", "DAMAGE", "TIMERS", "Open", "Sums", "sealed"]

# What LMDB says of a file that is not, or no longer, what it wrote. Once a step has met
# damage, all others of its transaction are refused as those of a bad transaction.
DAMAGE = (
    lmdb.BadDbiError,
    lmdb.BadRslotError,
    lmdb.BadTxnError,
    lmdb.CorruptedError,
    lmdb.CursorFullError,
    lmdb.IncompatibleError,
    lmdb.InvalidError,
    lmdb.PageFullError,
    lmdb.PageNotFoundError,
    lmdb.PanicError,
    lmdb.VersionMismatchError,
)
CRC = Struct("<I")
_SUMS = b"sums"
# Where the sum of the timers is kept among those of key groups, which have two bytes.
TIMERS = b"timers"


class Open(msgspec.Struct):
    """An environment that this process has open."""

    env: lmdb.Environment
    inode: int
    dbs: tuple[Any, ...]
    # Groups whose ids this process has found complete.
    trusted: set[bytes] = msgspec.field(default_factory=set)
    # How many transactions are under way: it is not closed below them.
    users: int = 0
    # Whether it is to be closed when the last of them has ended.
    is_given_up: bool = False


def sealed(name: bytes, payload: bytes) -> bytes:
    """Return a payload behind a checksum of its name and itself."""
    return CRC.pack(crc32(payload, crc32(name))) + payload


class Sums:
    """How much the ids of each key group sum up to, and those of all timers.

    Every id counts at least one, so that the sum notices any that is missing.
    """

    def __init__(self, txn: lmdb.Transaction[bytes], meta: Any) -> None:
        """Read them."""
        self._txn, self._meta = txn, meta
        self._changed = False
        raw = txn.get(_SUMS, db=meta)
        self.of: dict[bytes, int] = {}
        self.is_whole = raw is None or sealed(_SUMS, raw[4:]) == raw
        if raw is not None and self.is_whole:
            self.of = msgspec.msgpack.decode(raw[4:], type=known(dict[bytes, int]))

    def add(self, ids: Sequence[bytes], group: bytes | None = None) -> None:
        """Count ids of a group; by default each is of the one that it begins with."""
        self._count(ids, group, 1)

    def remove(self, ids: Sequence[bytes], group: bytes | None = None) -> None:
        """Count ids no longer."""
        self._count(ids, group, -1)

    def _count(self, ids: Sequence[bytes], group: bytes | None, sign: int) -> None:
        of = self.of
        if group is not None and ids:
            of[group] = of.get(group, 0) + sign * (sum(map(crc32, ids)) + len(ids))
        elif ids:
            groups = [i[:2] for i in ids]
            for name, size in zip(groups, map(crc32, ids), strict=True):
                of[name] = of.get(name, 0) + sign * (size + 1)
        self._changed |= bool(ids)

    def save(self) -> None:
        """Write the sums, if they have changed."""
        if not self.is_whole:
            raise lmdb.CorruptedError("the sums of ids fail their CRC")
        if self._changed:
            body = msgspec.msgpack.encode(self.of)
            self._txn.put(_SUMS, sealed(_SUMS, body), db=self._meta)
