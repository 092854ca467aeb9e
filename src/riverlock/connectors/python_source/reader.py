"""Any PySpark Python data source that can stream."""

from __future__ import annotations

import inspect
import pickle
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from riverlock.connectors.python_source.splits import (
    PythonSplit,
    ReadRowsSplit,
    batches_of,
)
from riverlock.core.types import Schema, schema_of
from riverlock.spark.structs import struct_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from riverlock.sources import PythonSource

__all__ = ["PythonReader"]


class PythonReader:
    """Drives a ``DataSourceStreamReader`` or ``SimpleDataSourceStreamReader``."""

    gives_positions = False
    can_read_ahead = False
    is_repeatable = False

    def __init__(
        self, spark: SparkSession, source: PythonSource, *, takes_all: bool
    ) -> None:
        """Make the user's reader, as Spark would."""
        self._takes_all = takes_all
        self._end: Any = None
        self._spark = spark
        made = source.data_source(dict(source.options))
        declared = source.schema.ddl if source.schema else made.schema()
        struct = struct_of(declared) if isinstance(declared, str) else declared
        self._struct: StructType = struct
        self._schema = schema_of(struct)
        self._is_simple = _overrides(made, "simpleStreamReader")
        if self._is_simple:
            self._reader: Any = made.simpleStreamReader(struct)
        else:
            self._reader = made.streamReader(struct)

    def initial(self) -> Any:
        """Ask the reader."""
        return self._reader.initialOffset()

    def latest(self, start: Any) -> Any:
        """Ask the reader for everything there is."""
        if self._takes_all and hasattr(self._reader, "prepareForTriggerAvailableNow"):
            self._reader.prepareForTriggerAvailableNow()
        if self._is_simple:
            return self._reader.read(start)[1]
        if len(inspect.signature(self._reader.latestOffset).parameters) == 0:
            return self._reader.latestOffset()
        from pyspark.sql.streaming.datasource import ReadAllAvailable

        return self._reader.latestOffset(start, ReadAllAvailable())

    def advance(self, start: Any, latest: Any, max_rows: int) -> Any:
        """Let the reader limit itself if it can; otherwise take everything."""
        self._end = latest
        if start == latest or self._is_simple:
            return latest
        if len(inspect.signature(self._reader.latestOffset).parameters) == 0:
            return latest
        # A source that grows while it is read would never reach an end that it does
        # not know of.
        is_bounded = hasattr(self._reader, "prepareForTriggerAvailableNow")
        if self._takes_all and not is_bounded:
            return latest
        from pyspark.sql.streaming.datasource import ReadMaxRows

        self._end = self._reader.latestOffset(start, ReadMaxRows(max_rows))
        return self._end

    def has_ended(self, start: Any, latest: Any) -> bool:
        """Never: nobody says that no more will come."""
        return False

    def rows_between(self, start: Any, end: Any) -> int | None:
        """Unknown until read; none for an empty range."""
        return 0 if start == end else None

    def read(self, start: Any, end: Any) -> DataFrame:
        """Read the partitions of a range in tasks, one Spark partition each."""
        if start == end:
            return self._spark.createDataFrame([], self._struct)
        if self._is_simple:
            (split,) = self.splits(start, end, 1)
            table = split.table()
            return self._spark.createDataFrame(table).to(self._struct)
        parts = [pickle.dumps(p) for p in self._reader.partitions(start, end)]
        numbered = self._spark.createDataFrame(
            [(i, p) for i, p in enumerate(parts)], "number int, part binary"
        )
        spread = numbered.repartitionById(max(1, len(parts)), F.col("number"))
        return spread.mapInArrow(_read_with(self._reader, self._schema), self._struct)

    @property
    def schema(self) -> Schema:
        """The columns."""
        return self._schema

    def splits(
        self, start: Any, end: Any, wanted: int
    ) -> list[PythonSplit | ReadRowsSplit]:
        """Return the partitions of a range; rows of a simple reader are read here."""
        if start == end:
            return []
        if self._is_simple:
            rows = self._reader.readBetweenOffsets(start, end)
            return [ReadRowsSplit(tuple(tuple(r) for r in rows), self._schema)]
        parts = self._reader.partitions(start, end)
        return [PythonSplit(self._reader, part, self._schema) for part in parts]

    def observed(self, rows: int) -> dict[str, float]:
        """Tell the user's reader that what it gave is committed."""
        if self._end is not None:
            self._reader.commit(self._end)
        return {}

    def close(self) -> None:
        """Stop the reader, if it can be stopped."""
        if hasattr(self._reader, "stop"):
            self._reader.stop()


def _overrides(made: Any, method: str) -> bool:
    from pyspark.sql.datasource import DataSource

    return getattr(type(made), method) is not getattr(DataSource, method)


def _read_with(reader: Any, schema: Schema) -> Any:
    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for part in batch.column("part").to_pylist():
                given = pickle.loads(part)  # noqa: S301 - from our own driver
                yield from batches_of(reader.read(given), schema)

    return read
