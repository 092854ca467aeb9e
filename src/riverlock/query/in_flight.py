"""Rows between the regions of a snapshot: what was sent there and not read yet."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from riverlock.core.types import schema_of
from riverlock.query.rows import Rows, TableRows
from riverlock.snapshot.catalog import Catalog
from riverlock.snapshot.channel_files import channel_file, read_all
from riverlock.snapshot.in_flight import between

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa

    from riverlock.query.snapshot import Snapshot
    from riverlock.snapshot.in_flight import Between
    from riverlock.storage.base import Storage

__all__ = ["InFlightRows", "in_flight_rows", "in_flight_spans"]

WRITER_EPOCH = "writer_epoch"


class InFlightRows(Rows):
    """The rows in flight in a channel, each with the epoch of its writer, in order."""

    def __init__(self, storage: Storage, found: Between) -> None:
        """Read nothing yet."""
        self._storage, self.between = storage, found

    @cached_property
    def schema(self) -> pa.Schema:
        """The epoch of the writer, then the columns of the stream."""
        import pyarrow as pa

        columns = self.between.columns
        shown = [] if columns is None else list(schema_of(columns.ddl).to_arrow())
        return pa.schema([pa.field(WRITER_EPOCH, pa.int64()), *shown])

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Read the rows, a file at a time."""
        import pyarrow as pa

        names = self.schema.names[1:]
        for epoch, token in self.between.files:
            table = read_all(self._storage, channel_file(token)).select(names)
            number = pa.array([epoch] * table.num_rows, pa.int64())
            table = table.add_column(0, self.schema.field(0), number)
            yield from table.cast(self.schema).to_batches()


def in_flight_rows(snapshot: Snapshot) -> Mapping[str, InFlightRows]:
    """Return the rows in flight in a snapshot, by channel; reads no rows yet.

    Raises:
        SnapshotNotFoundError: An epoch that wrote some is no longer retained.
    """
    found = between(Catalog(snapshot.storage), snapshot.manifests)
    return {b.span.channel: InFlightRows(snapshot.storage, b) for b in found}


def in_flight_spans(rows: Mapping[str, InFlightRows]) -> TableRows:
    """Return how much is in flight, a row for each channel."""
    import pyarrow as pa

    schema = pa.schema(
        [
            ("channel", pa.string()),
            ("writer", pa.string()),
            ("reader", pa.string()),
            ("first_epoch", pa.int64()),
            ("end_epoch", pa.int64()),
            ("rows", pa.int64()),
            ("bytes", pa.int64()),
        ]
    )
    spans = [each.between.span for each in rows.values()]
    values: list[dict[str, Any]] = [
        {
            "channel": span.channel,
            "writer": span.writer,
            "reader": span.reader,
            "first_epoch": span.first,
            "end_epoch": span.end,
            "rows": span.rows,
            "bytes": span.bytes,
        }
        for span in spans
    ]
    return TableRows(pa.Table.from_pylist(values, schema=schema))
