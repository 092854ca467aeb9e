"""The few verbs that a store needs of the place it lives in.

Everything above (manifests, change files, channels) is written against ``Storage``,
so that a directory, an object store and a failing test double are interchangeable.
It knows nothing of epochs or formats.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from riverlock.core.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime
    from pathlib import Path

__all__ = [
    "Entry",
    "Reason",
    "Storage",
    "SupportsTemporaries",
    "checked_path",
    "checked_prefix",
]


class Reason(StrEnum):
    """Why storage refused; the ``reason`` of the ``StorageError``."""

    FULL = "no space left"
    DENIED = "permission denied"
    SYNC_FAILED = "the data could not be made durable"
    UNREACHABLE = "the storage could not be reached, or broke off"
    UNSUPPORTED = "the storage lacks a needed feature"
    INVALID_PATH = "the path cannot name a file here"
    BROKEN = "input/output error"

    @property
    def retryable(self) -> bool:
        """Whether doing it again later, under a new name, can succeed."""
        return self in {
            Reason.FULL,
            Reason.SYNC_FAILED,
            Reason.UNREACHABLE,
            Reason.BROKEN,
        }

    def error(self, operation: str, path: str) -> StorageError:
        """Make the error for this reason."""
        return StorageError(operation, path, self, retryable=self.retryable)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A file that exists.

    Attributes:
        path: Relative to the root, parts joined by ``/``.
        size: In bytes.
        mtime: When it was last written, in UTC, by the storage's clock.
    """

    path: str
    size: int
    mtime: datetime


class Storage(Protocol):
    """Files under one root, named by relative paths with ``/`` between parts.

    Order of calls: any; there is nothing to open or close.
    Durability: when ``put``, ``put_if_absent`` (either answer) or ``make_durable``
    returns, the file survives a power loss. Readers see a file whole or not at all.
    Idempotence: ``put``, ``delete`` and ``make_durable`` may be repeated.
    Retries: errors say whether a retry can help. After an error of ``put`` or
    ``put_if_absent`` the outcome is **unknown**: the file may be there. Read it back
    before deciding anything.
    Processes and threads: instances hold no open files, are safe to share between
    threads, and survive pickling and ``fork``.
    """

    @property
    def uri(self) -> str:
        """Where the root is; ``open_storage(uri)`` opens it again."""
        ...

    def get(self, path: str) -> bytes:
        """Return the content of a file.

        Raises:
            StorageNotFoundError: If there is none.
            StorageError: If it cannot be read.
        """
        ...

    def get_range(self, path: str, start: int, size: int) -> bytes:
        """Return so many bytes of a file; fewer if it ends before.

        Raises:
            StorageNotFoundError: If there is none.
            StorageError: If it cannot be read.
        """
        ...

    def head(self, path: str) -> Entry | None:
        """Describe a file without reading it; None if there is none.

        Raises:
            StorageError: If the storage cannot tell.
        """
        ...

    def exists(self, path: str) -> bool:
        """Tell whether there is a file of that name.

        Raises:
            StorageError: If the storage cannot tell.
        """
        ...

    def list(self, prefix: str = "") -> Iterator[Entry]:
        """Yield every file below the directory ``prefix``, sorted by path.

        The prefix is a whole directory name: ``"a"`` covers ``a/b``, not ``ab``; the
        empty one covers all. A directory that does not exist is empty.

        Raises:
            StorageError: If it cannot be listed.
        """
        ...

    def put(self, path: str, data: bytes) -> None:
        """Write a file, replacing any other at once.

        Raises:
            StorageError: If it cannot be written; the old file, or none, remains, or
                the new one is there.
        """
        ...

    def put_if_absent(self, path: str, data: bytes) -> bool:
        """Write a file unless there is one; True if it was this call that wrote it.

        Of any number of concurrent callers exactly one gets True. On False the file
        that is there is whole and durable.

        Raises:
            StorageError: If the outcome is unknown: read the file back.
        """
        ...

    def delete(self, path: str) -> None:
        """Remove a file; nothing happens if there is none.

        Raises:
            StorageError: If it cannot be removed.
        """
        ...

    def local_path(self, path: str, *, for_writing: bool = False) -> Path | None:
        """Return the file's path on this machine, or None if it has none.

        Lets large files be written and read without a copy in memory. With
        ``for_writing`` its directories are made first. A file written there counts
        only after ``make_durable``.

        Raises:
            StorageError: If the directories cannot be made.
        """
        ...

    def make_durable(self, path: str) -> None:
        """Sync a file that was written through ``local_path``, and its directory.

        After an error the file must be abandoned and written anew under another
        name: a second fsync may report success for data that is lost.

        Raises:
            StorageNotFoundError: If there is no such file.
            StorageError: If it could not be synced.
        """
        ...


@runtime_checkable
class SupportsTemporaries(Protocol):
    """Storage that writes under temporary names first, which a crash leaves behind."""

    def forget_temporaries(self, before: datetime) -> int:
        """Remove what was last written before an instant; return how many files.

        A writer that is still at it fails, and writes nothing.

        Raises:
            StorageError: If they cannot be listed or removed.
        """
        ...


def checked_path(operation: str, path: str) -> str:
    """Return the path if it names a file below the root and nothing else.

    Raises:
        StorageError: If it is empty, absolute, has empty, ``.`` or ``..`` parts, a
            backslash or a control character, or begins with the reserved ``.tmp``.
    """
    parts = path.split("/")
    if (
        any(part in {"", ".", ".."} for part in parts)
        or parts[0] == ".tmp"
        or "\\" in path
        or any(ord(char) < 32 or ord(char) == 127 for char in path)
    ):
        raise Reason.INVALID_PATH.error(operation, repr(path))
    return path


def checked_prefix(path: str) -> str:
    """Return the directory without a trailing slash; the empty one is the root.

    Raises:
        StorageError: As for ``checked_path``.
    """
    bare = path.removesuffix("/")
    return checked_path("list", bare) if bare else bare
