"""Processes that do one access to storage at a time, when they are told.

Each may be paused for any time, or killed, between two accesses.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Protocol

from riverlock.core.errors import RiverlockError, StorageNotFoundError
from riverlock.core.times import from_micros
from riverlock.storage.base import Entry

__all__ = ["Actor", "Killed", "Memory", "World"]

_MINE = threading.local()


class World(Protocol):
    """What storage belongs to: it has the time, and is told of changes."""

    is_changed: bool

    @property
    def now_us(self) -> int:
        """The present."""
        ...

    def note_decided(self, path: str) -> None:
        """Take note that an epoch was decided."""


class Killed(BaseException):
    """What a process meets that is no more: it does nothing else."""


class Actor:
    """A process that acts on a store, one access after the other."""

    def __init__(self, what: str, work: Callable[[], object]) -> None:
        self.what, self.is_over, self.is_done = what, False, False
        self.decides = False
        self._is_killed = False
        self._work = work
        self._go, self._stands = threading.Semaphore(0), threading.Semaphore(0)
        self._thread = threading.Thread(target=self._live, daemon=True)
        self._thread.start()
        self._stands.acquire()

    def __repr__(self) -> str:
        return self.what

    def _live(self) -> None:
        _MINE.actor = self
        try:
            self._work()
            self.is_done = True
        except (RiverlockError, Killed):
            pass
        finally:
            self.is_over = True
            self._stands.release()

    def meet(self, *, decides: bool) -> None:
        """Stand before an access until told to go on."""
        self.decides = decides
        if not self._is_killed:
            self._stands.release()
            self._go.acquire()
        if self._is_killed:
            raise Killed

    def move(self, accesses: int) -> None:
        """Go on for so many accesses."""
        while accesses > 0 and not self.is_over:
            accesses -= 1
            self._go.release()
            self._stands.acquire()

    def kill(self) -> None:
        self._is_killed = True
        if not self.is_over:
            self._go.release()
            self._stands.acquire()
        self._thread.join()


class Memory:
    """Storage in a dictionary; an actor stands before each access."""

    def __init__(self, world: World, uri: str) -> None:
        self.uri, self._world = uri, world
        self.files: dict[str, tuple[bytes, datetime]] = {}

    def _meet(self, *, decides: bool = False) -> None:
        actor = getattr(_MINE, "actor", None)
        if actor is not None:
            actor.meet(decides=decides)

    def get(self, path: str) -> bytes:
        self._meet()
        if path not in self.files:
            raise StorageNotFoundError(path)
        return self.files[path][0]

    def get_range(self, path: str, start: int, size: int) -> bytes:
        return self.get(path)[start : start + size]

    def head(self, path: str) -> Entry | None:
        self._meet()
        found = self.files.get(path)
        return found and Entry(path=path, size=len(found[0]), mtime=found[1])

    def exists(self, path: str) -> bool:
        return self.head(path) is not None

    def list(self, prefix: str = "") -> Iterator[Entry]:
        self._meet()
        return iter(
            [
                Entry(path=path, size=len(data), mtime=at)
                for path, (data, at) in sorted(self.files.items())
                if path.startswith(prefix)
            ]
        )

    def put(self, path: str, data: bytes) -> None:
        self._meet()
        self.files[path] = (data, from_micros(self._world.now_us))
        self._world.is_changed = True

    def put_if_absent(self, path: str, data: bytes) -> bool:
        self._meet(decides="/epochs/" in path)
        if path in self.files:
            return False
        self.files[path] = (data, from_micros(self._world.now_us))
        self._world.is_changed = True
        if "/epochs/" in path:
            self._world.note_decided(f"{self.uri}/{path}")
        return True

    def delete(self, path: str) -> None:
        self._meet()
        self.files.pop(path, None)
        self._world.is_changed = True

    def local_path(self, path: str, *, for_writing: bool = False) -> None:
        return None

    def make_durable(self, path: str) -> None:
        """Nothing of it survives in any case."""
