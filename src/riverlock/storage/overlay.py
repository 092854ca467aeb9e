"""A store that can be read and not be harmed: writes go to another place."""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import TYPE_CHECKING

from riverlock.core.errors import StorageNotFoundError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from riverlock.storage.base import Entry, Storage

__all__ = ["OverlayStorage"]


@dataclass(frozen=True, kw_only=True)
class OverlayStorage:
    """Storage over another one, which is only read.

    What is below cannot be deleted; a file of the same name on top hides it.

    Attributes:
        below: What is read, and never written.
        top: Where everything goes that is written.
    """

    below: Storage
    top: Storage

    @property
    def uri(self) -> str:
        """Where the files are that were written here."""
        return self.top.uri

    def get(self, path: str) -> bytes:
        """Return the content of a file, the upper one if there are two."""
        try:
            return self.top.get(path)
        except StorageNotFoundError:
            return self.below.get(path)

    def get_range(self, path: str, start: int, size: int) -> bytes:
        """Return a part of a file, of the upper one if there are two."""
        try:
            return self.top.get_range(path, start, size)
        except StorageNotFoundError:
            return self.below.get_range(path, start, size)

    def head(self, path: str) -> Entry | None:
        """Describe a file."""
        return self.top.head(path) or self.below.head(path)

    def exists(self, path: str) -> bool:
        """Tell whether there is a file of that name in either place."""
        return self.top.exists(path) or self.below.exists(path)

    def list(self, prefix: str = "") -> Iterator[Entry]:
        """Yield the files of both places, sorted by path."""
        both = heapq.merge(
            self.top.list(prefix), self.below.list(prefix), key=lambda e: e.path
        )
        last = None
        for entry in both:  # the upper one comes first
            if entry.path != last:
                yield entry
            last = entry.path

    def put(self, path: str, data: bytes) -> None:
        """Write a file on top."""
        self.top.put(path, data)

    def put_if_absent(self, path: str, data: bytes) -> bool:
        """Write a file on top unless there is one in either place."""
        return not self.below.exists(path) and self.top.put_if_absent(path, data)

    def delete(self, path: str) -> None:
        """Remove a file that was written here; what is below stays."""
        self.top.delete(path)

    def local_path(self, path: str, *, for_writing: bool = False) -> Path | None:
        """Return the file's path on this machine, or None if it has none."""
        if for_writing or self.top.exists(path):
            return self.top.local_path(path, for_writing=for_writing)
        return self.below.local_path(path)

    def make_durable(self, path: str) -> None:
        """Sync a file that was written here; what is below is no concern of ours."""
        if self.top.exists(path):
            self.top.make_durable(path)
