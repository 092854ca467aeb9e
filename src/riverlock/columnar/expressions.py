"""Expressions as data: what a column, a literal and a call yield for given rows.

They are compared and found by identity: an expression that occurs twice is one object,
which the compiler sees to, and is evaluated once.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from riverlock.columnar.arrays import array_of, constant, nulled, scattered, valid
from riverlock.columnar.kernels import KERNELS
from riverlock.columnar.rows import Rows
from riverlock.columnar.wrong import Fault

if TYPE_CHECKING:
    from riverlock.columnar.kernels import Kernel
    from riverlock.core.types import Type

__all__ = ["Call", "Column", "Expression", "Literal", "Moment"]

# Rows of a table are evaluated in pieces, each less than what Arrow can hold at once.
_PIECE_BYTES = 1 << 30


@dataclass(frozen=True, eq=False)
class Expression:
    """Something with a value for each row."""

    type: Type

    @cached_property
    def can_fail(self) -> bool:
        """Whether there are values that it raises for."""
        return False

    def over(self, rows: Rows) -> pa.Array:
        """Return its values; ``Rows.value`` calls it once."""
        raise NotImplementedError

    def evaluate(self, table: pa.Table, *, now_us: int = 0) -> pa.ChunkedArray:
        """Return its values for the rows of a table.

        Raises:
            WrongValueError: Spark raises for one of the rows, too.
        """
        kind = self.type.to_arrow()
        found = [rows.value(self) for rows in pieces(table, now_us)]
        return pa.chunked_array(found, kind)


def pieces(table: pa.Table, now_us: int) -> list[Rows]:
    """Return the rows of a table, in one piece unless they are too large for that."""
    if table.nbytes < _PIECE_BYTES:
        columns = {
            name: _whole(table.column(place))
            for place, name in enumerate(table.column_names)
        }
        return [Rows(columns, table.num_rows, now_us)]
    return [
        Rows(dict(zip(b.schema.names, b.columns, strict=True)), b.num_rows, now_us)
        for b in table.to_batches()
    ]


def _whole(column: pa.ChunkedArray) -> pa.Array:
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else _none(column.type)


def _none(kind: pa.DataType) -> pa.Array:
    return pa.array([], kind)


@dataclass(frozen=True, eq=False)
class Column(Expression):
    """A column of the table."""

    name: str

    def over(self, rows: Rows) -> pa.Array:
        """Return the column, in the type that Spark gives to it."""
        found, kind = rows.column(self.name), self.type.to_arrow()
        return found if found.type == kind else found.cast(kind)


@dataclass(frozen=True, eq=False)
class Literal(Expression):
    """The same value in each row."""

    # In the form that Arrow takes it in; None: null.
    value: Any

    def over(self, rows: Rows) -> pa.Array:
        """Return it for each row."""
        return constant(self.value, self.type.to_arrow(), rows.size)


@dataclass(frozen=True, eq=False)
class Moment(Expression):
    """The time of day: that of the epoch."""

    def over(self, rows: Rows) -> pa.Array:
        """Return it for each row."""
        return array_of(np.full(rows.size, rows.now_us, np.int64), self.type)


@dataclass(frozen=True, eq=False)
class Call(Expression):
    """A function of other expressions, all of which have a value for each row."""

    name: str
    arguments: tuple[Expression, ...]
    # What else the function needs, such as a pattern or a zone.
    options: tuple[Any, ...] = ()
    # Where the function fails the value is null.
    is_tried: bool = False
    # The text that Spark shows for it, to name it in an error.
    text: str = field(default="", repr=False)

    @property
    def kernel(self) -> Kernel:
        """What computes it."""
        return KERNELS[self.name]

    @cached_property
    def can_fail(self) -> bool:
        """Whether there are values that it raises for."""
        if not self.is_tried and self.kernel.can_fail(self):
            return True
        return any(a.can_fail for a in self.arguments)

    def over(self, rows: Rows) -> pa.Array:
        """Return its values."""
        if self.kernel.of_values and any(a.can_fail for a in self.arguments[1:]):
            return self._in_order(rows)
        return self._called(rows, [rows.value(a) for a in self.arguments])

    def _in_order(self, rows: Rows) -> pa.Array:
        """Do as Spark does: what follows a null is not evaluated, and cannot fail."""
        places = np.arange(rows.size)
        part, found = rows, list[pa.Array]()
        for argument in self.arguments:
            if argument.can_fail and found:
                is_valid = valid(found[-1])
                if is_valid is not None:
                    kept = np.flatnonzero(is_valid)
                    places, part = places[kept], part.part(kept)
                    taken = array_of(kept, pa.int64())
                    found = [each.take(taken) for each in found]
            found.append(part.value(argument))
        made = self._called(part, found)
        if part is rows:
            return made
        return scattered([(places, made)], made.type, rows.size)

    def _called(self, rows: Rows, arguments: list[pa.Array]) -> pa.Array:
        found = self.kernel.function(self, arguments)
        if not isinstance(found, Fault):
            return found
        if self.is_tried:
            return nulled(found.values, found.wrong)
        rows.fail(found)
        return found.values
