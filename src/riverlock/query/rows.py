"""Rows that are read on demand, for any library that takes Arrow."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from riverlock.core.errors import InvalidConfigError
from riverlock.core.values.arrow_values import python_rows

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pandas as pd
    import pyarrow as pa

__all__ = ["Rows", "TableRows"]


class Rows(ABC):
    """Rows with typed columns.

    Nothing is read until rows are asked for; each use reads again. Any library that
    takes Arrow streams takes them: ``polars.DataFrame(rows)``, ``pyarrow.table(rows)``.
    """

    @property
    @abstractmethod
    def schema(self) -> pa.Schema:
        """The columns with their types."""

    @abstractmethod
    def batches(self) -> Iterator[pa.RecordBatch]:
        """Read the rows, some at a time.

        Raises:
            SnapshotCorruptedError: A file is missing or altered.
        """

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(self.schema.names)

    def reader(self) -> pa.RecordBatchReader:
        """Return the rows as an Arrow stream, which can be read once."""
        import pyarrow as pa

        return pa.RecordBatchReader.from_batches(self.schema, self.batches())

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """Offer the rows to any library that takes Arrow streams."""
        return self.reader().__arrow_c_stream__(requested_schema)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Read the rows as dictionaries."""
        for batch in self.batches():
            yield from python_rows(batch, dicts=True)

    def to_arrow(self) -> pa.Table:
        """Read the rows as an Arrow table."""
        return self.reader().read_all()

    def to_pandas(self) -> pd.DataFrame:
        """Read the rows as a pandas DataFrame."""
        return self.to_arrow().to_pandas()

    def to_polars(self) -> Any:
        """Read the rows as a Polars DataFrame.

        Raises:
            InvalidConfigError: Polars is not installed.
        """
        try:
            import polars
        except ImportError as cause:
            raise InvalidConfigError(
                "to_polars()",
                expected="the package polars",
                found="none installed",
                hint="install it with: pip install polars",
            ) from cause
        return polars.DataFrame(self)

    def to_duckdb(self, connection: Any) -> Any:
        """Return a DuckDB relation, which reads the rows when it is queried."""
        return connection.from_arrow(self)

    def to_spark(self, spark: Any) -> Any:
        """Return a Spark DataFrame of the rows, which are read here."""
        return spark.createDataFrame(self.to_arrow())


class TableRows(Rows):
    """Rows that are in memory."""

    def __init__(self, table: pa.Table) -> None:
        """Take a table."""
        self._table = table

    @property
    def schema(self) -> pa.Schema:
        """The columns with their types."""
        return self._table.schema

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Return the rows."""
        yield from self._table.to_batches()
