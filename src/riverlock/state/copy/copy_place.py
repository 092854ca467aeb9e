"""Where a working copy is on this machine: its files, its lock and who uses it."""

from __future__ import annotations

import fcntl
import os
import re
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from riverlock.snapshot.owner import process_start

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["Spot"]

_NAME = re.compile(r"(\d{5})-(\d{5})")


class Spot:
    """The place of one range of key groups: ``<root>/<first>-<end>`` and beside it."""

    def __init__(self, root: Path, groups: tuple[int, int]) -> None:
        """Name the place; nothing is opened."""
        name = f"{groups[0]:05d}-{groups[1]:05d}"
        self.groups = groups
        self.root = root
        self.store = root / name
        self.tail = root / f"{name}.tail"
        self._redo = root / f"{name}.redo"
        self._busy = root / f"{name}.busy"
        self._lock = root / f"{name}.lock"

    def others(self) -> list[Spot]:
        """Return the places of other ranges that share key groups with this one."""
        first, end = self.groups
        found = []
        with suppress(OSError):
            names = [_NAME.fullmatch(path.name) for path in self.root.iterdir()]
            ranges = sorted((int(m[1]), int(m[2])) for m in names if m)
            found = [g for g in ranges if g[0] < end and first < g[1]]
        return [Spot(self.root, groups) for groups in found if groups != self.groups]

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Wait until nobody else moves the copy, or reads from it."""
        self._lock.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with self._lock.open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    @contextmanager
    def resting(self) -> Iterator[bool]:
        """Keep others from moving the copy; False if one is just doing so.

        Does not wait: two that each move a copy could wait for one another.
        """
        with self._lock.open("a") as file:
            is_free = True
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                is_free = False
            yield is_free

    @contextmanager
    def marked(self, token: str) -> Iterator[None]:
        """Leave a mark while the copy is used: if we die, the copy may be the cause."""
        self._busy.mkdir(mode=0o700, parents=True, exist_ok=True)
        mine = self._busy / f"{os.getpid()}-{token}"
        mine.touch()
        try:
            yield
        finally:
            mine.unlink(missing_ok=True)

    def has_crashed(self, token: str) -> bool:
        """Whether a process of this run died while it used the copy.

        A mark of an earlier run only says that the driver died, which harms no copy.
        """
        return any(owner == token for _, owner in self._dead_marks())

    def forget_crashes(self) -> None:
        """Remove the marks of dead processes."""
        for mark, _ in self._dead_marks():
            mark.unlink(missing_ok=True)

    def _dead_marks(self) -> list[tuple[Path, str]]:
        found = []
        with suppress(FileNotFoundError):
            for mark in self._busy.iterdir():
                pid, _, owner = mark.name.partition("-")
                if process_start(int(pid)) is None:
                    found.append((mark, owner))
        return found

    def redo_of(self, path: str) -> Path:
        """Return where the bytes of a state file are kept."""
        stem = path.rpartition("/")[2].rpartition(".")[0]
        return self._redo / f"{stem}.redo"

    def redos(self) -> Iterator[Path]:
        """Yield all of these files."""
        return self._redo.iterdir()
