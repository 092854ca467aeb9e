"""Storage in a directory of this machine or of a shared file system.

A file is written under a temporary name in ``.tmp/`` of the same root, synced, and
only then given its name: by ``rename`` (put) or by ``link`` (put if absent), whose
refusal to replace is what makes exactly one caller win. The directory is synced last.
The steps that can fail for reasons of the hardware are methods of their own, so that
tests fail them in a subclass.
"""

from __future__ import annotations

import contextlib
import errno
import os
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from riverlock.core import faults
from riverlock.core.errors import StorageError, StorageNotFoundError
from riverlock.core.times import nearest
from riverlock.storage.base import Entry, Reason, checked_path, checked_prefix

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

__all__ = ["LocalStorage"]

TEMPORARY: Final = ".tmp"
_REASONS: Final = {
    errno.ENOSPC: Reason.FULL,
    errno.EDQUOT: Reason.FULL,
    errno.EACCES: Reason.DENIED,
    errno.EPERM: Reason.DENIED,
    errno.EROFS: Reason.DENIED,
    errno.ENOTSUP: Reason.UNSUPPORTED,
    errno.ENOSYS: Reason.UNSUPPORTED,
    errno.EXDEV: Reason.UNSUPPORTED,
    errno.EEXIST: Reason.INVALID_PATH,
    errno.ENAMETOOLONG: Reason.INVALID_PATH,
    errno.ENOTDIR: Reason.INVALID_PATH,
    errno.EISDIR: Reason.INVALID_PATH,
    errno.ESTALE: Reason.UNREACHABLE,
    errno.ETIMEDOUT: Reason.UNREACHABLE,
}


@contextlib.contextmanager
def _translated(operation: str, path: str) -> Iterator[None]:
    """Turn what the system says into our errors; ours, which are OSErrors, pass."""
    try:
        yield
    except StorageError:
        raise
    except OSError as cause:
        reason = _REASONS.get(cause.errno or 0, Reason.BROKEN)
        raise reason.error(operation, path) from cause


@contextlib.contextmanager
def _sync_failures(path: str) -> Iterator[None]:
    """Any failure to sync, whatever its number, means that the data may be lost."""
    try:
        yield
    except OSError as cause:
        full = cause.errno in {errno.ENOSPC, errno.EDQUOT}
        reason = Reason.FULL if full else Reason.SYNC_FAILED
        raise reason.error("sync", path) from cause


def _raise_unless_gone(cause: OSError) -> None:
    if not isinstance(cause, FileNotFoundError | NotADirectoryError):
        raise cause


def _link(temporary: Path, final: Path) -> bool:
    try:
        os.link(temporary, final)
    except FileExistsError:
        # Over NFS the answer to a link that worked can get lost, and its repetition
        # by the client finds the file there: the count of links knows better.
        return temporary.stat().st_nlink > 1
    return True


