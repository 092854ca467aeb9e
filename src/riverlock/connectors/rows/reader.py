"""Reads the rows of a list: a position is the number of rows before it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from riverlock.core.errors import SourceError
from riverlock.state.columns.python_rows import RowError, rows_table

if TYPE_CHECKING:
    import pyarrow as pa

    from riverlock.connectors.rows.source import Rows
    from riverlock.core.types import Schema

__all__ = ["RowsReader"]


class RowsReader:
    """Gives ranges of a list as Arrow tables, in one thread and in order."""

    gives_positions = False
    can_read_ahead = False
    is_repeatable = True

    def __init__(self, source: Rows) -> None:
        """Keep the list itself, not a copy: it may grow."""
        self._source = source

    @property
    def schema(self) -> Schema:
        """The columns."""
        return self._source.schema

    def initial(self) -> int:
        """Begin at the first row."""
        return 0

    def latest(self, start: int) -> int:
        """Return how many rows there are by now."""
        return max(start, len(self._source.rows))

    def advance(self, start: int, latest: int, max_rows: int) -> int:
        """Return an offset at most ``max_rows`` further."""
        return min(start + max_rows, latest)

    def has_ended(self, start: int, latest: int) -> bool:
        """Whether all rows were read, and no more were promised."""
        return self._source.bounded and start >= latest

    def rows_between(self, start: int, end: int) -> int:
        """Return the number of rows."""
        return end - start

    def read(self, start: int, end: int) -> Any:
        """Return the rows as a table."""
        return self.table(start, end)

    def table(self, start: int, end: int) -> pa.Table:
        """Return the rows as a table.

        Raises:
            SourceError: One does not fit the columns.
        """
        try:
            return rows_table(self._source.rows[start:end], self.schema)
        except RowError as error:
            raise SourceError(
                self._source.kind,
                what=f"of its rows {start} to {end - 1}, one does not fit: {error}",
                hint="correct the list; nothing of this epoch was committed",
            ) from error

    def observed(self, rows: int) -> dict[str, float]:
        """Nothing to learn."""
        return {}

    def close(self) -> None:
        """Nothing is open."""
