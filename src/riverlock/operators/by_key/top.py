"""``top``: the best records of each key, as rows that change."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import msgspec

from riverlock.core.errors import InvalidFlowError
from riverlock.core.types import Field, Schema, Type
from riverlock.operators.base import bind
from riverlock.operators.keyed.key_by_key import KeyByKey
from riverlock.operators.keyed_method import KeyedMethod
from riverlock.state.spec import Value

if TYPE_CHECKING:
    from riverlock.flow.stream import Stream
    from riverlock.operators.base import BuiltIn
    from riverlock.operators.keyed.context import OperatorContext

__all__ = ["Ranking", "Top", "TopMethod", "ranked"]

RANK = "rank"
_UNORDERED = ("array", "map", "struct")


def ranked(columns: Schema, by: str) -> Schema:
    """Return the columns of a ranking: those of the input, then the rank.

    Raises:
        InvalidFlowError: The input cannot be ranked by that column.
    """
    if by not in columns.names:
        raise InvalidFlowError(
            "top(by=)",
            expected=f"one of the columns {', '.join(columns.names)}",
            found=repr(by),
        )
    if columns[by].kind in _UNORDERED:
        raise InvalidFlowError(
            "top(by=)",
            expected="a column of numbers, text, times or booleans",
            found=f"{by} {columns[by].ddl}",
        )
    if RANK in columns.names:
        raise InvalidFlowError(
            "top()",
            expected=f"no column {RANK!r}, which top adds",
            found=columns.ddl,
            hint="rename it before, with .select(...)",
        )
    return Schema((*columns.fields, Field(RANK, Type("int"))))


class Ranking:
    """Which of two records is better, and the n best of some."""

    def __init__(self, n: int, by: str, *, descending: bool) -> None:
        """Take how many, by which column, and which end of it is the best.

        Raises:
            InvalidFlowError: The number is impossible.
        """
        if type(n) is not int or n < 1:
            raise InvalidFlowError(
                "top(n=)", expected="a whole number of at least 1", found=repr(n)
            )
        self._n, self.by, self._descending = n, by, descending

    def take(self, columns: Schema) -> None:
        """Learn where the column is."""
        self._place = columns.names.index(self.by)

    def placed(
        self, rows: list[tuple[Any, ...]], row: tuple[Any, ...]
    ) -> list[tuple[Any, ...]]:
        """Return a ranking, best first, with one more record; itself if none."""
        rank = len(rows)
        # From the worst up: most records beat none of the ranking.
        while rank and self._beats(row, rows[rank - 1]):
            rank -= 1
        if rank == self._n:
            return rows
        return [*rows[:rank], row, *rows[rank : self._n - 1]]

    def _beats(self, new: tuple[Any, ...], old: tuple[Any, ...]) -> bool:
        """Tell whether a record is better than one that came before it."""
        a, b = new[self._place], old[self._place]
        if a is None or b is None:
            return b is None and a is not None
        return _is_greater(a, b) if self._descending else _is_greater(b, a)


class Top(KeyByKey):
    """Keeps the n best records of a key; emits the ranks that an epoch changed.

    A ranking only grows and moves down, so every rank that was emitted once is emitted
    again when another record takes it: an upsert by key and rank is the ranking.
    """

    keeps_all_keys = True

    ranking: Any
    # The key's turn: its ranking before, and now.
    _turn: tuple[list[Any], list[Any]] | None = None

    def __init__(self, ranking: Ranking) -> None:
        """Take what is best."""
        self._ranking = ranking

    def bound(self, keys: Schema, columns: Schema) -> BuiltIn:
        """Declare the ranking, best first."""
        output = ranked(columns, self._ranking.by)
        self._ranking.take(columns)
        row = Type("struct", fields=columns.fields)
        ranking = Value(Type("array", element=row), default=[])
        return bind(self, output, {"ranking": ranking})

    def on_event(self, record: Any, ctx: OperatorContext) -> None:
        """Let the record take its rank; the engine asks for the result at the end."""
        if self._turn is None:
            stored = [msgspec.structs.astuple(row) for row in self.ranking]
            self._turn = stored, stored
        before, now = self._turn
        self._turn = before, self._ranking.placed(now, tuple(record))

    def end_key(self, ctx: OperatorContext) -> list[Any]:
        """Emit the ranks of the key that have another record than before."""
        turn, self._turn = self._turn, None
        if turn is None or turn[0] is turn[1]:
            return []
        before, now = turn
        self.ranking = now
        return [
            (*row, place + 1)
            for place, row in enumerate(now)
            if place >= len(before) or row != before[place]
        ]


def _is_greater(a: Any, b: Any) -> bool:
    """Compare as Spark does: NaN is the greatest number."""
    return bool(a > b) or (_is_nan(a) and not _is_nan(b))


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


class TopMethod(KeyedMethod):
    """``top`` of keyed streams."""

    def top(
        self, n: int, by: str, *, descending: bool = True, uid: str | None = None
    ) -> Stream:
        """Keep the ``n`` best records of each key by a column.

        Emits the input's columns and ``rank`` (1 is the best). Each epoch emits the
        ranks that have another record than before: written as upserts by key and rank,
        they are the ranking. Of equal records the earlier one ranks higher; null is
        worse than any value.
        """
        process = Top(Ranking(n, by, descending=descending))
        self._check_column("top", by)
        columns = self._columns
        output = None if columns is None else ranked(columns, by)
        return self._apply("top", process, uid, output=output)
