"""Reads the rows of a list: a position is the number of rows before it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from riverlock.core.errors import SourceError
from riverlock.state.columns.python_rows import RowError, rows_table

if TYPE_CHECKING:
    import pyarrow as pa

    from riverlock.connectors.rows.source import Rows
    from riverlock.core.types import Schema

__all__ = ["RowsReader", "RowsSplit"]


# Fewer rows are not worth a piece of their own.
_LEAST_ROWS = 1_000


@dataclass(frozen=True)
class RowsSplit:
    """Some rows of the list; ``first`` is the number of rows before them."""

    schema: Schema
    source: str
    first: int
    rows: tuple[Any, ...]

    def table(self) -> pa.Table:
        """Return them as a table.

        Raises:
            SourceError: One does not fit the columns.
        """
        try:
            return rows_table(self.rows, self.schema)
        except RowError as error:
            last = self.first + len(self.rows) - 1
            raise SourceError(
                self.source,
                what=f"of its rows {self.first} to {last}, one does not fit: {error}",
                hint="correct the list; nothing of this epoch was committed",
            ) from error


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
        rows = tuple(self._source.rows[start:end])
        return RowsSplit(self.schema, self._source.kind, start, rows).table()

    def splits(self, start: int, end: int, wanted: int) -> list[RowsSplit]:
        """Return the rows themselves, in a few pieces."""
        size = max(_LEAST_ROWS, -(-(end - start) // wanted))
        source = self._source
        return [
            RowsSplit(self.schema, source.kind, n, tuple(source.rows[n:last]))
            for n in range(start, end, size)
            for last in (min(n + size, end),)
        ]

    def observed(self, rows: int) -> dict[str, float]:
        """Nothing to learn."""
        return {}

    def close(self) -> None:
        """Nothing is open."""
