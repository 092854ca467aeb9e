"""Between Arrow columns and Python rows, a column at a time."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from itertools import starmap
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from riverlock.core.hidden_columns import TIME
from riverlock.core.suggestions import did_you_mean
from riverlock.core.values.arrow_values import FarValues, far_in, python_values
from riverlock.core.values.record import Record, record_class
from riverlock.state.codec import codec_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from riverlock.core.types import Schema, Type

__all__ = [
    "Records",
    "column_values",
    "emitted_table",
    "first_places",
    "records",
    "rows_table",
]

_NESTED = ("array", "map", "struct")


def column_values(column: pa.ChunkedArray | pa.Array, kind: Type) -> list[Any]:
    """Return a column as Python values; timestamps as microseconds.

    In other columns, a value with a time that Python cannot represent is a ``FarTime``,
    and the list a ``FarValues``.
    """
    if kind.kind in ("timestamp", "timestamp_ntz"):
        column = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64())
    if kind.kind in _NESTED:
        codec, values = codec_of(kind), python_values(column)
        if isinstance(values, FarValues):
            return FarValues([far_in(v) or codec.checked(v) for v in values])
        return codec.from_arrow(values)
    if column.null_count == 0 and (
        pa.types.is_integer(column.type) or pa.types.is_floating(column.type)
    ):
        # Three times as fast as to_pylist.
        fast: list[Any] = column.to_numpy().tolist()
        return fast
    return python_values(column)


def first_places(codes: np.ndarray) -> np.ndarray:
    """Return where each of the codes 0, 1, 2, ... is found first."""
    first = np.empty(int(codes.max(initial=-1)) + 1, dtype=np.int64)
    # Of assignments to one place the last one stays.
    first[codes[::-1]] = np.arange(len(codes))[::-1]
    return first


class Records:
    """The rows of a table as records, each made when its turn comes.

    One that is made, used and freed before the next stays in the processor's cache,
    and a task never holds them all.
    """

    def __init__(
        self,
        make: Callable[[], Sequence[list[Any]]],
        kind: Callable[[Sequence[list[Any]]], type[Record]],
    ) -> None:
        """Take the function that makes the values, column by column, when needed.

        Args:
            make: The function.
            kind: Returns the class of the records, given the columns.
        """
        self._make, self._kind_of = make, kind

    @cached_property
    def _columns(self) -> Sequence[list[Any]]:
        return self._make()

    @cached_property
    def _kind(self) -> type[Record]:
        return self._kind_of(self._columns)

    def __iter__(self) -> Iterator[Record]:
        """Yield all of them."""
        return starmap(self._kind, zip(*self._columns, strict=True))

    def between(self, begin: int, end: int) -> Iterator[Record]:
        """Yield some of them."""
        some = [column[begin:end] for column in self._columns]
        return starmap(self._kind, zip(*some, strict=True))


def records(table: pa.Table, schema: Schema, *, is_right: bool = False) -> Records:
    """Return the rows of a table as records."""

    def columns() -> list[list[Any]]:
        return [column_values(table[f.name], f.type) for f in schema.fields]

    def kind(values: Sequence[list[Any]]) -> type[Record]:
        pairs = zip(schema.names, values, strict=True)
        far = frozenset(name for name, v in pairs if isinstance(v, FarValues))
        return record_class(schema, is_right=is_right, far=far)

    return Records(columns, kind)


class RowError(Exception):
    """A row that user code emitted does not fit the declared columns.

    Attributes:
        line: The user's line that emitted it, if that is known.
    """

    line = ""


def rows_table(rows: Sequence[Any], schema: Schema) -> pa.Table:
    """Return rows that user code emitted (tuples or dicts) as a table.

    Raises:
        RowError: A row does not fit.
    """
    names = schema.names
    width = len(names)
    if not all(type(r) is tuple and len(r) == width for r in rows):
        rows = [as_tuple(r, names) for r in rows]
    columns = zip(*rows, strict=True) if rows else [()] * width
    arrays = [
        _array(list(column), f.name, f.type)
        for column, f in zip(columns, schema.fields, strict=True)
    ]
    return pa.table(arrays, schema=schema.to_arrow())


def emitted_table(
    emitted: Sequence[tuple[Any, int | None]], schema: Schema
) -> pa.Table:
    """Return rows that came with their event time as a table.

    Raises:
        RowError: A row does not fit.
    """
    table = rows_table([row for row, _ in emitted], schema)
    return table.append_column(TIME, pa.array([at for _, at in emitted], pa.int64()))


def freezer(schema: Schema, *, checks: bool) -> Callable[[Any], Any] | None:
    """Return a function that freezes rows of user code, so that nobody changes them.

    Rows may hold lists that are state, and handles that serve the next key soon. None
    if a tuple of these columns is frozen as it is.

    Args:
        schema: The declared columns.
        checks: Check all values now, so that a bad one is told apart from the rest.
    """
    codecs = [(i, f.name, codec_of(f.type)) for i, f in enumerate(schema.fields)]
    wanted = codecs if checks else [c for c in codecs if c[2].is_mutable]
    names = schema.names
    if not wanted:
        return None

    def freeze(row: Any) -> tuple[Any, ...]:
        values = list(as_tuple(row, names))
        for i, name, codec in wanted:
            try:
                values[i] = codec.checked(values[i])
            except (TypeError, ValueError, ArithmeticError) as error:
                raise _bad_value(name, codec.type, values[i], error) from error
        return tuple(values)

    return freeze


def check_rows(rows: Any) -> None:
    """Refuse what is not rows, but a row, or nothing that can be gone through.

    Raises:
        RowError: It is such.
    """
    if isinstance(rows, str | bytes | dict | Record):
        kind = type(rows).__name__
        message = f"yield the row, or return a list of rows, instead of a {kind}"
        raise RowError(message)
    if not isinstance(rows, Iterable):
        message = f"yield rows, or return a list of rows; got {rows!r:.200}"
        raise RowError(message)


def as_tuple(row: Any, names: tuple[str, ...]) -> tuple[Any, ...]:
    """Return a row that user code emitted as a tuple in column order.

    Raises:
        RowError: It has other columns.
    """
    if isinstance(row, dict):
        unknown = [n for n in row if n not in names]
        if unknown:
            raise RowError(_unknown_column(unknown[0], names, row))
        return tuple(row.get(n) for n in names)
    if isinstance(row, Record):
        known = row.as_dict()
        return as_tuple({n: v for n, v in known.items() if n in names}, names)
    if isinstance(row, tuple | list) and len(row) == len(names):
        return tuple(row)
    if len(names) == 1 and not isinstance(row, tuple | list):
        return (row,)
    if all(hasattr(row, n) for n in names):  # a dataclass
        return tuple(getattr(row, n) for n in names)
    columns = f"{len(names)} values ({', '.join(names)})"
    if isinstance(row, tuple | list):
        message = f"a row needs {columns}, got {len(row)}: {row!r:.200}"
    else:
        message = (
            f"a row needs {columns}, got {row!r:.200}; yield rows, or return a list of"
            " rows"
        )
    raise RowError(message)


def _unknown_column(name: object, names: tuple[str, ...], row: object) -> str:
    near = did_you_mean(name, names)
    told = f"a row has no column {name!r}, only {', '.join(names)}, got {row!r:.200}"
    return f"{told} ({near})" if near else told


def _array(values: list[Any], name: str, kind: Type) -> pa.Array:
    codec = codec_of(kind)
    try:
        if codec.plain is None:
            values = [None if v is None else codec.normalise(v) for v in values]
        if codec.to_arrow is not None:
            values = [None if v is None else codec.to_arrow(v) for v in values]
        return pa.array(values, kind.to_arrow())
    except (TypeError, ValueError, ArithmeticError, pa.ArrowException) as error:
        found = next((v for v in values if _is_bad(v, codec.normalise)), None)
        raise _bad_value(name, kind, found, error) from error


def _bad_value(name: str, kind: Type, found: Any, error: Exception) -> RowError:
    text = f"column {name!r} needs {kind.ddl}, got {found!r:.200}"
    return RowError(f"{text} ({error})")


def _is_bad(value: Any, normalise: Any) -> bool:
    try:
        if value is not None:
            normalise(value)
    except (TypeError, ValueError, ArithmeticError):
        return True
    return False


def sequence(n: int, partition: int) -> pa.Array:
    """Return positions for rows that a task made: task first, then order."""
    return pa.array(np.arange(n, dtype=np.int64) + (partition << 40))
