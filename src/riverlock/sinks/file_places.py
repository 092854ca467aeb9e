"""Epochs of output files, moved from one folder to another, on disk or in objects.

Three kinds of folders hold epochs: the output directory itself, in readers' sight;
``_riverlock/withdrawn``, what a restore has undone; and ``_riverlock/aside/<run>``,
what the store of that run had not decided.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from riverlock.sinks.file_listing import epoch_folder, listed_commit
from riverlock.storage.local import LocalStorage
from riverlock.storage.object import ObjectStorage

if TYPE_CHECKING:
    from collections.abc import Iterable

    from riverlock.snapshot.past import Commit
    from riverlock.storage.base import Storage

__all__ = ["ASIDE", "IN_SIGHT", "Place", "place_at"]

OWN = "_riverlock"
ASIDE = f"{OWN}/aside"
IN_SIGHT = ""
_FOLDER = re.compile(r"epoch=(\d+)")
_LISTING = re.compile(r"(\d+)\.json")


class Place(Protocol):
    """An output directory whose epochs can be moved."""

    @property
    def storage(self) -> Storage:
        """Its files."""
        ...

    def folders(self) -> list[str]:
        """Return the folders aside, below the directory."""
        ...

    def epochs(self, folder: str = IN_SIGHT, *, after: int = -1) -> set[int]:
        """Return the epochs that have files or a listing in a folder.

        Those up to ``after`` are left out, and cost nothing.
        """
        ...

    def commit(self, epoch: int, folder: str = IN_SIGHT) -> Commit | None:
        """Return what a listing in a folder says; None: it is not listed there."""
        ...

    def move(self, epochs: Iterable[int], source: str, target: str) -> None:
        """Move epochs, files and listings; what is moved already stays so."""
        ...


def place_at(path: str) -> Place:
    """Return the output directory at a path or URL."""
    return _Objects(path) if "://" in path else _Directory(Path(path))


class _Directory:
    """Renames."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.storage = LocalStorage(root)

    def folders(self) -> list[str]:
        aside = self._root / ASIDE
        found = aside.iterdir() if aside.is_dir() else ()
        return sorted(f"{ASIDE}/{p.name}" for p in found if p.is_dir())

    def epochs(self, folder: str = IN_SIGHT, *, after: int = -1) -> set[int]:
        folders = self._named(self._root / folder, _FOLDER)
        listings = self._named(self._listings(folder), _LISTING)
        return {epoch for epoch in (*folders, *listings) if epoch > after}

    def commit(self, epoch: int, folder: str = IN_SIGHT) -> Commit | None:
        path = self._named(self._listings(folder), _LISTING).get(epoch)
        return None if path is None else listed_commit(epoch, path.read_bytes())

    def move(self, epochs: Iterable[int], source: str, target: str) -> None:
        chosen, there = set(epochs), self._root / target
        there.mkdir(parents=True, exist_ok=True)
        # The folder goes first: a listing without its folder says that it was here.
        for epoch, path in self._named(self._root / source, _FOLDER).items():
            if epoch in chosen:
                path.rename(there / path.name)
        listings = self._named(self._listings(source), _LISTING)
        for epoch, path in listings.items():
            if epoch in chosen:
                path.replace(self._listings(target) / path.name)
        for name in (source, target):
            _sync(self._root / name)
            _sync(self._listings(name))

    def _listings(self, folder: str) -> Path:
        return self._root / (folder or OWN)

    @staticmethod
    def _named(place: Path, name: re.Pattern[str]) -> dict[int, Path]:
        paths = sorted(place.iterdir()) if place.is_dir() else ()
        matches = ((name.fullmatch(path.name), path) for path in paths)
        return {int(match[1]): path for match, path in matches if match}


class _Objects:
    """Copies and deletes, the listing first out of sight and last into it."""

    def __init__(self, url: str) -> None:
        self.storage = ObjectStorage(url)

    def folders(self) -> list[str]:
        found = (e.path.split("/") for e in self.storage.list(f"{ASIDE}/"))
        return sorted({"/".join(parts[:3]) for parts in found if len(parts) > 3})

    def epochs(self, folder: str = IN_SIGHT, *, after: int = -1) -> set[int]:
        files, listings = self._found(folder, after)
        return set(files) | set(listings)

    def commit(self, epoch: int, folder: str = IN_SIGHT) -> Commit | None:
        path = f"{_below(folder)}{OWN}/{epoch:012d}.json"
        if not self.storage.exists(path):
            return None
        return listed_commit(epoch, self.storage.get(path))

    def move(self, epochs: Iterable[int], source: str, target: str) -> None:
        files, listings = self._found(source)
        for epoch in sorted(epochs):
            listed = [listings[epoch]] if epoch in listings else []
            paths = files.get(epoch, [])
            for path in [*listed, *paths] if target else [*paths, *listed]:
                there = f"{_below(target)}{path.removeprefix(_below(source))}"
                self.storage.copy(path, there)
                self.storage.delete(path)

    def _found(
        self, folder: str, after: int = -1
    ) -> tuple[dict[int, list[str]], dict[int, str]]:
        files: dict[int, list[str]] = {}
        listings: dict[int, str] = {}
        below = _below(folder)
        first = f"{below}{epoch_folder(after + 1)}"
        for entry in self.storage.list(below, after=first):
            name, _, rest = entry.path.removeprefix(below).partition("/")
            if (match := _FOLDER.fullmatch(name)) and rest:
                files.setdefault(int(match[1]), []).append(entry.path)
        first = f"{below}{OWN}/{max(after, 0):012d}"
        for entry in self.storage.list(f"{below}{OWN}/", after=first):
            name = entry.path.removeprefix(f"{below}{OWN}/")
            if (match := _LISTING.fullmatch(name)) and int(match[1]) > after:
                listings[int(match[1])] = entry.path
        return files, listings


def _below(folder: str) -> str:
    return f"{folder}/" if folder else ""


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
