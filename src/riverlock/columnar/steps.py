"""Steps that make tables of tables: columns are computed, rows left out.

A column that a step computes is evaluated when something reads it: not at all if
nothing does, and only for the rows that filters have left. Spark does the same when it
moves filters down and leaves out columns, so that a value that nobody reads raises no
error in either.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from riverlock.columnar.arrays import truths
from riverlock.columnar.expressions import pieces
from riverlock.columnar.wrong import WrongValueError
from riverlock.core.errors import UserCodeError
from riverlock.core.hidden_columns import HIDDEN

if TYPE_CHECKING:
    from riverlock.columnar.expressions import Expression
    from riverlock.columnar.rows import Rows
    from riverlock.core.types import Schema

__all__ = ["Steps"]

_SHOWN_CHARACTERS = 500


@dataclass(frozen=True, kw_only=True)
class Steps:
    """What leads from the rows before to those after; frozen, picklable.

    All expressions are over the columns of the first table: a step that reads a column
    of an earlier one has its expression.

    Attributes:
        conditions: What filters ask, in this order; rows stay for which all are true.
        columns: What comes out, hidden columns included if Spark's plan has them.
        values: An expression for each of the columns.
        name: The step as users know it, for errors.
        line: The user's line.
    """

    conditions: tuple[Expression, ...]
    columns: Schema
    values: tuple[Expression, ...]
    name: str = "step"
    line: str = ""

    def apply(self, table: pa.Table, *, now_us: int = 0) -> pa.Table:
        """Return the rows after the steps; ``now_us`` is the epoch's time.

        Hidden columns of the table that are not among the columns stay at the end.

        Raises:
            UserCodeError: Spark raises for one of the values, too.
        """
        beside = [
            name
            for name in table.column_names
            if name in HIDDEN and name not in self.columns.names
        ]
        kinds = [f.type.to_arrow() for f in self.columns.fields]
        fields = [pa.field(*f) for f in zip(self.columns.names, kinds, strict=True)]
        schema = pa.schema([*fields, *(table.schema.field(name) for name in beside)])
        made = []
        for rows in pieces(table, now_us):
            left = self._left(rows, rows)
            found = [self._value(left, each) for each in self.values]
            found += [left.column(name) for name in beside]
            made.append(pa.RecordBatch.from_arrays(found, schema=schema))
        return pa.Table.from_batches(made, schema)

    def _left(self, rows: Rows, left: Rows) -> Rows:
        for each in self.conditions:
            kept = truths(self._value(left, each))
            if not kept.all():
                left = left.part(np.flatnonzero(kept))
        return left

    def _value(self, rows: Rows, expression: Expression) -> pa.Array:
        try:
            return rows.value(expression)
        except WrongValueError as error:
            raise UserCodeError(
                operator=self.name,
                where="an expression",
                cause=str(error),
                problem=str(error),
                record=_shown(rows, error.place),
                line=self.line,
                instead="keep such records out with where(...), or write the"
                " expression with try_ functions, which yield null",
            ) from error


def _shown(rows: Rows, place: int) -> str:
    """Return a row of the table as text."""
    cells = [f"{n}={v}" for n, v in rows.shown(place).items() if n not in HIDDEN]
    return ", ".join(cells)[:_SHOWN_CHARACTERS]
