"""Reads a channel in Spark's tasks, which check each file before they use it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StructType

from riverlock.connectors.channel.joined_reader import JoinedReader
from riverlock.connectors.channel.reader import ChannelReader
from riverlock.connectors.channel.rows import file_rows
from riverlock.core.hidden_columns import SEQ, TIME
from riverlock.core.values.known_types import known
from riverlock.snapshot.channel_files import ChannelFile
from riverlock.spark.structs import struct_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pyspark.sql import DataFrame, SparkSession

    from riverlock.connectors.channel.ends import ChannelSource, LoopSource
    from riverlock.connectors.channel.rows import Shares
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
        struct, files = self._struct, self.files(start, end)
        if not files:
            return self._spark.createDataFrame([], struct)
        given = [(n, msgspec.json.encode(file)) for n, file in enumerate(files)]
        numbered = self._spark.createDataFrame(given, "number int, token binary")
        tasks = min(len(files), self._spark.sparkContext.defaultParallelism)
        spread = numbered.repartitionById(tasks, F.col("number") % tasks)
        read = _read_with(self._storage, self._uid, self._arrow())
        return spread.mapInArrow(read, struct)

    def read_shares(self, shares: Shares) -> DataFrame:
        """Return the rows of a range in a partition per task, each with its own."""
        tasks = self._spark.range(0, shares.tasks, 1, shares.tasks)
        return tasks.mapInArrow(_share_with(shares), self._struct)

    @property
    def _struct(self) -> StructType:
        struct = StructType(list(struct_of(self.schema).fields))
        if self._source.has_time:
            struct = struct.add(TIME, LongType())
        return struct.add(SEQ, LongType())


class SparkJoinedReader(JoinedReader, SparkChannelReader):
    """The same for a channel of another flow."""


def _read_with(
    storage: Storage, uid: str, columns: pa.Schema
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for given in batch.to_pylist():
                file = msgspec.json.decode(given["token"], type=known(ChannelFile))
                rows = file_rows(storage, file, uid, columns)
                places = np.arange(rows.num_rows)
                yield from _placed(rows, given["number"], places).to_batches()

    return read


def _share_with(
    shares: Shares,
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for task in batch["id"].to_pylist():
                for number, rows, places in shares.read(task):
                    yield from _placed(rows, number, places).to_batches()

    return read


def _placed(rows: pa.Table, number: int, places: np.ndarray) -> pa.Table:
    """Add the positions of rows in a file, by their places in it."""
    positions = places.astype(np.int64) + (number << _ROW_BITS)
    return rows.append_column(SEQ, pa.array(positions))
