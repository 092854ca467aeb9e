"""Epochs of output files, moved in and out of readers' sight, on disk or in objects.

The output directory itself is in sight. ``_riverlock/withdrawn/<token>`` is the home of
the epochs that the run with that token decided, while they are out of sight: epochs
that a restore has undone, and those of another copy of the store. So an epoch has one
place to go to, whoever moves it, and anybody can complete or undo an interrupted move:
what a listing names belongs together.
"""

from __future__ import annotations

import contextlib
import os
import re
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from riverlock.connectors.files.listing import (
    epoch_folder,
    listed_commit,
    listed_names,
    listing,
    listing_path,
)
from riverlock.core import faults
from riverlock.core.errors import StorageNotFoundError
from riverlock.storage.local import LocalStorage
from riverlock.storage.object import ObjectStorage

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from riverlock.snapshot.past import Commit
    from riverlock.storage.base import Storage

__all__ = ["IN_SIGHT", "WITHDRAWN", "Listed", "Place", "nobodys_home", "place_at"]

OWN = "_riverlock"
WITHDRAWN = f"{OWN}/withdrawn"
IN_SIGHT = ""
_FOLDER = re.compile(r"epoch=(\d+)")
_LISTING = re.compile(r"(\d+)\.json")


@dataclass(frozen=True, slots=True)
class Listed:
    """What lists an epoch's files."""

    epoch: int
    data: bytes

    @property
    def commit(self) -> Commit:
        """Which epoch it is."""
        return listed_commit(self.epoch, self.data)

    @property
    def names(self) -> set[str]:
        """Its files, below the epoch's folder."""
        return listed_names(self.epoch, self.data)

    @property
    def is_blocked(self) -> bool:
        """Whether it only takes the place of one that was withdrawn."""
        return self.data == listing(self.epoch, ())

    @property
    def home(self) -> str:
        """Where its epoch is while it is out of sight."""
        return f"{WITHDRAWN}/{self.commit.run or 'unknown'}"


class Place(Protocol):
    """An output directory whose epochs can be moved.

    ``hide`` and ``show`` may be repeated, and continue what a crash left half done.
    """

    @property
    def storage(self) -> Storage:
        """Its files."""
        ...

    def homes(self) -> list[str]:
        """Return the folders of epochs that are out of sight."""
        ...

    def folders(self, folder: str = IN_SIGHT, *, after: int = -1) -> set[int]:
        """Return the epochs that have files in a folder."""
        ...

    def names(self, epoch: int, folder: str = IN_SIGHT) -> set[str]:
        """Return the files that an epoch has in a folder."""
        ...

    def listed(self, folder: str = IN_SIGHT, *, after: int = -1) -> set[int]:
        """Return the epochs that are listed in a folder."""
        ...

    def listing(self, epoch: int, folder: str = IN_SIGHT) -> Listed | None:
        """Return what lists an epoch in a folder."""
        ...

    def has_part(self, listed: Listed) -> bool:
        """Tell whether files of an epoch are in sight though it is not listed there."""
        ...

    def hide(self, home: str, epochs: Iterable[Listed]) -> None:
        """Move epochs out of sight."""
        ...

    def show(self, home: str, epochs: Iterable[Listed]) -> None:
        """Move epochs into sight.

        Their listings also stay at home: they tell the store that had withdrawn them,
        or a backup of it, that they were.
        """
        ...

    def put_away(self, strays: Mapping[int, set[str]]) -> None:
        """Move files that nothing lists to a home that belongs to nobody."""
        ...


def place_at(path: str) -> Place:
    """Return the output directory at a path or URL."""
    return _Objects(path) if "://" in path else _Directory(Path(path))


def nobodys_home() -> str:
    """Return a new folder for files that nothing lists."""
    return f"{WITHDRAWN}/unlisted-{uuid.uuid4().hex}"


