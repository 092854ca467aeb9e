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
import threading
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from zlib import crc32

import lmdb
import msgspec

from riverlock.core.errors import StateCorruptedError
from riverlock.core.values.known_types import known
from riverlock.state.copy.lmdb.checks import CRC, DAMAGE, TIMERS, Open, Sums, sealed
from riverlock.state.copy.lmdb.reader import LmdbReader
from riverlock.state.copy.lock_file import READERS, reserve
from riverlock.state.keys import (
    time_bytes,
)
from riverlock.state.store import Changes, Version
from riverlock.storage.base import Reason

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

__all__ = ["LmdbStore", "close_all", "close_below"]

T = TypeVar("T")
_FIRST_MAP = 64 << 20
_FORMAT = 2
_VERSION = b"version"


class _Seal(msgspec.Struct):
    """``seal.json``: what must hold before the data file may be touched."""

    format: int
    lmdb: tuple[int, ...]
    boot: str
    bytes: int


# Keyed by process too: what a parent opened before a fork is not ours.
_OPEN: dict[tuple[int, str], Open] = {}
_MAX_OPEN = 64
# Regions, and runs that follow each other, may be threads of one process: LMDB kills it
# if one of them closes or moves a map that another reads from.
_lock = threading.Lock()


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
        """Throw the copy away: closing first, so that this process lets go of it.

        Whoever still reads keeps the files that are gone.
        """
        with _lock:
            self._let_go()
            shutil.rmtree(self.path, ignore_errors=True)

    @contextmanager
    def read(self) -> Iterator[LmdbReader]:
        """Open one read transaction; MVCC keeps it at its version."""
        txn, opened = self._retrying(_begun)
        try:
            with txn:
                yield LmdbReader(txn, opened, str(self.path))
        except DAMAGE as error:
            raise self._damaged(error) from error
        finally:
            _leave(opened)

    def close(self) -> None:
        """Close the environment of this process, unless another thread uses it."""
        with _lock:
            opened = _OPEN.get(self._key)
            if opened and not opened.users:
                self._let_go()

    def _is_sealed(self) -> bool:
        try:
            seal = msgspec.json.decode(
                (self.path / "seal.json").read_bytes(), type=known(_Seal)
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

    def _open(self) -> Open:
        key = self._key
        opened = _OPEN.get(key)
        with suppress(OSError):
            if opened and self._data.stat().st_ino == opened.inode:
                _OPEN[key] = _OPEN.pop(key)  # the most recently used comes last
                return opened
        self._let_go()
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
        opened = Open(env, self._data.stat().st_ino, dbs)
        # Operators and ranges come and go: a worker keeps only so many files open.
        idle = [key for key, each in _OPEN.items() if not each.users]
        for each in idle[: max(0, len(_OPEN) + 1 - _MAX_OPEN)]:
            _OPEN.pop(each).env.close()
        _OPEN[key] = opened
        return opened

    @property
    def _key(self) -> tuple[int, str]:
        return (os.getpid(), str(self.path))

    def _let_go(self) -> None:
        """Have it closed, now or when the last thread has left it.

        Only if the files are gone or to go: they must not be opened twice.
        """
        opened = _OPEN.pop(self._key, None)
        if opened:
            _give_up(opened)

    def _retrying(self, action: Callable[[Open], T]) -> T:
        """Run a transaction; grow the map when it is full, follow when another did."""
        while True:
            try:
                with self._entered() as opened:
                    return action(opened)
            except DAMAGE as error:
                raise self._damaged(error) from error
            except lmdb.DiskError as error:
                raise Reason.FULL.error("write", str(self.path)) from error
            except lmdb.MapFullError:
                self._map(lambda env: env.info()["map_size"] * 2)
            except lmdb.MapResizedError:
                self._map(lambda _: 0)

    def _map(self, size: Callable[[lmdb.Environment], int]) -> None:
        """Map the file anew, where the map may come to lie elsewhere.

        Raises:
            StateCorruptedError: Another thread reads from the map as it is: the copy is
                to be made anew, of other files.
        """
        with _lock:
            opened = self._open()
            if opened.users:
                raise StateCorruptedError(
                    path=str(self.path),
                    why="it has outgrown its map, which another thread reads from",
                )
            opened.env.set_mapsize(size(opened.env))

    @contextmanager
    def _entered(self) -> Iterator[Open]:
        with _lock:
            opened = self._open()
            opened.users += 1
        try:
            yield opened
        finally:
            _leave(opened)

    def _damaged(self, error: lmdb.Error) -> StateCorruptedError:
        return StateCorruptedError(path=str(self.path), why=str(error))

    def _read_version(self, opened: Open) -> Version | None:
        with opened.env.begin(db=opened.dbs[3]) as txn:
            raw = txn.get(_VERSION)
        if raw is None:
            return None
        if sealed(_VERSION, raw[4:]) != raw:
            raise StateCorruptedError(
                path=str(self.path), why="its version fails its CRC"
            )
        return msgspec.msgpack.decode(raw[4:], type=known(Version))

    @staticmethod
    def _apply(opened: Open, changes: Changes, version: Version) -> None:
        entries, timers, expiry, meta = opened.dbs
        with opened.env.begin(write=True) as txn:
            sums = Sums(txn, meta)
            sums.remove(_deleted(txn, entries, changes.deletes))
            sums.add(_put(txn, entries, changes.puts))
            gone = [at + i for at, i, key in changes.timers if key is None]
            kept = {at + i: key for at, i, key in changes.timers if key is not None}
            sums.remove(_deleted(txn, timers, gone), TIMERS)
            sums.add(_put(txn, timers, kept), TIMERS)
            for item in changes.expiries:
                txn.put(item, b"", db=expiry)
            sums.save()
            version_bytes = msgspec.msgpack.encode(version)
            txn.put(_VERSION, sealed(_VERSION, version_bytes), db=meta)

    @staticmethod
    def _purge(opened: Open, now_us: int, limit: int) -> int:
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
            sums = Sums(txn, meta)
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
    """Delete entries; return those that were there."""
    return [i for i in sorted(ids) if txn.delete(i, db=db)]


def _put(
    txn: lmdb.Transaction[bytes], db: Any, puts: Mapping[bytes, bytes]
) -> list[bytes]:
    """Write entries, each behind a checksum; return those that were not there.

    In order: neighbours share their way down the tree, and a page.
    """
    if not puts:
        return []
    pairs = sorted(puts.items())
    cursor, pack = txn.cursor(db), CRC.pack
    known = {i for i, _ in cursor.getmulti([i for i, _ in pairs])}
    cursor.putmulti([(i, pack(crc32(v, crc32(i))) + v) for i, v in pairs])
    return [i for i, _ in pairs if i not in known]


def _begun(opened: Open) -> tuple[lmdb.Transaction[bytes], Open]:
    """Begin to read; until ``_leave`` the environment stays open."""
    txn = opened.env.begin()
    with _lock:
        opened.users += 1
    return txn, opened


def _leave(opened: Open) -> None:
    with _lock:
        opened.users -= 1
        if opened.is_given_up and not opened.users:
            opened.env.close()


def _give_up(opened: Open) -> None:
    opened.is_given_up = True
    if not opened.users:
        opened.env.close()


def close_all() -> None:
    """Close every environment that this process has opened, or found open."""
    while _OPEN:
        _OPEN.popitem()[1].env.close()


def _after_fork() -> None:
    # Whoever held it has stayed in the parent.
    global _lock
    _lock = threading.Lock()
    close_all()


def close_below(root: Path) -> None:
    """Close the environments below a directory that is about to be removed."""
    with _lock:
        for key in [k for k in _OPEN if Path(k[1]).is_relative_to(root)]:
            _give_up(_OPEN.pop(key))


# A child may not use what its parent opened, nor open it again before letting go.
os.register_at_fork(after_in_child=_after_fork)
