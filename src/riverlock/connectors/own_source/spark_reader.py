"""Reads a source of a user's own in Spark's tasks, a partition each."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

from pyspark import cloudpickle
from pyspark.sql import functions as F

from riverlock.connectors.own_source.table_reader import TableReader
from riverlock.spark.structs import struct_of
from riverlock.state.columns.python_rows import rows_table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from riverlock.connectors.base.own_source import ReplayableSource
    from riverlock.core.types import Schema

__all__ = ["SparkTableReader"]

_ROWS_AT_ONCE = 50_000


class SparkTableReader(TableReader):
    """Gives each partition of a range to a task."""

    def __init__(self, spark: SparkSession, source: ReplayableSource, uid: str) -> None:
        """Take the session."""
        super().__init__(source, uid)
        self._spark = spark

    def read(self, start: Any, end: Any) -> DataFrame:
        """Return the rows as a DataFrame, in the order of the partitions."""
        struct = struct_of(self.schema)
        if start == end:
            return self._spark.createDataFrame([], struct)
        pickle: Any = cloudpickle  # it ships no types
        parts = [pickle.dumps(p) for p in self._reader.partitions(start, end)]
        numbered = self._spark.createDataFrame(
            [(n, part) for n, part in enumerate(parts)], "number int, part binary"
        )
        spread = numbered.repartitionById(max(1, len(parts)), F.col("number"))
        return spread.mapInArrow(_read_with(self.schema), struct)


def _read_with(
    schema: Schema,
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for part in batch.column("part").to_pylist():
                rows = iter(cloudpickle.loads(part).rows())
                while some := list(islice(rows, _ROWS_AT_ONCE)):
                    yield from rows_table(some, schema).to_batches()

    return read
