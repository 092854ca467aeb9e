"""Reads a channel in Spark's tasks, which check each file before they use it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StructType

from riverlock.connectors.channel.joined_reader import JoinedReader
from riverlock.connectors.channel.reader import ChannelReader, file_rows
from riverlock.core.hidden_columns import SEQ, TIME
from riverlock.spark.structs import struct_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pyspark.sql import DataFrame, SparkSession

    from riverlock.connectors.channel.ends import ChannelSource, LoopSource
    from riverlock.storage.base import Storage

__all__ = ["SparkChannelReader", "SparkJoinedReader"]

# A position: the file in the highest bits, then the row in it.
_ROW_BITS = 33


class SparkChannelReader(ChannelReader):
    """Gives the files of a range to tasks."""

    def __init__(
        self,
        spark: SparkSession,
        source: ChannelSource | LoopSource,
        uid: str,
        storage: Storage,
    ) -> None:
        """Take the session."""
        super().__init__(source, uid, storage)
        self._spark = spark

    def read(self, start: Any, end: Any) -> DataFrame:
        """Return the rows as a DataFrame, with their positions."""
        struct = StructType(list(struct_of(self.schema).fields))
        if self._source.has_time:
            struct = struct.add(TIME, LongType())
        files = self.files(start, end)
        if not files:
            return self._spark.createDataFrame([], struct.add(SEQ, LongType()))
        given = [(n, msgspec.json.encode(token)) for n, token in enumerate(files)]
        numbered = self._spark.createDataFrame(given, "number int, token binary")
        tasks = min(len(files), self._spark.sparkContext.defaultParallelism)
        spread = numbered.repartitionById(tasks, F.col("number") % tasks)
        read = _read_with(self._storage, self._uid, self._arrow())
        return spread.mapInArrow(read, struct.add(SEQ, LongType()))


class SparkJoinedReader(JoinedReader, SparkChannelReader):
    """The same for a channel of another flow."""


def _read_with(
    storage: Storage, uid: str, columns: pa.Schema
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for given in batch.to_pylist():
                token = msgspec.json.decode(given["token"])
                rows = file_rows(storage, token, uid, columns)
                first = given["number"] << _ROW_BITS
                numbers = np.arange(first, first + rows.num_rows, dtype=np.int64)
                yield from rows.append_column(SEQ, pa.array(numbers)).to_batches()

    return read