class _Directory:
    """Renames: an epoch's folder first out of sight, and last into it.

    Between the two its listing is in sight and says whose home has the folder.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self.storage = LocalStorage(root)

    def homes(self) -> list[str]:
        place = self._root / WITHDRAWN
        found = place.iterdir() if place.is_dir() else ()
        return sorted(f"{WITHDRAWN}/{p.name}" for p in found if p.is_dir())

    def folders(self, folder: str = IN_SIGHT, *, after: int = -1) -> set[int]:
        return _numbers(self._root / folder, _FOLDER, after)

    def names(self, epoch: int, folder: str = IN_SIGHT) -> set[str]:
        place = self._folder(folder, epoch)
        return {
            p.relative_to(place).as_posix() for p in place.rglob("*") if p.is_file()
        }

    def listed(self, folder: str = IN_SIGHT, *, after: int = -1) -> set[int]:
        return _numbers(self._root / (folder or OWN), _LISTING, after)

    def listing(self, epoch: int, folder: str = IN_SIGHT) -> Listed | None:
        return _listing(self.storage, epoch, folder)

    def has_part(self, listed: Listed) -> bool:
        del listed
        return False  # a folder moves whole

    def hide(self, home: str, epochs: Iterable[Listed]) -> None:
        known = list(epochs)
        self._move_folders([e.epoch for e in known], IN_SIGHT, home)
        for each in known:
            path = self._root / _listing_at(each.epoch, IN_SIGHT)
            with contextlib.suppress(FileNotFoundError):
                path.replace(self._root / _listing_at(each.epoch, home))
            # Two names of one file stay two.
            path.unlink(missing_ok=True)
        self._sync(home, OWN)

    def show(self, home: str, epochs: Iterable[Listed]) -> None:
        known = list(epochs)
        for each in known:
            with contextlib.suppress(FileExistsError, FileNotFoundError):
                os.link(
                    self._root / _listing_at(each.epoch, home),
                    self._root / _listing_at(each.epoch, IN_SIGHT),
                )
        self._sync(OWN)
        self._move_folders([e.epoch for e in known], home, IN_SIGHT)

    def put_away(self, strays: Mapping[int, set[str]]) -> None:
        self._move_folders(strays, IN_SIGHT, nobodys_home())

    def _move_folders(self, epochs: Iterable[int], source: str, target: str) -> None:
        (self._root / target).mkdir(parents=True, exist_ok=True)
        for epoch in epochs:
            here, there = self._folder(source, epoch), self._folder(target, epoch)
            if not here.exists():
                continue
            if there.exists() and any(there.iterdir()):  # the same files, twice
                there = self._folder(nobodys_home(), epoch)
                there.parent.mkdir(parents=True)
            here.rename(there)
            faults.hit("V6")
        self._sync(source, target)

    def _folder(self, folder: str, epoch: int) -> Path:
        return self._root / folder / epoch_folder(epoch)

    def _sync(self, *folders: str) -> None:
        for folder in folders:
            descriptor = os.open(self._root / folder, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)


class _Objects:
    """Copies and deletes: an epoch's listing first out of sight, and last into it.

    Between the two its listing is at home, and names files that may be in sight.
    """

    def __init__(self, url: str) -> None:
        self.storage = ObjectStorage(url)

    def homes(self) -> list[str]:
        found = (e.path.split("/") for e in self.storage.list(f"{WITHDRAWN}/"))
        return sorted({"/".join(parts[:3]) for parts in found if len(parts) > 3})

    def folders(self, folder: str = IN_SIGHT, *, after: int = -1) -> set[int]:
        below = _below(folder)
        first = f"{below}{epoch_folder(after + 1)}"
        entries = self.storage.list(below, after=first)
        names = {e.path.removeprefix(below).partition("/")[0] for e in entries}
        matches = map(_FOLDER.fullmatch, names)
        return {int(match[1]) for match in matches if match}

    def names(self, epoch: int, folder: str = IN_SIGHT) -> set[str]:
        place = f"{_below(folder)}{epoch_folder(epoch)}/"
        return {e.path.removeprefix(place) for e in self.storage.list(place)}

    def listed(self, folder: str = IN_SIGHT, *, after: int = -1) -> set[int]:
        below = _below(folder or OWN)
        first = f"{below}{max(after, 0):012d}"
        entries = self.storage.list(below, after=first)
        matches = (_LISTING.fullmatch(e.path.removeprefix(below)) for e in entries)
        return {int(match[1]) for match in matches if match and int(match[1]) > after}

    def listing(self, epoch: int, folder: str = IN_SIGHT) -> Listed | None:
        return _listing(self.storage, epoch, folder)

    def has_part(self, listed: Listed) -> bool:
        return bool(self.names(listed.epoch) & listed.names)

    def hide(self, home: str, epochs: Iterable[Listed]) -> None:
        for each in epochs:
            self.storage.put(_listing_at(each.epoch, home), each.data)
            if self.listing(each.epoch) == each:
                self.storage.delete(listing_path(each.epoch))
            self._move(each.epoch, each.names, IN_SIGHT, home)

    def show(self, home: str, epochs: Iterable[Listed]) -> None:
        for each in epochs:
            self._move(each.epoch, each.names, home, IN_SIGHT)
            self.storage.put(listing_path(each.epoch), each.data)

    def put_away(self, strays: Mapping[int, set[str]]) -> None:
        home = nobodys_home()
        for epoch, names in strays.items():
            self._move(epoch, names, IN_SIGHT, home)

    def _move(self, epoch: int, names: set[str], source: str, target: str) -> None:
        here = f"{_below(source)}{epoch_folder(epoch)}"
        there = f"{_below(target)}{epoch_folder(epoch)}"
        for name in sorted(names & self.names(epoch, source)):
            self.storage.copy(f"{here}/{name}", f"{there}/{name}")
            self.storage.delete(f"{here}/{name}")


def _listing(storage: Storage, epoch: int, folder: str) -> Listed | None:
    try:
        return Listed(epoch, storage.get(_listing_at(epoch, folder)))
    except StorageNotFoundError:
        return None


def _listing_at(epoch: int, folder: str) -> str:
    return f"{folder}/{epoch:012d}.json" if folder else listing_path(epoch)


def _numbers(place: Path, name: re.Pattern[str], after: int) -> set[int]:
    paths = place.iterdir() if place.is_dir() else ()
    matches = (name.fullmatch(path.name) for path in paths)
    return {int(match[1]) for match in matches if match and int(match[1]) > after}


def _below(folder: str) -> str:
    return f"{folder}/" if folder else ""
