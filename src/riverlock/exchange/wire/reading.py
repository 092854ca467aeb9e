"""Frames from a stream of bytes, received where they stay.

Bytes come into a buffer that is used again and again. Small payloads are copied out of
it; the rest of a large one is received into memory of its own, which columns then refer
to. Memory is taken only for what a checked header has announced.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from riverlock.exchange.wire.header import (
    HEADER_BYTES,
    BadFrameError,
    Header,
    checksum,
    unpack,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["FrameReader", "RawFrame"]

_SPACE: Final = 256 * 1024
# Payloads from this size on get memory of their own before they are complete.
_LARGE: Final = 32 * 1024


@dataclass(frozen=True, slots=True)
class RawFrame:
    """A header and its payload."""

    header: Header
    payload: pa.Buffer


class FrameReader:
    """Puts frames together; one for each connection."""

    def __init__(self, *, greatest: int, space: int = _SPACE) -> None:
        """Begin with nothing; ``greatest`` is how long a payload may be."""
        self._greatest = greatest
        self._space = memoryview(bytearray(max(space, 2 * HEADER_BYTES)))
        self._large = min(_LARGE, len(self._space) - HEADER_BYTES)
        # What has come and was not looked at: from ``start`` to ``end`` of the space.
        self._start = self._end = 0
        # A large payload of which some is missing.
        self._header: Header | None = None
        self._payload: pa.Buffer | None = None
        self._missing = memoryview(b"")

    def places(self) -> list[memoryview]:
        """Return where the next bytes are to be received, first place first."""
        if not self._missing:
            return [self._space[self._end :]]
        return [self._missing, self._space[self._end :]]

    @property
    def is_between_frames(self) -> bool:
        """Whether no frame has begun to come."""
        return self._header is None and self._start == self._end

    def received(self, count: int) -> Iterator[RawFrame]:
        """Take note that so many bytes were received; yield what is complete.

        Raises:
            BadFrameError: What came is no frame; nothing more can be read.
        """
        if self._missing:
            mine = min(count, len(self._missing))
            self._missing = self._missing[mine:]
            count -= mine
        self._end += count
        while (frame := self._next()) is not None:
            yield frame
        self._make_space()

    def _next(self) -> RawFrame | None:
        if self._header is None:
            if self._end - self._start < HEADER_BYTES:
                return None
            at = self._start + HEADER_BYTES
            self._header = unpack(
                self._space[self._start : at], greatest=self._greatest
            )
            self._start = at
        if self._payload is None and not self._begin(self._header):
            return None
        if self._missing:
            return None
        return self._whole(self._header)

    def _begin(self, header: Header) -> bool:
        """Give a payload its memory; tell whether that was done."""
        here = min(self._end - self._start, header.length)
        if here < header.length < self._large:
            return False
        self._payload = pa.allocate_buffer(header.length)
        memory = memoryview(self._payload).cast("B")
        memory[:here] = self._space[self._start : self._start + here]
        self._start += here
        self._missing = memory[here:]
        return True

    def _whole(self, header: Header) -> RawFrame:
        payload = self._payload
        self._header = self._payload = None
        if checksum([payload]) != header.payload_sum:
            raise BadFrameError(f"the payload of {header} differs from its checksum")
        return RawFrame(header, payload)

    def _make_space(self) -> None:
        """Move what is left to the front, if it is little."""
        if self._start == self._end:
            self._start = self._end = 0
        elif self._start:
            left = self._end - self._start
            self._space[:left] = self._space[self._start : self._end]
            self._start, self._end = 0, left
