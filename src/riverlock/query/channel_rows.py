"""Channels as data: the rows of a durable log, segment by segment."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from riverlock.core.errors import SnapshotNotFoundError
from riverlock.core.types import schema_of
from riverlock.query.rows import Rows, TableRows
from riverlock.snapshot.format.channels import Channel
from riverlock.snapshot.format.state_files import read_file, table_of
from riverlock.snapshot.format.store_layout import CHANNELS

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from riverlock.snapshot.format.channels import Segment
    from riverlock.storage.base import Storage

__all__ = ["ChannelRows", "channel_names", "open_channel", "segments"]

SEGMENT = "segment"


def channel_names(storage: Storage) -> list[str]:
    """Return the channels that have segments."""
    names = set()
    for entry in storage.list(CHANNELS):
        name, _, rest = entry.path.removeprefix(CHANNELS).partition("/")
        if rest.startswith("segments/"):
            names.add(name)
    return sorted(names)


def open_channel(storage: Storage, name: str) -> ChannelRows:
    """Return the rows of a channel.

    Raises:
        SnapshotNotFoundError: There is no such channel.
    """
    names = channel_names(storage)
    if name not in names:
        raise SnapshotNotFoundError.among(
            f"channel {name!r}", store=storage.uri, kind="channel", names=names
        )
    return ChannelRows(Channel(storage, name))


class ChannelRows(Rows):
    """The rows of a channel, each with the number of its segment."""

    def __init__(self, channel: Channel) -> None:
        """Read nothing yet."""
        self._channel = channel

    def segments(self) -> Iterator[Segment]:
        """Read the records of the segments, in order."""
        for number in self._channel.numbers():
            # None: every epoch has passed it since, and it was deleted.
            if (found := self._channel.segment(number)) is not None:
                yield found

    @cached_property
    def schema(self) -> pa.Schema:
        """The number of the segment, then the columns of the newest one."""
        import pyarrow as pa

        *_, last = self.segments()
        first = pa.field(SEGMENT, pa.int64())
        return pa.schema([first, *schema_of(last.schema).to_arrow()])

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Read the rows, a file at a time, in order."""
        import pyarrow as pa

        names = self.schema.names[1:]
        for segment in self.segments():
            for file in segment.files:
                data = read_file(
                    self._channel.storage,
                    file["path"],
                    size=file["bytes"],
                    expected=file["checksum"],
                )
                table = table_of(data)
                # Columns that came later are missing in older segments.
                empty = pa.schema(list(self.schema)[1:]).empty_table()
                table = pa.concat_tables([empty, table], promote_options="permissive")
                number = pa.array([segment.number] * table.num_rows, pa.int64())
                table = table.select(names).add_column(0, SEGMENT, number)
                yield from table.cast(self.schema).to_batches()


def segments(storage: Storage) -> TableRows:
    """Return the segments of all channels, a row for each."""
    import pyarrow as pa

    rows = [
        {
            "channel": name,
            SEGMENT: segment.number,
            "rows": segment.rows,
            "bytes": sum(f["bytes"] for f in segment.files),
            "writer": segment.writer,
            "step": segment.step,
        }
        for name in channel_names(storage)
        for segment in ChannelRows(Channel(storage, name)).segments()
    ]
    schema = pa.schema(
        [
            ("channel", pa.string()),
            (SEGMENT, pa.int64()),
            ("rows", pa.int64()),
            ("bytes", pa.int64()),
            ("writer", pa.string()),
            ("step", pa.int64()),
        ]
    )
    return TableRows(pa.Table.from_pylist(rows, schema=schema))
