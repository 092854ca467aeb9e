"""Frames of the protocol as bytes, and back; one pair for each connection."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, assert_never

from riverlock.core.errors import InternalError
from riverlock.exchange.protocol.frames import (
    Cancel,
    Credit,
    Frame,
    Goodbye,
    Marker,
    Rows,
)
from riverlock.exchange.seam import Message
from riverlock.exchange.wire.columns import (
    Bytes,
    EncodedRows,
    ReceivedRows,
    read_schema,
)
from riverlock.exchange.wire.header import (
    BadFrameError,
    Header,
    Kind,
    checksum,
    pack,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from riverlock.exchange.wire.reading import RawFrame

__all__ = [
    "Decoder",
    "Encoder",
    "is_internal",
    "message_of",
    "packed_message",
    "packed_sign",
]

_COUNTS: Final = struct.Struct("<QQ")  # frames and rows of a marker
_BYTES: Final = struct.Struct("<Q")  # the total of credit
_IS_STREAM: Final = 1  # a flag of rows
_IS_INTERNAL: Final = 1  # a flag of messages


class Encoder:
    """Makes bytes of frames; sends the schema of rows ahead whenever it changes."""

    def __init__(self) -> None:
        """Begin with no schema sent."""
        self._told: dict[int, pa.Schema] = {}

    def encode(self, frame: Frame) -> list[Bytes]:
        """Return a frame as buffers to be sent one after the other."""
        match frame:
            case Rows():
                return self._rows(frame)
            case Marker():
                header = Header(
                    kind=Kind.MARKER,
                    edge=frame.edge,
                    epoch=frame.epoch,
                    turn=frame.turn,
                )
                return _framed(header, [_COUNTS.pack(frame.frames, frame.rows)])
            case Credit():
                header = Header(
                    kind=Kind.CREDIT,
                    edge=frame.edge,
                    epoch=frame.epoch,
                    turn=frame.turn,
                )
                return _framed(header, [_BYTES.pack(frame.bytes)])
            case Cancel():
                header = Header(kind=Kind.CANCEL, epoch=frame.epoch, turn=frame.turn)
                return _framed(header, [])
            case Goodbye():
                return _framed(Header(kind=Kind.GOODBYE), [])
            case _:
                assert_never(frame)

    def _rows(self, frame: Rows) -> list[Bytes]:
        content = frame.content
        if not isinstance(content, EncodedRows):
            raise InternalError(f"rows are sent as {type(content).__name__}")
        header = Header(
            kind=Kind.ROWS,
            flags=_IS_STREAM if content.is_stream else 0,
            edge=frame.edge,
            epoch=frame.epoch,
            turn=frame.turn,
            count=frame.count,
        )
        found = _framed(header, list(content.parts))
        if self._told.get(frame.edge) is not content.schema:
            self._told[frame.edge] = content.schema
            schema = Header(kind=Kind.SCHEMA, edge=frame.edge)
            found = _framed(schema, [content.schema.serialize()]) + found
        return found


class Decoder:
    """Makes frames of bytes; keeps the schemas that came."""

    def __init__(self) -> None:
        """Begin with no schema known."""
        self._schemas: dict[int, pa.Schema] = {}

    def decode(self, raw: RawFrame) -> Frame | None:
        """Return a frame; None: it was a schema.

        Raises:
            BadFrameError: It is damaged, or comes at the wrong place.
        """
        header, payload = raw.header, raw.payload
        edge, epoch, turn = header.edge, header.epoch, header.turn
        match header.kind:
            case Kind.ROWS:
                return self._rows(header, payload)
            case Kind.SCHEMA:
                self._schemas[edge] = read_schema(payload)
                return None
            case Kind.MARKER:
                frames, rows = _unpacked(_COUNTS, payload)
                return Marker(
                    edge=edge, epoch=epoch, turn=turn, frames=frames, rows=rows
                )
            case Kind.CREDIT:
                (total,) = _unpacked(_BYTES, payload)
                return Credit(edge=edge, epoch=epoch, turn=turn, bytes=total)
            case Kind.CANCEL:
                return Cancel(epoch=epoch, turn=turn)
            case Kind.GOODBYE:
                return Goodbye()
            case Kind.MESSAGE | Kind.PING | Kind.PONG:
                raise BadFrameError(f"{header.kind.name} came from a peer")
            case _:
                assert_never(header.kind)

    def _rows(self, header: Header, payload: pa.Buffer) -> Rows:
        schema = self._schemas.get(header.edge)
        if schema is None:
            raise BadFrameError(f"rows of edge {header.edge} came before their schema")
        content = ReceivedRows(
            schema=schema,
            payload=payload,
            is_stream=bool(header.flags & _IS_STREAM),
            count=header.count,
        )
        return Rows(
            edge=header.edge,
            epoch=header.epoch,
            turn=header.turn,
            size=header.length,
            count=header.count,
            content=content,
        )


def packed_message(message: Message, *, internal: bool = False) -> list[Bytes]:
    """Return a message of driver or task as buffers; of the engine, or of ours."""
    flags = _IS_INTERNAL if internal else 0
    header = Header(kind=Kind.MESSAGE, flags=flags, edge=message.kind)
    return _framed(header, [message.payload])


def is_internal(raw: RawFrame) -> bool:
    """Tell whether a message is ours, and not the engine's."""
    return bool(raw.header.flags & _IS_INTERNAL)


def packed_sign(kind: Kind) -> list[Bytes]:
    """Return a frame that says nothing but what it is."""
    return _framed(Header(kind=kind), [])


def message_of(raw: RawFrame) -> Message:
    """Return a message between driver and task."""
    return Message(raw.header.edge, raw.payload.to_pybytes())


def _framed(header: Header, payload: list[Bytes]) -> list[Bytes]:
    length = sum(memoryview(part).nbytes for part in payload)
    return [pack(header, length=length, payload_sum=checksum(payload)), *payload]


def _unpacked(form: struct.Struct, payload: pa.Buffer) -> tuple[int, ...]:
    if payload.size != form.size:
        raise BadFrameError(f"{payload.size} bytes where {form.size} belong")
    found: tuple[int, ...] = form.unpack(payload)
    return found
