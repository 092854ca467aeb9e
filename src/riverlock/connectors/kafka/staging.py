"""Rows as Kafka records: encoded and staged by tasks, read again by the driver."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from riverlock.connectors.base.direct import delivering
from riverlock.connectors.base.json_rows import json_rows
from riverlock.connectors.builtin_stagers import TableStager
from riverlock.connectors.kafka.producer import OutRow, PlainProducer
from riverlock.core.errors import SinkError
from riverlock.core.values.arrow_values import text_column
from riverlock.snapshot.format.state_files import read_file

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa

    from riverlock.connectors.base.stager import StagePoint
    from riverlock.connectors.kafka.connection import Connection
    from riverlock.snapshot.format.records import SinkOutput
    from riverlock.storage.base import Storage

__all__ = ["JSON", "DirectKafkaStager", "KafkaStager", "staged_rows"]

JSON: Final = "json"
_BATCH_ROWS: Final = 5_000
# What Kafka adds to a record at most, not counting its headers.
_OVERHEAD: Final = 512


@dataclass(frozen=True, kw_only=True)
class KafkaStager:
    """Stages rows in the store as the records they become.

    The driver only has to send them; what cannot be sent is refused here, before the
    epoch is decided.
    """

    sink: str
    key: tuple[str, ...]
    value: str
    headers: str | None
    partition: str | None
    max_bytes: int

    def stage(self, table: pa.Table, at: StagePoint) -> list[Any]:
        """Write one file.

        Raises:
            SinkError: See ``records``.
        """
        return TableStager(sink=self.sink).stage(self.records(table), at)

    def records(self, table: pa.Table) -> pa.Table:
        """Return the rows as the records they become.

        Raises:
            SinkError: A row is too large, or has an impossible partition.
        """
        import pyarrow as pa

        found = pa.table(
            {
                "key": self._keys(table),
                "value": self._values(table),
                "headers": self._headers(table),
                "partition": self._partitions(table),
            }
        )
        self._check_sizes(found)
        return found

    def _keys(self, table: pa.Table) -> pa.Array:
        import pyarrow as pa

        if not self.key:
            return pa.nulls(table.num_rows, pa.binary())
        if len(self.key) > 1:
            return pa.array(json_rows(table.select(list(self.key))), pa.binary())
        return _as_bytes(table[self.key[0]])

    def _values(self, table: pa.Table) -> pa.Array:
        import pyarrow as pa

        if self.value != JSON:
            return _as_bytes(table[self.value])
        aside = {self.headers, self.partition}
        shown = [name for name in table.column_names if name not in aside]
        return pa.array(json_rows(table.select(shown)), pa.binary())

    def _headers(self, table: pa.Table) -> pa.Array:
        import pyarrow as pa

        kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
        if self.headers is None:
            return pa.nulls(table.num_rows, kind)
        rows = [
            pairs and [{"key": k, "value": _plain_bytes(v)} for k, v in pairs]
            for pairs in table[self.headers].to_pylist()
        ]
        return pa.array(rows, kind)

    def _partitions(self, table: pa.Table) -> pa.Array:
        import pyarrow as pa
        import pyarrow.compute as pc

        if self.partition is None:
            return pa.nulls(table.num_rows, pa.int32())
        found = table[self.partition].combine_chunks()
        least, most = (pc.min_max(found)[side].as_py() for side in ("min", "max"))
        if least is not None and (least < 0 or most >= 1 << 31):
            wrong = least if least < 0 else most
            raise SinkError(
                self.sink, epoch=None, what=f"there is no partition {wrong}"
            )
        return found.cast(pa.int32())

    def _check_sizes(self, rows: pa.Table) -> None:
        import pyarrow.compute as pc

        lengths = [
            pc.fill_null(pc.binary_length(rows[name]), 0) for name in ("key", "value")
        ]
        sizes = pc.add(*lengths)
        largest = pc.max(sizes).as_py() + _OVERHEAD
        if largest > self.max_bytes:
            place = pc.index(sizes, pc.max(sizes)).as_py()
            key = rows["key"][place].as_py()
            raise SinkError(
                self.sink,
                epoch=None,
                what=f"the row with key {key!r} has {largest:,} bytes, of"
                f" {self.max_bytes:,} that message.max.bytes allows; raise it in"
                " options and in the topic, or write less",
            )


def _as_bytes(column: pa.ChunkedArray) -> pa.Array:
    """Return text and bytes as they are, numbers as text."""
    import pyarrow as pa

    if not (pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type)):
        column = pa.chunked_array(text_column(column))
    return column.cast(pa.binary()).combine_chunks()


def _plain_bytes(value: Any) -> bytes | None:
    return value.encode() if isinstance(value, str) else value


def staged_rows(storage: Storage, output: SinkOutput) -> Iterator[OutRow]:
    """Yield the staged rows of an epoch, one file after the other.

    Raises:
        SnapshotCorruptedError: A staged file is missing or altered.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    for token in output.tokens:
        size, checksum = token["bytes"], token["checksum"]
        data = read_file(storage, token["path"], size=size, expected=checksum)
        file = pq.ParquetFile(pa.BufferReader(data), pre_buffer=False)
        yield from _rows(file.iter_batches(_BATCH_ROWS, use_threads=False))


def _rows(batches: Iterable[pa.RecordBatch]) -> Iterator[OutRow]:
    for batch in batches:
        keys, values, headers, partitions = (c.to_pylist() for c in batch.columns)
        for key, value, named, partition in zip(
            keys, values, headers, partitions, strict=True
        ):
            pairs = named and [(h["key"], h["value"]) for h in named]
            yield OutRow(key, value, pairs, partition)


@dataclass(frozen=True, kw_only=True)
class DirectKafkaStager:
    """Sends rows from inside a task, without a transaction."""

    rows: KafkaStager
    connection: Connection
    topic: str

    def stage(self, table: pa.Table, at: StagePoint) -> list[Any]:
        """Send all rows; return when the cluster has them.

        Raises:
            SinkError: A row is too large, or has an impossible partition.
            SinkUnavailableError, EpochAbortedError: See ``delivering``.
        """
        found = self.rows.records(table)
        with delivering(self.rows.sink, at.epoch):
            producer = PlainProducer(self.connection)
            try:
                rows = _rows(found.to_batches(_BATCH_ROWS))
                producer.send(self.topic, rows, self.rows.sink, at.epoch)
            finally:
                producer.drop()
        return []
