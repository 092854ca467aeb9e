"""Reads a source of a user's own in one process, as Arrow tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from riverlock.core.types import schema_of
from riverlock.state.columns.python_rows import rows_table

if TYPE_CHECKING:
    from riverlock.connectors.base.own_source import ReplayableSource, SourcePartition
    from riverlock.core.types import Schema

__all__ = ["PartitionSplit", "TableReader"]


@dataclass(frozen=True)
class PartitionSplit:
    """A partition of a source of a user's own."""

    schema: Schema
    partition: SourcePartition

    def table(self) -> pa.Table:
        """Have the user's code read it."""
        return rows_table(list(self.partition.rows()), self.schema)


class TableReader:
    """Asks the user's reader; rows of all partitions are read here, in order."""

    gives_positions = False
    can_read_ahead = False
    # Nobody has proved that it keeps its promise: what several need is read once.
    is_repeatable = False

    def __init__(self, source: ReplayableSource, uid: str) -> None:
        """Make the user's reader."""
        self.schema = schema_of(source.schema)
        self._reader = source.reader(uid)

    def initial(self) -> Any:
        """Ask the reader."""
        return self._reader.initial()

    def latest(self, start: Any) -> Any:
        """Ask the reader."""
        return self._reader.latest(start)

    def advance(self, start: Any, latest: Any, max_rows: int) -> Any:
        """Ask the reader, if there is anything."""
        if start == latest:
            return latest
        return self._reader.advance(start, latest, max_rows)

    def has_ended(self, start: Any, latest: Any) -> bool:
        """Ask the reader."""
        return self._reader.has_ended(start, latest)

    def rows_between(self, start: Any, end: Any) -> int | None:
        """Ask the reader; an empty range has none."""
        return 0 if start == end else self._reader.rows_between(start, end)

    def read(self, start: Any, end: Any) -> Any:
        """Return the rows as a table."""
        return self.table(start, end)

    def table(self, start: Any, end: Any) -> pa.Table:
        """Return the rows as a table."""
        found = [split.table() for split in self.splits(start, end, 1)]
        return pa.concat_tables([self.schema.to_arrow().empty_table(), *found])

    def splits(self, start: Any, end: Any, wanted: int) -> list[PartitionSplit]:
        """Return the partitions that the user's reader divides a range into."""
        parts = [] if start == end else self._reader.partitions(start, end)
        return [PartitionSplit(self.schema, part) for part in parts]

    def observed(self, rows: int) -> dict[str, float]:
        """Nothing to learn."""
        return {}

    def close(self) -> None:
        """Close the reader."""
        self._reader.close()
