"""``top``: the best records of each key, as rows that change."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import msgspec

from riverlock.core.errors import InvalidFlowError
from riverlock.core.types import Field, Schema, Type
from riverlock.flow.operators import BuiltIn, bind
from riverlock.state.spec import Value

if TYPE_CHECKING:
    from riverlock.flow.process import Process

__all__ = ["Top", "ranked"]

RANK = "rank"
_UNORDERED = ("array", "map", "struct")


def ranked(columns: Schema, by: str) -> Schema:
    """Return the columns of a ranking: those of the input, then the rank.

    Raises:
        InvalidFlowError: The input cannot be ranked by that column.
    """
    if by not in columns.names:
        raise InvalidFlowError(
            "by of top", expected=f"one of {', '.join(columns.names)}", found=repr(by)
        )
    if columns[by].kind in _UNORDERED:
        raise InvalidFlowError(
            "by of top",
            expected="a column of numbers, text, times or truth values",
            found=f"{by} {columns[by].ddl}",
        )
    if RANK in columns.names:
        raise InvalidFlowError(
            "input of top",
            expected=f"no column {RANK!r}, which top adds",
            found=columns.ddl,
            hint="give it another name before, with .select(...)",
        )
    return Schema((*columns.fields, Field(RANK, Type("int"))))


class Top(BuiltIn):
    """Keeps the n best records of a key; gives the ranks that an epoch changed.

    A ranking only grows and moves down, so every rank that was given once is given
    again when another record takes it: an upsert by key and rank is the ranking.
    """

    ranking: Any
    # The ranking at the start of the key's turn, once the turn has changed it.
    _before: list[Any] | None = None

    def __init__(self, n: int, by: str, *, descending: bool) -> None:
        """Take how many, by which column, and which end of it is the best."""
        self._n = n
        self._by = by
        self._descending = descending

    def bound(self, keys: Schema, columns: Schema) -> Process:
        """Declare the ranking, best first."""
        output = ranked(columns, self._by)
        self._place = columns.names.index(self._by)
        row = Type("struct", fields=columns.fields)
        ranking = Value(Type("array", element=row), default=[])
        return bind(self, output, {"ranking": ranking})

    def on_event(self, record: Any, ctx: Any) -> None:
        """Let the record take its rank; the engine asks for the result at the end."""
        rows, row = self.ranking, tuple(record)
        rank = len(rows)
        # From the worst up: most records beat none of the ranking.
        while rank and self._beats(row, msgspec.structs.astuple(rows[rank - 1])):
            rank -= 1
        if rank == self._n:
            return
        if self._before is None:
            self._before = rows
        self.ranking = [*rows[:rank], row, *rows[rank : self._n - 1]]

    def _beats(self, new: tuple[Any, ...], old: tuple[Any, ...]) -> bool:
        """Tell whether a record is better than one that came before it."""
        a, b = new[self._place], old[self._place]
        if a is None or b is None:
            return b is None and a is not None
        return _is_greater(a, b) if self._descending else _is_greater(b, a)

    def _result(self, ctx: Any) -> list[Any]:
        """Give the ranks of the key that have another record than before."""
        before, self._before = self._before, None
        if before is None:
            return []
        return [
            (*msgspec.structs.astuple(row), place + 1)
            for place, row in enumerate(self.ranking)
            if place >= len(before) or row != before[place]
        ]


def _is_greater(a: Any, b: Any) -> bool:
    """Compare as Spark does: NaN is the greatest number."""
    return bool(a > b) or (_is_nan(a) and not _is_nan(b))


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)