@dataclass(frozen=True)
class LocalStorage:
    """The files below one directory, which is made when first written to.

    See ``Storage`` for the promises. The file system must have hard links, as every
    local one for Linux and macOS and NFS have.

    Attributes:
        root: The directory, absolute.
    """

    root: Path

    def __post_init__(self) -> None:
        """Fix the root now: a later ``chdir`` must not move the store."""
        object.__setattr__(self, "root", Path(os.path.realpath(self.root)))

    @property
    def uri(self) -> str:
        """Where the root is, as a ``file:`` URI."""
        return self.root.as_uri()

    def get(self, path: str) -> bytes:
        """Return the content of a file."""
        file = self._resolve("read", path)
        with _translated("read", path):
            try:
                return file.read_bytes()
            except (FileNotFoundError, NotADirectoryError) as cause:
                raise StorageNotFoundError(path) from cause

    def get_range(self, path: str, start: int, size: int) -> bytes:
        """Return so many bytes of a file; fewer if it ends before."""
        file = self._resolve("read", path)
        with _translated("read", path):
            try:
                with file.open("rb") as opened:
                    opened.seek(start)
                    return opened.read(size)
            except (FileNotFoundError, NotADirectoryError) as cause:
                raise StorageNotFoundError(path) from cause

    def head(self, path: str) -> Entry | None:
        """Describe a file; None if there is none."""
        file = self._resolve("describe", path)
        with _translated("describe", path):
            try:
                return None if file.is_dir() else self._entry(file)
            except (FileNotFoundError, NotADirectoryError):
                return None

    def exists(self, path: str) -> bool:
        """Tell whether there is a file of that name."""
        return self.head(path) is not None

    def list(self, prefix: str = "") -> Iterator[Entry]:
        """Yield every file below the directory, sorted by path."""
        bare = checked_prefix(prefix)
        top = self._resolve("list", bare) if bare else self.root
        with _translated("list", prefix):
            files = sorted(self._walk(top), key=self._relative)
        for file in files:
            # A file deleted since the walk does not exist, which is a right answer.
            with _translated("list", prefix), contextlib.suppress(FileNotFoundError):
                yield self._entry(file)

    def put(self, path: str, data: bytes) -> None:
        """Write a file, replacing any other at once."""
        final = self._resolve("put", path)
        with _translated("put", path):
            self._make_directory(final.parent)
            with self._temporary(path, data) as temporary:
                faults.hit("P3")
                temporary.replace(final)
            self._sync_directory(final.parent, path)

    def put_if_absent(self, path: str, data: bytes) -> bool:
        """Write a file unless there is one; True if it was this call that wrote it."""
        final = self._resolve("put", path)
        with _translated("put", path):
            self._make_directory(final.parent)
            with self._temporary(path, data) as temporary:
                faults.hit("P7")
                written = _link(temporary, final)
            # Also when we lost: the winner may not have come to this yet, and the
            # caller will act on the file that it finds.
            self._sync_directory(final.parent, path)
        return written

    def delete(self, path: str) -> None:
        """Remove a file; nothing happens if there is none."""
        file = self._resolve("delete", path)
        with _translated("delete", path), contextlib.suppress(NotADirectoryError):
            file.unlink(missing_ok=True)

    def local_path(self, path: str, *, for_writing: bool = False) -> Path | None:
        """Return the file's path on this machine."""
        file = self._resolve("open", path)
        if for_writing:
            with _translated("open", path):
                self._make_directory(file.parent)
        return file

    def make_durable(self, path: str) -> None:
        """Sync a file that was written through ``local_path``, and its directory."""
        file = self._resolve("sync", path)
        with _translated("sync", path):
            try:
                descriptor = os.open(file, os.O_RDONLY)
            except FileNotFoundError as cause:
                raise StorageNotFoundError(path) from cause
            try:
                with _sync_failures(path):
                    self._sync(descriptor)
            finally:
                os.close(descriptor)
            self._sync_directory(file.parent, path)

    def forget_temporaries(self, before: datetime) -> int:
        """Remove what crashed writers have left; return how many files."""
        gone = 0
        with _translated("sweep", TEMPORARY):
            for file in self._walk(self.root / TEMPORARY):
                with contextlib.suppress(FileNotFoundError):
                    if nearest(file.stat().st_mtime_ns // 1000) < before:
                        file.unlink()
                        gone += 1
        return gone

    # The steps that hardware can refuse; tests override them.

    def _write(self, descriptor: int, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(descriptor, rest) :]

    def _sync(self, descriptor: int) -> None:
        os.fsync(descriptor)

    def _resolve(self, operation: str, path: str) -> Path:
        file = self.root / checked_path(operation, path)
        # A symbolic link inside the root must not lead out of it.
        real = os.path.realpath(file.parent)
        if os.path.commonpath([real, self.root]) != str(self.root):
            raise Reason.INVALID_PATH.error(operation, repr(path))
        return file

    def _relative(self, file: Path) -> str:
        return file.relative_to(self.root).as_posix()

    def _entry(self, file: Path) -> Entry:
        stat = file.stat()
        return Entry(
            path=self._relative(file),
            size=stat.st_size,
            mtime=nearest(stat.st_mtime_ns // 1000),
        )

    def _walk(self, top: Path) -> Iterator[Path]:
        for directory, names, files in os.walk(top, onerror=_raise_unless_gone):
            if Path(directory) == self.root and TEMPORARY in names:
                names.remove(TEMPORARY)
            yield from (Path(directory, name) for name in files)

    @contextlib.contextmanager
    def _temporary(self, path: str, data: bytes) -> Iterator[Path]:
        """Yield a durable file with the data under a name that nobody reads.

        The directory keeps others out; the file has the mode of a plain new file,
        since that is what it will be.
        """
        directory = self.root / TEMPORARY
        directory.mkdir(mode=0o700, exist_ok=True)
        temporary = directory / uuid.uuid4().hex
        descriptor = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)
        try:
            try:
                self._write(descriptor, data)
                with _sync_failures(path):
                    self._sync(descriptor)
            finally:
                os.close(descriptor)
            yield temporary
        finally:
            # Gone after a rename; left to the sweeper if even this fails.
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)

    def _make_directory(self, directory: Path) -> None:
        """Make a directory and its parents, each durable in the one above it."""
        missing = []
        while not directory.is_dir():
            missing.append(directory)
            directory = directory.parent
        for each in reversed(missing):
            each.mkdir(exist_ok=True)
            self._sync_directory(each.parent, str(each))

    def _sync_directory(self, directory: Path, path: str) -> None:
        with _sync_failures(path):
            descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
            try:
                self._sync(descriptor)
            finally:
                os.close(descriptor)
