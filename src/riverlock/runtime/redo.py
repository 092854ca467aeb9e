"""Change sets as local files: bytes that a working copy takes without decoding.

They are caches like the copy itself: damaged, lost or of another layout means none.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from riverlock.snapshot.sealed import checksum
from riverlock.state.store import Changes

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["forget_recent", "read_changes", "write_changes"]

_CHECKSUM = 32
_decode = msgspec.msgpack.Decoder(Changes).decode
# What this process wrote last, by path: in the next epoch the same worker is often the
# one to read it.
_RECENT: dict[Path, tuple[str, Changes]] = {}
_MAX_RECENT = 4


def write_changes(path: Path, changes: Changes, schema: str) -> None:
    """Keep a change set; losing it costs time, nothing else."""
    body = schema.encode() + msgspec.msgpack.encode(changes)
    temporary = path.with_suffix(f".{os.getpid()}")
    with suppress(OSError):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with temporary.open("wb") as file:
            file.write(checksum(body).encode())
            file.write(body)
        temporary.replace(path)
        _RECENT[path] = (schema, changes)
    while len(_RECENT) > _MAX_RECENT:
        del _RECENT[next(iter(_RECENT))]


def forget_recent() -> None:
    """Know no more than any other process does."""
    _RECENT.clear()


def read_changes(path: Path, schema: str) -> Changes | None:
    """Return a change set, if it is there, whole and of this layout."""
    known = _RECENT.pop(path, None)
    if known is not None and known[0] == schema:
        return known[1]
    try:
        raw = path.read_bytes()
    except OSError:
        return None
    body, head = raw[_CHECKSUM:], schema.encode()
    # The bytes are of the layout that wrote them; the code may have changed.
    if checksum(body).encode() != raw[:_CHECKSUM] or body[: len(head)] != head:
        return None
    return _decode(body[len(head) :])
