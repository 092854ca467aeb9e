"""The working copy on local disk: LMDB inside the Python worker.

Facts that shape this module (docs/architecture.md, "Working copies"):

* LMDB has no checksums. Every value carries a CRC-32 of its id and itself, which tells
  a wrong value. A damaged id or tree makes entries *vanish*, which no checksum of
  theirs can tell: so the ids of each key group are summed up, and before the absence of
  an entry is believed for the first time, the sum of its group is checked.
* A truncated file kills its reader with SIGBUS: the size is checked before opening.
* ``writemap`` kills the process on a full disk: never used. ``meminit=False`` writes
  what the process had in memory, passwords included, into the file: never used.
* Nothing is synced to disk. A killed process loses nothing, a crashed machine may: the
  boot id is kept beside the file, and after a reboot the copy is thrown away.
* An environment must not cross a fork and must be opened once per process and path:
  hence the cache of this module.
"""

from __future__ import annotations

import os
import shutil
from contextlib import contextmanager, suppress
from itertools import takewhile
from pathlib import Path
from struct import Struct
from typing import TYPE_CHECKING, Any, TypeVar
from zlib import crc32

import lmdb
import msgspec
import numpy as np
import pyarrow as pa

from riverlock.core.errors import StateCorruptedError
from riverlock.core.times import END_US
from riverlock.state.columns.key_columns import group_column, window_ends
from riverlock.state.copy.lock_file import READERS, reserve
from riverlock.state.keys import time_bytes, time_of, window_of, window_span
from riverlock.state.store import Changes, Rows, Version
from riverlock.storage.base import Reason

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

__all__ = ["LmdbStore", "close_all", "close_below"]

