"""Errors of a store: its storage, and the snapshots in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from riverlock.core.errors.root import RiverlockError

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = [
    "SnapshotAbandonedError",
    "SnapshotCorruptedError",
    "SnapshotError",
    "SnapshotNotFoundError",
    "StorageError",
    "StorageNotFoundError",
    "UnsupportedFormatError",
]


class StorageError(RiverlockError, OSError):
    """The store's storage refused; ``retryable`` says whether waiting can help."""

    code = "STORAGE"
    exit_code = 3
    operation: str
    path: str
    reason: str
    retryable: bool

    def __init__(
        self, operation: str, path: str, reason: str, *, retryable: bool
    ) -> None:
        """Name the operation, the path and the reason."""
        super().__init__(
            f"could not {operation} {path}: {reason}",
            operation=operation,
            path=path,
            reason=reason,
            retryable=retryable,
        )


class StorageNotFoundError(StorageError):
    """There is no object at that path."""

    code = "STORAGE_NOT_FOUND"

    def __init__(self, path: str) -> None:
        """Name the path."""
        super().__init__("read", path, "no such object", retryable=False)


class SnapshotError(RiverlockError):
    """A snapshot cannot be used."""

    code = "SNAPSHOT"
    exit_code = 3


class SnapshotNotFoundError(SnapshotError):
    """There is no such epoch, operator or name in the store."""

    code = "SNAPSHOT_NOT_FOUND"
    what: str
    store: str
    available: str

    def __init__(self, what: str, *, store: str, available: str) -> None:
        """Name what was asked for and what there is.

        Args:
            what: What was asked for.
            store: Where.
            available: What the store has instead, to follow on that word.
        """
        super().__init__(
            f"could not find {what} in {store}, which has {available}",
            what=what,
            store=store,
            available=available,
        )

    @classmethod
    def among(
        cls, what: str, *, store: str, kind: str, names: Iterable[str]
    ) -> SnapshotNotFoundError:
        """Return the error for an unknown name, with the known ones."""
        known = list(names)
        several = "s" if len(known) > 1 else ""
        listed = f"{kind}{several} {', '.join(known)}" if known else f"no {kind}"
        return cls(what, store=store, available=listed)


class SnapshotAbandonedError(SnapshotError):
    """Not all regions of a flow took part in a snapshot in time."""

    code = "SNAPSHOT_ABANDONED"
    name: str
    store: str
    why: str

    def __init__(self, name: str, *, store: str, why: str) -> None:
        """Name the snapshot and who did not answer."""
        super().__init__(
            f"snapshot {name!r} of {store} was abandoned: {why}",
            hint="the flow goes on; see `riverlock status` for what holds the region"
            " up, then ask again",
            name=name,
            store=store,
            why=why,
        )


class SnapshotCorruptedError(SnapshotError):
    """A referenced file is missing or differs from its checksum."""

    code = "SNAPSHOT_CORRUPTED"
    path: str
    expected: str
    found: str

    def __init__(self, path: str, *, expected: str, found: str) -> None:
        """Name the file, what the manifest says of it and what is there."""
        super().__init__(
            f"could not read {path}: expected {expected}, got {found}",
            hint="run 'riverlock verify' to see which epochs are still whole;"
            " nothing was overwritten",
            path=path,
            expected=expected,
            found=found,
        )


class UnsupportedFormatError(SnapshotError):
    """The store was written by a newer library."""

    code = "UNSUPPORTED_FORMAT"
    path: str
    supported: int
    found: object

    def __init__(self, path: str, *, supported: int, found: object) -> None:
        """Name the versions."""
        super().__init__(
            f"could not read {path}: this version reads store format {supported},"
            f" got {found}",
            hint="install the riverlock version that wrote it, or a newer one",
            path=path,
            supported=supported,
            found=found,
        )
