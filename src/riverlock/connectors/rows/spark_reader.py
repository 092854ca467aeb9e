"""The rows of a list as a DataFrame."""

from __future__ import annotations

from typing import TYPE_CHECKING

from riverlock.connectors.rows.reader import RowsReader
from riverlock.spark.structs import struct_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from riverlock.connectors.rows.source import Rows

__all__ = ["SparkRowsReader"]


class SparkRowsReader(RowsReader):
    """Gives ranges of a list to Spark; all of an epoch passes through the driver."""

    def __init__(self, spark: SparkSession, source: Rows) -> None:
        """Take the session."""
        super().__init__(source)
        self._spark = spark

    def read(self, start: int, end: int) -> DataFrame:
        """Return the rows as a DataFrame, in their order."""
        struct = struct_of(self.schema)
        if start == end:
            return self._spark.createDataFrame([], struct)
        return self._spark.createDataFrame(self.table(start, end), struct)
