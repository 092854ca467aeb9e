"""Rows of a piece as Arrow, read inside tasks."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from riverlock.connectors.databases.reading.offsets import decoded
from riverlock.connectors.databases.reading.questions import VALUE, Database
from riverlock.core.errors import InputChangedError, SourceError
from riverlock.core.hidden_columns import SEQ

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from riverlock.connectors.databases.address import Address
    from riverlock.connectors.databases.reading.selection import Selection
    from riverlock.core.types import Type

__all__ = ["Piece", "PieceReader", "SqlSplit", "between", "changed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Rows whose values lie in ``(lower, upper]``; values as offsets have them."""

    lower: Any
    upper: Any
    rows: int
    first: int  # the position of its first row


def between(column: str, lower: Any, upper: Any) -> tuple[str, list[Any]]:
    """Return a condition, and its values."""
    if lower is None:
        return f"{column} <= {VALUE}", [decoded(upper)]
    text = f"{column} > {VALUE} AND {column} <= {VALUE}"
    return text, [decoded(lower), decoded(upper)]


def changed(uid: str, *, planned: int, found: int) -> InputChangedError:
    """Return the error for a range that has other rows than when it was planned."""
    return InputChangedError(
        epoch=None,
        reason=f"source {uid!r} has other rows than before",
        cause=f"a range of {planned} rows has {found} now: rows were added behind"
        " those with greater values, or deleted",
    )


@dataclass(frozen=True, kw_only=True)
class PieceReader:
    """Reads pieces; picklable, connects where it is used."""

    address: Address
    uid: str
    selection: Selection

    def read(self, piece: Piece) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a piece, in order, each with its position.

        Raises:
            SourceError: A value is not of its column's type.
            SourceUnavailableError: The database does not answer.
            InputChangedError: It has other rows than when they were planned.
        """
        chosen = self.selection
        condition, values = between(chosen.column, piece.lower, piece.upper)
        text = f"SELECT {chosen.rows} WHERE {condition} ORDER BY {chosen.order}"
        found = 0
        for rows in Database(self.address, self.uid).stream(text, *values):
            yield self._batch(rows, piece.first + found)
            found += len(rows)
        if found != piece.rows:
            raise changed(self.uid, planned=piece.rows, found=found)

    def _batch(self, rows: list[Any], first: int) -> pa.RecordBatch:
        columns = [
            self._column(f.name, f.type, list(values))
            for f, values in zip(
                self.selection.schema.fields, zip(*rows, strict=True), strict=True
            )
        ]
        columns.append(pa.array(range(first, first + len(rows)), pa.int64()))
        return pa.RecordBatch.from_arrays(
            columns, names=[*self.selection.schema.names, SEQ]
        )

    def _column(self, name: str, kind: Type, values: list[Any]) -> pa.Array:
        fix = _FIXES.get(kind.kind)
        try:
            if fix is not None:
                values = [None if v is None else fix(v) for v in values]
            return pa.array(values, kind.to_arrow())
        except (pa.ArrowException, ValueError, TypeError, ArithmeticError) as error:
            raise SourceError(
                self.uid,
                what=f"column {name!r} has a value that is no {kind.ddl}: {error}",
                hint="nothing of this epoch was committed; schema= says which types"
                " to read",
            ) from None


@dataclass(frozen=True)
class SqlSplit:
    """A piece, and what reads it."""

    reader: PieceReader
    piece: Piece

    def table(self) -> pa.Table:
        """Read its rows, in order.

        Raises:
            SourceError: A value is not of its column's type.
            SourceUnavailableError: The database does not answer.
            InputChangedError: It has other rows than when they were planned.
        """
        batches = list(self.reader.read(self.piece))
        arrow = self.reader.selection.schema.to_arrow()
        if not batches:
            return arrow.empty_table()
        return pa.Table.from_batches(batches).select(arrow.names)


def _boolean(value: Any) -> bool:
    if value not in (0, 1):
        message = f"{value!r} is neither 0 nor 1"
        raise ValueError(message)
    return bool(value)


def _number(value: Any) -> int:
    if isinstance(value, str | float):
        message = f"{value!r} is not a whole number"
        raise ValueError(message)
    return int(value)


def _decimal(value: Any) -> Decimal:
    return value if isinstance(value, Decimal) else Decimal(str(value))


def _time(value: Any) -> datetime:
    """Parse the ISO text of SQLite; without a zone it is in UTC."""
    found = datetime.fromisoformat(value) if isinstance(value, str) else value
    if not isinstance(found, datetime):
        message = f"{value!r} is not a time"
        raise ValueError(message)
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found


def _time_ntz(value: Any) -> datetime:
    return _time(value).astimezone(UTC).replace(tzinfo=None)


def _date(value: Any) -> date:
    found = date.fromisoformat(value) if isinstance(value, str) else value
    if not isinstance(found, date):
        message = f"{value!r} is not a date"  # Arrow would take a number for days
        raise ValueError(message)
    return found


_FIXES: Final[dict[str, Callable[[Any], Any]]] = {
    "boolean": _boolean,
    "byte": _number,
    "short": _number,
    "int": _number,
    "long": _number,
    "decimal": _decimal,
    "date": _date,
    "timestamp": _time,
    "timestamp_ntz": _time_ntz,
}
