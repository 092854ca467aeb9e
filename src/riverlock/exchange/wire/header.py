"""The forty bytes before each payload.

| bytes | what |
|---|---|
| 4 | ``RLX1``: what it is, and the version of all that follows |
| 1, 1, 2 | kind, flags, edge (of a message: the kind that its sender gave it) |
| 4 | length of the payload |
| 4 | CRC-32 of the payload, of its first 4,096 bytes if it is longer |
| 8, 8 | epoch, turn |
| 4 | count of rows, or of frames |
| 4 | CRC-32 of the header up to here |

Little-endian. The checksums find what is no frame, or begins at the wrong place, before
any length in it is believed. That long columns arrive as they were sent is left to what
carries them: the memory of the kernel, or TLS.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from enum import IntEnum, unique
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = [
    "CHECKED",
    "HEADER_BYTES",
    "MAGIC",
    "BadFrameError",
    "Header",
    "Kind",
    "checksum",
    "pack",
    "unpack",
]

MAGIC: Final = b"RLX1"
CHECKED: Final = 4096
_HEADER: Final = struct.Struct("<4sBBHIIqqII")
HEADER_BYTES: Final = _HEADER.size
_CRC_AT: Final = HEADER_BYTES - 4


class BadFrameError(Exception):
    """What came is no frame of ours; the connection is of no use any more."""


@unique
class Kind(IntEnum):
    """What a frame is."""

    SCHEMA = 1
    ROWS = 2
    MARKER = 3
    CREDIT = 4
    CANCEL = 5
    GOODBYE = 6
    MESSAGE = 7
    PING = 8
    PONG = 9


_KINDS: Final = {kind.value: kind for kind in Kind}


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """What the header of a frame says; kinds use the fields that they need."""

    kind: Kind
    flags: int = 0
    edge: int = 0
    length: int = 0
    payload_sum: int = 0
    epoch: int = 0
    turn: int = 0
    count: int = 0


def checksum(payload: Iterable[object]) -> int:
    """Return the checksum of a payload that is in several buffers."""
    found, left = 0, CHECKED
    for part in payload:
        view = memoryview(part).cast("B")[:left]  # type: ignore[arg-type]
        found = zlib.crc32(view, found)
        left -= len(view)
        if not left:
            break
    return found


def pack(header: Header, *, length: int, payload_sum: int) -> bytes:
    """Return the header of a payload as bytes."""
    packed = bytearray(
        _HEADER.pack(
            MAGIC,
            header.kind,
            header.flags,
            header.edge,
            length,
            payload_sum,
            header.epoch,
            header.turn,
            header.count,
            0,
        )
    )
    packed[_CRC_AT:] = zlib.crc32(packed[:_CRC_AT]).to_bytes(4, "little")
    return bytes(packed)


def unpack(view: memoryview, *, greatest: int) -> Header:
    """Read a header; ``greatest`` is how long a payload may be.

    Raises:
        BadFrameError: It is none, or of another version, or damaged, or too long.
    """
    magic, kind, flags, edge, length, payload_sum, epoch, turn, count, found = (
        _HEADER.unpack(view)
    )
    if magic != MAGIC:
        what = "another version" if magic[:3] == MAGIC[:3] else "no frame"
        raise BadFrameError(f"expected {MAGIC!r}, found {magic!r}: {what}")
    if found != zlib.crc32(view[:_CRC_AT]):
        raise BadFrameError("the header differs from its checksum")
    if kind not in _KINDS:
        raise BadFrameError(f"there is no kind {kind}")
    if length > greatest:
        raise BadFrameError(f"a payload of {length} bytes; at most {greatest} may come")
    return Header(
        kind=_KINDS[kind],
        flags=flags,
        edge=edge,
        length=length,
        payload_sum=payload_sum,
        epoch=epoch,
        turn=turn,
        count=count,
    )
