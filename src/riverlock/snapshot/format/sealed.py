"""JSON with its checksum: one flipped byte is noticed, never believed.

A sealed file has two lines: the record as JSON, then ``{"blake2b":"…"}`` over the bytes
of the first line. Readers without Riverlock may ignore the second line.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, TypeVar

import msgspec

from riverlock.core.errors import SnapshotCorruptedError
from riverlock.core.values.known_types import known

if TYPE_CHECKING:
    from riverlock.snapshot.format.records import Record

__all__ = ["checksum", "read_hint", "seal", "unseal"]

R = TypeVar("R", bound="Record")
H = TypeVar("H", bound=msgspec.Struct)


def checksum(data: bytes | memoryview) -> str:
    """Return the content checksum used everywhere in the store."""
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def seal(record: msgspec.Struct) -> bytes:
    """Return the sealed bytes of a record."""
    body = msgspec.json.encode(record, order="deterministic")
    return body + b'\n{"blake2b":"' + checksum(body).encode() + b'"}\n'


def unseal(data: bytes, kind: type[R], *, path: str) -> R:
    """Return the record in sealed bytes.

    Raises:
        SnapshotCorruptedError: The checksum differs or the record cannot be read.
    """
    body, _, trailer = data.partition(b"\n")
    expected = b'{"blake2b":"' + checksum(body).encode() + b'"}\n'
    if trailer != expected:
        raise SnapshotCorruptedError(
            path,
            expected=f"checksum line {trailer[:60].decode(errors='replace').strip()}",
            found=f"blake2b {checksum(body)} over {len(body)} bytes",
        )
    try:
        return msgspec.json.decode(body, type=known(kind))
    except msgspec.MsgspecError as error:
        raise SnapshotCorruptedError(
            path, expected=f"a {kind.__name__} record", found=str(error)
        ) from error


def read_hint(data: bytes, kind: type[H]) -> H | None:
    """Return what an overwritten hint says; None if it is damaged.

    Hints of older writers have no second line.
    """
    body, newline, trailer = data.partition(b"\n")
    if newline and trailer != b'{"blake2b":"' + checksum(body).encode() + b'"}\n':
        return None
    try:
        return msgspec.json.decode(body, type=known(kind))
    except msgspec.MsgspecError:
        return None
