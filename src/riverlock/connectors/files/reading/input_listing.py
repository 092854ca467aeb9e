"""Which files a path has: those to read, and those that cannot be opened."""

from __future__ import annotations

import glob
import logging
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from riverlock.core.errors import SourceError, SourceUnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["WILDCARDS", "Entry", "Listing", "entry_of"]

log = logging.getLogger(__name__)

Entry = list[Any]  # path, size, time of change in microseconds

# What Spark takes for a pattern in the name of a file.
WILDCARDS = "[]{}*?"
_WILDCARD = re.compile(r"[*?[]")


class Listing:
    """The files of a directory, of those that a pattern matches, or one file.

    Hidden and half-written files are ignored. What cannot be read is set aside and
    reported, once each: it must not hold up the others.
    """

    def __init__(
        self, path: str, uid: str, *, encoding: Callable[[], str], waits: bool
    ) -> None:
        """Keep what to list.

        Args:
            path: A directory, a pattern or a file.
            uid: Of the source, for errors.
            encoding: Returns the encoding in which Java spells names of files.
            waits: Whether a path may come later.
        """
        self._path, self._uid = path, uid
        self._encoding, self._waits = encoding, waits
        self.set_aside: dict[str, str] = {}

    def is_there(self) -> bool:
        """Tell whether the directory exists that files would be in.

        Raises:
            SourceError: It does not, and was not declared to come later.
        """
        path = Path(self._path)
        if path.is_file() and not _is_whole(path.name):
            raise SourceError(
                self._uid,
                what=f"{path} is never read: names that begin with . or _, or end in"
                " .tmp, are those of hidden and half-written files",
                hint="rename the file",
            )
        place = _fixed_part(self._path)
        if place.exists():
            return True
        if self._waits:
            return False
        raise SourceError(
            self._uid,
            what=f"{place.absolute()} does not exist",
            hint="correct the path, or make the directory; missing='wait' waits until"
            " it comes",
        )

    def files(self) -> Iterator[Entry]:
        """List what there is now.

        Raises:
            SourceUnavailableError: A folder does not answer. Without its files, an
                input that is bounded would come to its end.
        """
        found = glob.glob(self._path)  # noqa: PTH207 - absolute patterns too
        if not found:
            self._look_into(_fixed_part(self._path))
        for root in found or [self._path]:
            if self._is_hidden(root):
                continue
            if os.path.isdir(root):  # noqa: PTH112 - as walk below takes it
                yield from self._below(root)
            else:
                yield from self._entry(Path(root))

    def _is_hidden(self, root: str) -> bool:
        """Tell whether a pattern matched a hidden name that it does not spell."""
        pairs = zip(Path(self._path).parts, Path(root).parts, strict=False)
        return any(
            name != pattern and name.startswith((".", "_")) and pattern[0] != name[0]
            for pattern, name in pairs
        )

    def _look_into(self, folder: Path) -> None:
        """List a folder that a pattern found nothing in: it passes over errors."""
        if folder.is_dir():
            try:
                with os.scandir(folder):
                    return
            except OSError as error:
                self._not_listed(error)

    def _below(self, root: str) -> Iterator[Entry]:
        for folder, folders, names in os.walk(root, onerror=self._not_listed):
            folders[:] = [f for f in folders if not f.startswith((".", "_"))]
            for name in folders:
                path = Path(folder, name)
                if path.is_symlink():
                    self._put_aside(path, "it is a link to a directory")
            for name in names:
                yield from self._entry(Path(folder, name))

    def _not_listed(self, error: OSError) -> None:
        """Tell of a folder that cannot be listed, unless it is gone."""
        if isinstance(error, PermissionError):
            self._put_aside(Path(error.filename), "we may not list it")
        elif not isinstance(error, FileNotFoundError | NotADirectoryError):
            what = f"{error.filename} cannot be listed: {error.strerror}"
            raise SourceUnavailableError(self._uid, what=what) from error

    def _entry(self, path: Path) -> list[Entry]:
        """Return the entry of a file, unless it is hidden, vanished or set aside."""
        if not _is_whole(path.name):
            return []
        name = str(path.absolute())
        if "\\" in name or (":" in name and any(c in name for c in WILDCARDS)):
            reason = "Spark cannot read a name with a backslash, or with a colon"
            return self._put_aside(path, f"{reason} beside one of {WILDCARDS}")
        try:
            if not name.isascii():
                name.encode(self._encoding())
            return [entry_of(path)] if path.is_file() else self._special(path)
        except UnicodeEncodeError as error:
            reason = f"Java cannot open a name that is not {error.encoding}"
            return self._put_aside(path, reason)
        except FileNotFoundError:
            return []

    def _special(self, path: Path) -> list[Entry]:
        """Examine what is not a file: a link that leads nowhere may yet lead to one."""
        try:
            path.stat()
        except FileNotFoundError:
            return []
        except OSError as error:
            return self._put_aside(path, error.strerror or str(error))
        return [] if path.is_dir() else self._put_aside(path, "it is not a plain file")

    def _put_aside(self, path: Path, reason: str) -> list[Entry]:
        self._tell(path, "is set aside and not read", reason)
        return []

    def tell_changed(self, path: str) -> None:
        """Tell of a file whose name was read before: that is not done twice."""
        reason = "it has changed since; new rows need a file with a new name"
        self._tell(Path(path), "is not read again", reason)

    def _tell(self, path: Path, what: str, reason: str) -> None:
        name = os.fsencode(path.absolute()).decode("utf-8", "backslashreplace")
        if name not in self.set_aside:
            self.set_aside[name] = reason
            log.warning("source %s: %s %s: %s", self._uid, name, what, reason)


def entry_of(path: Path) -> Entry:
    """Return how a file is identified: the same now and later, or it has changed."""
    stat = path.stat()
    return [str(path.absolute()), stat.st_size, stat.st_mtime_ns // 1_000]


def _is_whole(name: str) -> bool:
    """Tell whether a file has a name that is read; Spark ignores others too."""
    return not name.startswith((".", "_")) and not name.endswith((".tmp", "._COPYING_"))


def _fixed_part(path: str) -> Path:
    """Return the path up to the first part that is a pattern.

    >>> str(_fixed_part("in/2026-*/x"))
    'in'
    """
    if os.path.exists(path):  # noqa: PTH110 - a bracket in a name is no pattern
        return Path(path)
    parts = Path(path).parts
    fixed = next((n for n, p in enumerate(parts) if _WILDCARD.search(p)), len(parts))
    return Path(*parts[:fixed])
