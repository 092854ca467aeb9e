"""The working copy on local disk: LMDB inside the Python worker.

Facts that shape this module (docs/architecture.md, "Working copies"):

* LMDB has no checksums: every value carries a CRC-32 of its own.
* A truncated file kills its reader with SIGBUS: the size is checked before opening.
* ``writemap`` kills the process on a full disk: never used.
* Nothing is synced to disk. A killed process loses nothing, a crashed machine may: the
  boot id is kept beside the file, and after a reboot the copy is thrown away.
* An environment must not cross a fork and must be opened once per process and path:
  hence the cache of this module, the only mutable module state of the package.
"""

from __future__ import annotations

import os
import shutil
from contextlib import contextmanager, suppress
from pathlib import Path
from struct import Struct
from typing import TYPE_CHECKING, Any, TypeVar
from zlib import crc32

import lmdb
import msgspec

from riverlock.core.errors import StateCorruptedError
from riverlock.state.keys import time_bytes, time_of
from riverlock.state.store import Changes, StateReader, Version

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

__all__ = ["LmdbStore", "close_all"]

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
_FORMAT = 1
_VERSION = b"version"


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
        """Return the version, or None for an empty or untrustworthy store."""
        if self._is_sealed():
            # Damaged: as good as none.
            with suppress(StateCorruptedError, msgspec.MsgspecError):
                return self._retrying(self._read_version)
        self.clear()
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
    def read(self) -> Iterator[StateReader]:
        """Open one read transaction; MVCC keeps it at its version."""
        txn, dbs = self._retrying(lambda o: (o.env.begin(), o.dbs))
        with txn:
            try:
                yield _LmdbReader(txn, dbs, str(self.path))
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
        env = lmdb.open(
            str(self.path),
            map_size=max(_FIRST_MAP, size * 2),
            max_dbs=4,
            sync=False,
            metasync=False,
            readahead=False,
            meminit=False,
            max_readers=1024,
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
            except lmdb.MapFullError:
                opened.env.set_mapsize(opened.env.info()["map_size"] * 2)
            except lmdb.MapResizedError:
                opened.env.set_mapsize(0)

    def _damaged(self, error: lmdb.Error) -> StateCorruptedError:
        return StateCorruptedError(path=str(self.path), why=str(error))

    def _read_version(self, opened: _Open) -> Version | None:
        with opened.env.begin(db=opened.dbs[3]) as txn:
            raw = txn.get(_VERSION)
        return None if raw is None else msgspec.msgpack.decode(raw, type=Version)

    @staticmethod
    def _apply(opened: _Open, changes: Changes, version: Version) -> None:
        entries, timers, expiry, meta = opened.dbs
        pack = _CRC.pack
        with opened.env.begin(write=True) as txn:
            for entry_id in changes.deletes:
                txn.delete(entry_id, db=entries)
            if changes.puts:
                # In order: neighbours share their way down the tree, and a page.
                txn.cursor(entries).putmulti(
                    [(i, pack(crc32(v)) + v) for i, v in sorted(changes.puts.items())]
                )
            for at, key_id, payload in changes.timers:
                if payload is None:
                    txn.delete(at + key_id, db=timers)
                else:
                    txn.put(at + key_id, pack(crc32(payload)) + payload, db=timers)
            for item in changes.expiries:
                txn.put(item, b"", db=expiry)
            txn.put(_VERSION, msgspec.msgpack.encode(version), db=meta)

    @staticmethod
    def _purge(opened: _Open, now_us: int, limit: int) -> int:
        entries, _, expiry, _ = opened.dbs
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
            for item in due:
                payload = txn.get(item[8:], db=entries)
                # Written again since: this index record is stale, the entry stays.
                if payload is not None and payload[4:12] == item[:8]:
                    txn.delete(item[8:], db=entries)
                txn.delete(item, db=expiry)
        return len(due)


class _LmdbReader:
    """One read transaction; every value is checked against its CRC.

    Errors of LMDB itself are translated here and not only around the transaction:
    they may pass through user code, which must not be blamed for them.
    """

    def __init__(
        self, txn: lmdb.Transaction[bytes], dbs: tuple[Any, ...], path: str
    ) -> None:
        self._entries = txn.cursor(dbs[0])
        self._timers = txn.cursor(dbs[1])
        self._txn = txn
        self._db = dbs[0]
        self._path = path

    def _checked(self, raw: bytes) -> bytes:
        payload = raw[4:]
        if _CRC.pack(crc32(payload)) != raw[:4]:
            raise StateCorruptedError(path=self._path, why="a value fails its CRC")
        return payload

    def _damaged(self, error: lmdb.Error) -> StateCorruptedError:
        return StateCorruptedError(path=self._path, why=str(error))

    def get(self, entry_id: bytes) -> bytes | None:
        try:
            raw = self._txn.get(entry_id, db=self._db)
        except _DAMAGE as error:
            raise self._damaged(error) from error
        return None if raw is None else self._checked(raw)

    def get_many(self, ids: Sequence[bytes]) -> list[bytes | None]:
        checked = self._checked
        found = {i: checked(raw) for i, raw in self._entries.getmulti(ids)}
        return list(map(found.get, ids))

    def scan(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        try:
            # A cursor of its own: user code may look up while it iterates.
            cursor = self._txn.cursor(self._db)
            if not (cursor.set_range(prefix) if prefix else cursor.first()):
                return
            for entry_id, raw in cursor.iternext():
                if not entry_id.startswith(prefix):
                    return
                yield entry_id, self._checked(raw)
        except _DAMAGE as error:
            raise self._damaged(error) from error

    def last(self, prefix: bytes) -> bytes | None:
        cursor = self._entries
        try:
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
        if not self._timers.set_range(bytes((kind,))):
            return
        for raw_id, raw in self._timers.iternext():
            if raw_id[:9] > until:
                return
            yield time_of(raw_id[1:9]), raw_id[9:], self._checked(raw)

    def first_timer(self, kind: int) -> int | None:
        if not self._timers.set_range(bytes((kind,))):
            return None
        raw_id = self._timers.key()
        return time_of(raw_id[1:9]) if raw_id[0] == kind else None


def close_all() -> None:
    """Close every environment that this process has opened, or found open."""
    while _OPEN:
        _OPEN.popitem()[1].env.close()


# A child may not use what its parent opened, nor open it again before letting go.
os.register_at_fork(after_in_child=close_all)
