"""Partitions of PySpark's Python data sources, read in any process."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from riverlock.state.columns.python_rows import rows_table

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from riverlock.core.types import Schema

__all__ = ["PythonSplit", "ReadRowsSplit", "batches_of"]

_ROWS_AT_ONCE = 50_000


def batches_of(found: Iterable[Any], schema: Schema) -> Iterator[pa.RecordBatch]:
    """Yield what a reader yields, tuples or batches, as batches."""
    rows: list[Any] = []
    for item in found:
        if isinstance(item, pa.RecordBatch):
            yield item
        else:
            rows.append(tuple(item))
            if len(rows) == _ROWS_AT_ONCE:
                yield from rows_table(rows, schema).to_batches()
                rows = []
    if rows:
        yield from rows_table(rows, schema).to_batches()


@dataclass(frozen=True)
class PythonSplit:
    """A partition of a ``DataSourceStreamReader``."""

    reader: Any
    partition: Any
    schema: Schema

    def table(self) -> pa.Table:
        """Have the user's reader read it."""
        arrow = self.schema.to_arrow()
        found = batches_of(self.reader.read(self.partition), self.schema)
        tables = [pa.Table.from_batches([b]).select(arrow.names) for b in found]
        return pa.concat_tables([arrow.empty_table(), *(t.cast(arrow) for t in tables)])


@dataclass(frozen=True)
class ReadRowsSplit:
    """Rows that a ``SimpleDataSourceStreamReader`` has read in the driver."""

    rows: tuple[tuple[Any, ...], ...]
    schema: Schema

    def table(self) -> pa.Table:
        """Return them as a table."""
        return rows_table(self.rows, self.schema)
