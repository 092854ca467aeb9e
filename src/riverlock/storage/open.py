"""Opening the storage that a user named: a path or a URI."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

from riverlock.core.errors import InvalidConfigError
from riverlock.storage.local import LocalStorage

if TYPE_CHECKING:
    from riverlock.storage.base import Storage

__all__ = ["open_storage"]

# What obstore opens with conditional puts; s3a is how Spark spells s3.
_OBJECT_STORES: Final = frozenset({"s3", "s3a", "gs", "az", "abfs", "abfss", "azure"})
_SCHEME: Final = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*):(?=/)")

_EXPECTED = "a directory, file:///..., s3://..., gs://... or az://..."


def open_storage(where: str | os.PathLike[str]) -> Storage:
    """Return the storage at a path, a ``file:`` URI or an object store's URL.

    Nothing is read or made yet.

    Raises:
        InvalidConfigError: If the kind of storage is unknown.
    """
    if not isinstance(where, str | os.PathLike):
        raise InvalidConfigError("a store", expected=_EXPECTED, found=repr(where))
    text = os.fspath(where)
    match = _SCHEME.match(text)
    if match is None:
        if not text:
            raise _unknown(text, "an empty path")
        return LocalStorage(Path(text).expanduser())
    scheme = match["scheme"].lower()
    if scheme == "file":
        return LocalStorage(_file_path(text))
    if scheme in _OBJECT_STORES:
        from riverlock.storage.object import ObjectStorage

        rest = text[match.end() :].rstrip("/")
        return ObjectStorage(f"{'s3' if scheme == 's3a' else scheme}:{rest}")
    raise _unknown(text, f"the scheme {scheme!r}")


def _file_path(uri: str) -> Path:
    parts = urlsplit(uri)
    if parts.netloc not in {"", "localhost"}:
        raise _unknown(uri, f"the host {parts.netloc!r} in a file: URI")
    return Path(unquote(parts.path))


def _unknown(text: str, found: str) -> InvalidConfigError:
    return InvalidConfigError(
        f"the store {text!r}",
        expected=_EXPECTED,
        found=found,
        hint="on a cluster it must be storage that every machine reaches",
    )
