"""Columns as the payload of a frame: an Arrow IPC message, without copying.

The schema goes ahead in a frame of its own, once per edge and connection and whenever
it changes. Of columns with dictionaries, which may differ from batch to batch, each
frame is a whole stream.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

import pyarrow as pa

from riverlock.core.errors import InvalidConfigError
from riverlock.exchange.wire.header import BadFrameError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from riverlock.exchange.limits import Limits

__all__ = ["Bytes", "ColumnWriter", "EncodedRows", "ReceivedRows", "read_schema"]

Bytes: TypeAlias = bytes | bytearray | memoryview | pa.Buffer
# Below this a copy into one buffer is cheaper than many small ones.
_GATHERED: Final = 16 * 1024


@dataclass(frozen=True, slots=True)
class EncodedRows:
    """Rows on their way out; ``parts`` still refer to the columns they are of."""

    schema: pa.Schema
    parts: tuple[Bytes, ...]
    size: int
    is_stream: bool


@dataclass(frozen=True, slots=True)
class ReceivedRows:
    """Rows that have come; the batch read from them refers to ``payload``."""

    schema: pa.Schema
    payload: pa.Buffer
    is_stream: bool
    count: int

    def read(self) -> pa.RecordBatch:
        """Return the rows.

        Raises:
            BadFrameError: They are damaged.
        """
        try:
            if self.is_stream:
                batch = pa.ipc.open_stream(self.payload).read_next_batch()
            else:
                batch = pa.ipc.read_record_batch(self.payload, self.schema)
            batch.validate()
        except (pa.ArrowException, EOFError, OSError, StopIteration) as error:
            raise BadFrameError(f"rows cannot be read: {error}") from error
        if batch.num_rows != self.count:
            raise BadFrameError(
                f"{batch.num_rows} rows came, {self.count} were announced"
            )
        return batch


def read_schema(payload: Bytes) -> pa.Schema:
    """Return a schema that has come.

    Raises:
        BadFrameError: It is damaged.
    """
    try:
        return pa.ipc.read_schema(pa.py_buffer(payload))
    except (pa.ArrowException, EOFError, OSError) as error:
        raise BadFrameError(f"a schema cannot be read: {error}") from error


class _Parts:
    """A file that keeps the buffers written to it, as they are."""

    closed = False

    def __init__(self) -> None:
        self.parts: list[Bytes] = []

    def write(self, part: Bytes) -> None:
        self.parts.append(part)

    def flush(self) -> None:
        pass

    def close(self) -> None:
        pass

    def readable(self) -> bool:
        return False

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False


class ColumnWriter:
    """Encodes the rows of one edge, from any thread."""

    def __init__(self, edge: int, limits: Limits) -> None:
        """Begin without a schema: the first rows tell it."""
        self._edge = edge
        self._limits = limits
        self._lock = threading.Lock()
        self._schema: pa.Schema | None = None
        self._sink = _Parts()
        self._writer: pa.RecordBatchStreamWriter | None = None

    def encode(self, rows: pa.RecordBatch) -> Iterator[tuple[EncodedRows, int]]:
        """Yield rows, encoded in frames of bounded size, and how many each has.

        Raises:
            InvalidConfigError: A single row is larger than a frame may be.
        """
        most = max(1, self._limits.frame_bytes * rows.num_rows // max(1, rows.nbytes))
        for at in range(0, rows.num_rows, most):
            part = rows.slice(at, most)
            with self._lock:
                encoded = self._encode(part)
            if encoded.size <= self._limits.greatest_frame_bytes:
                yield encoded, part.num_rows
            elif part.num_rows > 1:
                half = part.num_rows // 2
                yield from self.encode(part.slice(0, half))
                yield from self.encode(part.slice(half))
            else:
                raise InvalidConfigError(
                    f"a row that goes to stage {self._edge}",
                    expected=f"at most {self._limits.greatest_frame_bytes} bytes",
                    found=f"{encoded.size}",
                )

    def _begin(self, rows: pa.RecordBatch) -> None:
        self._schema, self._writer = rows.schema, None
        if any(_has_dictionary(field.type) for field in rows.schema):
            return
        self._writer = pa.ipc.new_stream(
            pa.PythonFile(self._sink, mode="w"), rows.schema
        )
        # The first batch brings the schema with it, which has a frame of its own.
        self._writer.write_batch(rows.slice(0, 0))

    def _encode(self, rows: pa.RecordBatch) -> EncodedRows:
        if self._schema is None or not rows.schema.equals(self._schema):
            self._begin(rows)
        parts: tuple[Bytes, ...]
        if self._writer is None:
            whole = pa.BufferOutputStream()
            with pa.ipc.new_stream(whole, rows.schema) as stream:
                stream.write_batch(rows)
            parts = (whole.getvalue(),)
        elif rows.nbytes < _GATHERED:
            parts = (rows.serialize(),)
        else:
            self._sink.parts = []
            self._writer.write_batch(rows)
            parts = tuple(self._sink.parts)
            self._sink.parts = []
        size = sum(memoryview(part).nbytes for part in parts)
        return EncodedRows(self._schema, parts, size, is_stream=self._writer is None)


def _has_dictionary(kind: pa.DataType) -> bool:
    if isinstance(kind, pa.BaseExtensionType):
        return _has_dictionary(kind.storage_type)
    if pa.types.is_dictionary(kind):
        return True
    return any(_has_dictionary(kind.field(n).type) for n in range(kind.num_fields))
