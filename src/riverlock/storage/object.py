"""Storage in an object store (S3, Google Cloud Storage, Azure), by obstore.

The deciding verb is the conditional put: the store itself refuses a second object of
a name. Such a put is never repeated behind the caller's back, since after a lost
answer the repetition would find our own object and report that another had won.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from riverlock.core.errors import (
    InvalidConfigError,
    RiverlockError,
    StorageNotFoundError,
)
from riverlock.storage.base import Entry, Reason, checked_path, checked_prefix

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path
    from types import ModuleType

__all__ = ["ObjectStorage"]


def _obstore() -> ModuleType:
    try:
        import obstore
        import obstore.store
    except ImportError as cause:
        raise InvalidConfigError(
            "an object store",
            expected="the package obstore",
            found="none installed",
            hint="install it with: pip install 'riverlock[object]'",
        ) from cause
    return obstore


@dataclass(frozen=True)
class ObjectStorage:
    """The objects below one URL; see ``Storage`` for the promises.

    An object is durable when the store has acknowledged it, so there is nothing to
    sync. Credentials come from the environment, as the store's own tools take them.

    Attributes:
        uri: For instance ``s3://bucket/path``.
        options: Settings of obstore's ``from_url``, such as ``endpoint``. They travel
            to Spark tasks, and are left out of ``repr`` as they may hold secrets.
    """

    uri: str
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def get(self, path: str) -> bytes:
        """Return the content of an object."""
        name = checked_path("read", path)
        with self._translated("read", path):
            try:
                return bytes(_obstore().get(self._store, name).bytes())
            except FileNotFoundError as cause:
                raise StorageNotFoundError(path) from cause

    def get_range(self, path: str, start: int, size: int) -> bytes:
        """Return so many bytes of an object; fewer if it ends before."""
        name = checked_path("read", path)
        with self._translated("read", path):
            try:
                found = _obstore().get_range(
                    self._store, name, start=start, length=size
                )
                return bytes(found)
            except FileNotFoundError as cause:
                raise StorageNotFoundError(path) from cause

    def head(self, path: str) -> Entry | None:
        """Describe an object; None if there is none."""
        name = checked_path("describe", path)
        with self._translated("describe", path):
            try:
                return _entry(_obstore().head(self._store, name))
            except FileNotFoundError:
                return None

    def exists(self, path: str) -> bool:
        """Tell whether there is an object of that name."""
        return self.head(path) is not None

    def list(self, prefix: str = "", *, after: str | None = None) -> Iterator[Entry]:
        """Yield every object below the directory, sorted by path.

        Args:
            prefix: The directory.
            after: Leave out, without asking for them, paths up to this one.
        """
        directory = checked_prefix(prefix)
        with self._translated("list", prefix):
            pages = _obstore().list(self._store, directory or None, offset=after)
            entries = [_entry(meta) for page in pages for meta in page]
        yield from sorted(entries, key=lambda entry: entry.path)

    def put(self, path: str, data: bytes) -> None:
        """Write an object, replacing any other at once."""
        name = checked_path("put", path)
        with self._translated("put", path):
            _obstore().put(self._store, name, data)

    def put_if_absent(self, path: str, data: bytes) -> bool:
        """Write an object unless there is one; True if this call wrote it."""
        name = checked_path("put", path)
        obstore = _obstore()
        with self._translated("put", path):
            try:
                # One request: a multipart upload is conditional only at its end.
                obstore.put(
                    self._store_without_retries,
                    name,
                    data,
                    mode="create",
                    use_multipart=False,
                )
            except obstore.exceptions.AlreadyExistsError:
                return False
        return True

    def copy(self, source: str, target: str) -> None:
        """Copy an object inside the store, replacing any other at once."""
        names = checked_path("copy", source), checked_path("copy", target)
        with self._translated("copy", source):
            try:
                _obstore().copy(self._store, *names)
            except FileNotFoundError as cause:
                raise StorageNotFoundError(source) from cause

    def delete(self, path: str) -> None:
        """Remove an object; nothing happens if there is none."""
        name = checked_path("delete", path)
        with self._translated("delete", path), contextlib.suppress(FileNotFoundError):
            _obstore().delete(self._store, name)

    def local_path(self, path: str, *, for_writing: bool = False) -> Path | None:
        """Return None: objects are not files of this machine."""
        del for_writing
        checked_path("open", path)
        return None

    def make_durable(self, path: str) -> None:
        """Do nothing but check: an acknowledged object is durable."""
        if not self.exists(path):
            raise StorageNotFoundError(path)

    # Made once per process: clients hold sockets and threads, which must cross
    # neither pickling nor fork.

    @cached_property
    def _store(self) -> Any:
        return self._open()

    @cached_property
    def _store_without_retries(self) -> Any:
        return self._open(retry_config={"max_retries": 0})

    def _open(self, **more: object) -> Any:
        store = _obstore().store
        try:
            if self.uri.startswith(("file:", "memory:")):
                return store.from_url(self.uri, **self.options)
            return store.from_url(self.uri, **{**self.options, **more})
        except Exception as cause:
            raise InvalidConfigError(
                f"the store {self.uri}",
                expected="a URL and settings that obstore takes",
                found=str(cause),
                hint="see obstore's documentation for the settings of each store",
            ) from cause

    def __getstate__(self) -> dict[str, Any]:
        """Pickle what describes the store, never its clients."""
        return {"uri": self.uri, "options": self.options}

    @contextlib.contextmanager
    def _translated(self, operation: str, path: str) -> Iterator[None]:
        """Turn what obstore raises into our errors; ours pass."""
        try:
            yield
        except RiverlockError:
            raise
        except Exception as cause:
            error = _reason(cause).error(operation, f"{self.uri}/{path}")
            raise error from cause


def _reason(cause: Exception) -> Reason:
    exceptions = _obstore().exceptions
    denied = (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError)
    if isinstance(cause, denied):
        return Reason.DENIED
    if isinstance(cause, (exceptions.NotSupportedError, NotImplementedError)):
        return Reason.UNSUPPORTED
    if isinstance(cause, exceptions.InvalidPathError):
        return Reason.INVALID_PATH
    return Reason.UNREACHABLE


def _entry(meta: Mapping[str, Any]) -> Entry:
    return Entry(path=meta["path"], size=meta["size"], mtime=meta["last_modified"])