T = TypeVar("T")
# What LMDB says of a file that is not, or no longer, what it wrote. Once a step has met
# damage, all others of its transaction are refused as those of a bad transaction.
_DAMAGE = (
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
_CRC = Struct("<I")
_FIRST_MAP = 64 << 20
_FORMAT = 2
_VERSION = b"version"
_SUMS = b"sums"
# Whether a window is here at all takes a look into each key group.
_FEW_WINDOWS = 16
# So many entries are given to another store in one transaction.
_AT_ONCE = 100_000
# Where the sum of the timers is kept among those of key groups, which have two bytes.
_TIMERS = b"timers"


class _Seal(msgspec.Struct):
    """``seal.json``: what must hold before the data file may be touched."""

    format: int
    lmdb: tuple[int, ...]
    boot: str
    bytes: int


class _Open(msgspec.Struct):
    env: lmdb.Environment
    inode: int
    dbs: tuple[Any, ...]
    # Groups whose ids this process has found complete.
    trusted: set[bytes] = msgspec.field(default_factory=set)


# Keyed by process too: what a parent opened before a fork is not ours.
_OPEN: dict[tuple[int, str], _Open] = {}
_MAX_OPEN = 64


def boot_id() -> str:
    """Return what changes when the machine restarts."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:  # not Linux: no such file, so a reboot is not noticed
        return "unknown"


class LmdbStore:
    """A store at a path; opened lazily, checked before each use."""

    def __init__(self, path: Path) -> None:
        """Name the directory; nothing is opened yet."""
        self.path = path
        self._data = path / "data.mdb"

    def version(self) -> Version | None:
        """Return the version, or None for an empty or untrustworthy store.

        A store without one is made empty.
        """
        found = self.peek()
        if found is None:
            self.clear()
        return found

    def peek(self) -> Version | None:
        """Return the version, and leave the store as it is if there is none."""
        if self._is_sealed():
            # Damaged: as good as none.
            with suppress(StateCorruptedError, msgspec.MsgspecError):
                return self._retrying(self._read_version)
        return None

    def apply(self, changes: Changes, version: Version) -> None:
        """Make the changes and take the version, in one transaction."""
        self._retrying(lambda o: self._apply(o, changes, version))
        self._seal()

    def purge(self, now_us: int, limit: int) -> int:
        """Remove at most ``limit`` expired entries; readers skip them anyway."""
        return self._retrying(lambda o: self._purge(o, now_us, limit))

    def clear(self) -> None:
        """Throw the copy away: closing first, so that this process lets go of it."""
        self._close()
        shutil.rmtree(self.path, ignore_errors=True)

    @contextmanager
    def read(self) -> Iterator[_LmdbReader]:
        """Open one read transaction; MVCC keeps it at its version."""
        txn, opened = self._retrying(lambda o: (o.env.begin(), o))
        with txn:
            try:
                yield _LmdbReader(txn, opened, str(self.path))
            except _DAMAGE as error:
                raise self._damaged(error) from error

    def close(self) -> None:
        """Close the environment of this process."""
        self._close()

    def _is_sealed(self) -> bool:
        try:
            seal = msgspec.json.decode(
                (self.path / "seal.json").read_bytes(), type=_Seal
            )
            stat = self._data.stat()
        except (OSError, msgspec.MsgspecError):
            return False
        return (
            seal.format == _FORMAT
            and seal.lmdb == lmdb.version()
            and seal.boot == boot_id()
            and stat.st_size >= seal.bytes
        )

    def _seal(self) -> None:
        seal = _Seal(_FORMAT, lmdb.version(), boot_id(), self._data.stat().st_size)
        temporary = self.path / f"seal.{os.getpid()}"
        temporary.write_bytes(msgspec.json.encode(seal))
        temporary.replace(self.path / "seal.json")

    def _open(self) -> _Open:
        key = (os.getpid(), str(self.path))
        opened = _OPEN.get(key)
        with suppress(OSError):
            if opened and self._data.stat().st_ino == opened.inode:
                _OPEN[key] = _OPEN.pop(key)  # the most recently used comes last
                return opened
        self._close()
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        size = self._data.stat().st_size if self._data.exists() else 0
        reserve(self.path / "lock.mdb")
        env = lmdb.open(
            str(self.path),
            map_size=max(_FIRST_MAP, size * 2),
            max_dbs=4,
            sync=False,
            metasync=False,
            readahead=False,
            max_readers=READERS,
        )
        try:
            dbs = tuple(map(env.open_db, (b"entries", b"timers", b"expiry", b"meta")))
        except lmdb.Error:
            env.close()
            raise
        opened = _Open(env, self._data.stat().st_ino, dbs)
        _OPEN[key] = opened
        # Operators and ranges come and go: a worker keeps only so many files open.
        while len(_OPEN) > _MAX_OPEN:
            _OPEN.pop(next(iter(_OPEN))).env.close()
        return opened

    def _close(self) -> None:
        opened = _OPEN.pop((os.getpid(), str(self.path)), None)
        if opened:
            opened.env.close()

    def _retrying(self, action: Callable[[_Open], T]) -> T:
        """Run a transaction; grow the map when it is full, follow when another did."""
        while True:
            try:
                opened = self._open()
                return action(opened)
            except _DAMAGE as error:
                raise self._damaged(error) from error
            except lmdb.DiskError as error:
                raise Reason.FULL.error("write", str(self.path)) from error
            except lmdb.MapFullError:
                opened.env.set_mapsize(opened.env.info()["map_size"] * 2)
            except lmdb.MapResizedError:
                opened.env.set_mapsize(0)

    def _damaged(self, error: lmdb.Error) -> StateCorruptedError:
        return StateCorruptedError(path=str(self.path), why=str(error))

    def _read_version(self, opened: _Open) -> Version | None:
        with opened.env.begin(db=opened.dbs[3]) as txn:
            raw = txn.get(_VERSION)
        if raw is None:
            return None
        if _sealed(_VERSION, raw[4:]) != raw:
            raise StateCorruptedError(
                path=str(self.path), why="its version fails its CRC"
            )
        return msgspec.msgpack.decode(raw[4:], type=Version)

    @staticmethod
    def _apply(opened: _Open, changes: Changes, version: Version) -> None:
        entries, timers, expiry, meta = opened.dbs
        with opened.env.begin(write=True) as txn:
            sums = _Sums(txn, meta)
            sums.remove(_deleted(txn, entries, changes.deletes))
            sums.add(_put(txn, entries, changes.puts))
            gone = [at + i for at, i, key in changes.timers if key is None]
            kept = {at + i: key for at, i, key in changes.timers if key is not None}
            sums.remove(_deleted(txn, timers, gone), _TIMERS)
            sums.add(_put(txn, timers, kept), _TIMERS)
            for item in changes.expiries:
                txn.put(item, b"", db=expiry)
            sums.save()
            version_bytes = msgspec.msgpack.encode(version)
            txn.put(_VERSION, _sealed(_VERSION, version_bytes), db=meta)

    @staticmethod
    def _purge(opened: _Open, now_us: int, limit: int) -> int:
        entries, _, expiry, meta = opened.dbs
        until = time_bytes(now_us)
        due: list[bytes] = []
        with opened.env.begin(db=expiry) as txn:
            for item in txn.cursor().iternext(values=False):
                if item[:8] > until or len(due) == limit:
                    break
                due.append(item)
        if not due:
            return 0
        with opened.env.begin(write=True) as txn:
            sums = _Sums(txn, meta)
            for item in due:
                entry_id = item[8:]
                payload = txn.get(entry_id, db=entries)
                # Written again since: this index record is stale, the entry stays.
                if payload is not None and payload[4:12] == item[:8]:
                    txn.delete(entry_id, db=entries)
                    sums.remove([entry_id])
                txn.delete(item, db=expiry)
            sums.save()
        return len(due)


def _deleted(txn: lmdb.Transaction[bytes], db: Any, ids: list[bytes]) -> list[bytes]:
    """Delete entries; returns those that were there."""
    return [i for i in sorted(ids) if txn.delete(i, db=db)]


def _put(
    txn: lmdb.Transaction[bytes], db: Any, puts: Mapping[bytes, bytes]
) -> list[bytes]:
    """Write entries, each behind a checksum; returns those that were not there.

    In order: neighbours share their way down the tree, and a page.
    """
    if not puts:
        return []
    pairs = sorted(puts.items())
    cursor, pack = txn.cursor(db), _CRC.pack
    known = {i for i, _ in cursor.getmulti([i for i, _ in pairs])}
    cursor.putmulti([(i, pack(crc32(v, crc32(i))) + v) for i, v in pairs])
    return [i for i, _ in pairs if i not in known]


def _sealed(name: bytes, payload: bytes) -> bytes:
    """Return a payload behind a checksum of its name and itself."""
    return _CRC.pack(crc32(payload, crc32(name))) + payload


class _Sums:
    """How much the ids of each key group sum up to, and those of all timers.

    Every id counts at least one, so that the sum notices any that is missing.
    """

    def __init__(self, txn: lmdb.Transaction[bytes], meta: Any) -> None:
        self._txn, self._meta = txn, meta
        self._changed = False
        raw = txn.get(_SUMS, db=meta)
        self.of: dict[bytes, int] = {}
        self.is_whole = raw is None or _sealed(_SUMS, raw[4:]) == raw
        if raw is not None and self.is_whole:
            self.of = msgspec.msgpack.decode(raw[4:], type=dict[bytes, int])

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
        if not self.is_whole:
            raise lmdb.CorruptedError("the sums of ids fail their CRC")
        if self._changed:
            body = msgspec.msgpack.encode(self.of)
            self._txn.put(_SUMS, _sealed(_SUMS, body), db=self._meta)


class _LmdbReader:
    """One read transaction; every value is checked against its CRC.

    Errors of LMDB itself are translated here and not only around the transaction:
    they may pass through user code, which must not be blamed for them.
    """

    def __init__(self, txn: lmdb.Transaction[bytes], opened: _Open, path: str) -> None:
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
        if _CRC.pack(crc32(payload, crc32(name))) != raw[:4]:
            raise self._damage("a value fails its CRC")
        return payload

    def _damage(self, why: str) -> StateCorruptedError:
        return StateCorruptedError(path=self._path, why=why)

    def _trust(self, group: bytes) -> None:
        """Make sure that no entry of a key group, or no timer, has vanished."""
        if group in self._trusted:
            return
        sums = _Sums(self._txn, self._meta)
        db = self._timers_db if group == _TIMERS else self._db
        cursor, get = self._txn.cursor(db), self._txn.get
        ids: Iterator[bytes] = iter(())
        if group == _TIMERS:
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
        sums = _Sums(self._txn, self._meta)
        if not sums.is_whole:
            raise self._damage("the sums of ids fail their CRC")
        return (g for g in sums.of if g != _TIMERS)

    def get(self, entry_id: bytes) -> bytes | None:
        try:
            raw = self._txn.get(entry_id, db=self._db)
            if raw is None:
                self._trust(entry_id[:2])
                return None
        except _DAMAGE as error:
            raise self._damaged(error) from error
        return self._checked(entry_id, raw)

    def get_many(self, ids: Sequence[bytes]) -> list[bytes | None]:
        checked = self._checked
        found = {i: checked(i, raw) for i, raw in self._entries.getmulti(ids)}
        if len(found) < len(ids):
            for group in {i[:2] for i in ids if i not in found} - self._trusted:
                self._trust(group)
        return list(map(found.get, ids))

    def scan(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
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
        except _DAMAGE as error:
            raise self._damaged(error) from error

    @property
    def size(self) -> int:
        """How many entries there are."""
        return int(self._txn.stat(self._db)["entries"])

    def part(self, groups: Iterable[bytes]) -> Iterator[Changes]:
        """Give all that some key groups have, as changes of an empty store.

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
            self._trust(_TIMERS)
            for raw_id, raw in self._txn.cursor(self._timers_db).iternext():
                if raw_id[9:11] in names:
                    payload = self._checked(raw_id, raw)
                    found.timers.append((raw_id[:9], raw_id[9:], payload))
            for item in self._txn.cursor(self._expiry).iternext(values=False):
                if item[8:10] in names:
                    found.expiries.append(item)
        except _DAMAGE as error:
            raise self._damaged(error) from error
        yield found

    def windows(self, after_us: int | None, until_us: int) -> Rows:
        low, high = window_span(after_us, until_us)
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
        except _DAMAGE as error:
            raise self._damaged(error) from error
        payloads = [raw[4:] for raw in found]
        # As ``_checked`` does one by one.
        sums = np.fromiter(map(crc32, payloads, map(crc32, ids)), "<u4", len(ids))
        if sums.tobytes() != b"".join([raw[:4] for raw in found]):
            raise self._damage("a value fails its CRC")
        return pa.array(ids, pa.binary()), pa.array(payloads, pa.binary())

    def get_windows(self, ids: pa.BinaryArray) -> pa.BinaryArray:
        """As ``get_many``; what is of no window that is here need not be looked for."""
        for group in np.unique(group_column(ids).to_numpy()).tolist():
            self._trust(group.to_bytes(2))
        ends = window_ends(ids)
        distinct = np.unique(ends).tolist()
        unknown = []
        if len(distinct) <= _FEW_WINDOWS:
            unknown = [e for e in distinct if not self._has_window(e)]
        if not unknown:
            return pa.array(self.get_many(ids.to_pylist()), pa.binary())
        asked = np.flatnonzero(~np.isin(ends, unknown))
        mine = self.get_many(ids.take(pa.array(asked)).to_pylist())
        found = np.full(len(ids), None, dtype=object)
        found[asked] = mine
        return pa.array(found, pa.binary())

    def _has_window(self, end_us: int) -> bool:
        """Whether any key has an entry in the windows that end at an instant."""
        return self.first_window(end_us - 1) == end_us

    def first_window(self, after_us: int) -> int | None:
        low, high = window_span(after_us, END_US)
        found: list[int] = []
        try:
            for group in self._groups():
                self._trust(group)
                if self._entries.set_range(group + low):
                    entry_id = self._entries.key()
                    if entry_id < group + high:
                        found.append(window_of(entry_id)[0])
        except _DAMAGE as error:
            raise self._damaged(error) from error
        return min(found, default=None)

    def last_window(self) -> int | None:
        low, high = window_span(None, END_US)
        found: list[int] = []
        cursor = self._entries
        try:
            for group in self._groups():
                self._trust(group)
                past = group + high
                if cursor.prev() if cursor.set_range(past) else cursor.last():
                    entry_id = cursor.key()
                    if entry_id >= group + low:
                        found.append(window_of(entry_id)[0])
        except _DAMAGE as error:
            raise self._damaged(error) from error
        return max(found, default=None)

    def last(self, prefix: bytes) -> bytes | None:
        cursor = self._entries
        try:
            self._trust(prefix[:2])
            past = prefix + b"\xff" * 16
            found = cursor.prev() if cursor.set_range(past) else cursor.last()
            key = cursor.key() if found else b""
        except _DAMAGE as error:
            raise self._damaged(error) from error
        return key if key.startswith(prefix) else None

    def due_timers(
        self, kind: int, until_us: int
    ) -> Iterator[tuple[int, bytes, bytes]]:
        until = bytes((kind,)) + time_bytes(until_us)
        self._trust(_TIMERS)
        if not self._timers.set_range(bytes((kind,))):
            return
        for raw_id, raw in self._timers.iternext():
            if raw_id[:9] > until:
                return
            yield time_of(raw_id[1:9]), raw_id[9:], self._checked(raw_id, raw)

    def first_timer(self, kind: int) -> int | None:
        self._trust(_TIMERS)
        if not self._timers.set_range(bytes((kind,))):
            return None
        raw_id = self._timers.key()
        return time_of(raw_id[1:9]) if raw_id[0] == kind else None


def close_all() -> None:
    """Close every environment that this process has opened, or found open."""
    while _OPEN:
        _OPEN.popitem()[1].env.close()


def close_below(root: Path) -> None:
    """Close the environments below a directory that is about to be removed."""
    for key in [k for k in _OPEN if Path(k[1]).is_relative_to(root)]:
        _OPEN.pop(key).env.close()


# A child may not use what its parent opened, nor open it again before letting go.
os.register_at_fork(after_in_child=close_all)
