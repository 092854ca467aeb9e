"""Files in the memory of this process: for tests that need no disk."""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from riverlock.core.errors import StorageNotFoundError
from riverlock.storage.base import Entry, checked_path, checked_prefix

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["MemoryStorage"]


class MemoryStorage:
    """Keeps files as long as it is kept itself; nothing survives the process."""

    def __init__(self) -> None:
        """Begin empty."""
        self._files: dict[str, tuple[bytes, datetime]] = {}
        self._lock = threading.Lock()

    @property
    def uri(self) -> str:
        """A name for messages; nothing can be opened by it."""
        return "memory:"

    def get(self, path: str) -> bytes:
        """Return the content of a file."""
        return self._file("read", path)[0]

    def get_range(self, path: str, start: int, size: int) -> bytes:
        """Return so many bytes of a file; fewer if it ends before."""
        return self.get(path)[start : start + size]

    def head(self, path: str) -> Entry | None:
        """Describe a file without reading it; None if there is none."""
        found = self._files.get(checked_path("read", path))
        if found is None:
            return None
        return Entry(path=path, size=len(found[0]), mtime=found[1])

    def exists(self, path: str) -> bool:
        """Tell whether there is a file of that name."""
        return checked_path("read", path) in self._files

    def list(self, prefix: str = "") -> Iterator[Entry]:
        """Yield every file below the directory ``prefix``, sorted by path."""
        folder = checked_prefix(prefix)
        with self._lock:
            files = dict(self._files)
        for path in sorted(files):
            if not folder or path.startswith(f"{folder}/"):
                data, at = files[path]
                yield Entry(path=path, size=len(data), mtime=at)

    def put(self, path: str, data: bytes) -> None:
        """Write a file, replacing any other at once."""
        with self._lock:
            self._files[checked_path("write", path)] = bytes(data), datetime.now(UTC)

    def put_if_absent(self, path: str, data: bytes) -> bool:
        """Write a file unless there is one; True if it was this call that wrote it."""
        with self._lock:
            if checked_path("write", path) in self._files:
                return False
            self._files[path] = bytes(data), datetime.now(UTC)
            return True

    def delete(self, path: str) -> None:
        """Remove a file; nothing happens if there is none."""
        with self._lock:
            self._files.pop(checked_path("delete", path), None)

    def local_path(self, path: str, *, for_writing: bool = False) -> Path | None:
        """Return None: there are no paths."""
        checked_path("write" if for_writing else "read", path)
        return None

    def make_durable(self, path: str) -> None:
        """See that the file is there: it is as durable as it will be."""
        self._file("sync", path)

    def _file(self, operation: str, path: str) -> tuple[bytes, datetime]:
        found = self._files.get(checked_path(operation, path))
        if found is None:
            raise StorageNotFoundError(path)
        return found
