"""``sample``: some records of each key, chosen at random, as rows that change."""

from __future__ import annotations

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

__all__ = ["Sample", "SampleMethod", "placed"]

PLACE = "place"


def placed(columns: Schema) -> Schema:
    """Return the columns of a sample: those of the input, then the place.

    Raises:
        InvalidFlowError: The input has a column of that name.
    """
    if PLACE in columns.names:
        raise InvalidFlowError(
            "sample()",
            expected=f"no column {PLACE!r}, which sample adds",
            found=columns.ddl,
            hint="rename it before, with .select(...)",
        )
    return Schema((*columns.fields, Field(PLACE, Type("int"))))


class Sample(KeyByKey):
    """Keeps a reservoir of n places per key (algorithm R).

    The record number i of a key takes a place with probability n / i, each place alike:
    so at any time every record so far is in the sample with the same probability.
    Chance comes from the epoch and the key: an epoch that is tried again, or replayed,
    chooses the same records.
    """

    keeps_all_keys = True
    seen: Any
    reservoir: Any
    # The key's turn: its sample, and the places that changed.
    _turn: tuple[list[tuple[Any, ...]], set[int]] | None = None

    def __init__(self, n: int) -> None:
        """Take how many places there are.

        Raises:
            InvalidFlowError: It is not a whole number of at least 1.
        """
        if type(n) is not int or n < 1:
            raise InvalidFlowError(
                "sample(n)", expected="a whole number of at least 1", found=repr(n)
            )
        self._n = n

    def bound(self, keys: Schema, columns: Schema) -> BuiltIn:
        """Declare the reservoir, and how many records the key has had."""
        row = Type("struct", fields=columns.fields)
        states = {
            "seen": Value("long", default=0),
            "reservoir": Value(Type("array", element=row), default=[]),
        }
        return bind(self, placed(columns), states)

    def on_event(self, record: Any, ctx: OperatorContext) -> None:
        """Let the record take a place, or none; rows are emitted when the key ends."""
        self.seen += 1
        place = self.seen - 1
        if self.seen > self._n:
            place = ctx.random.randrange(self.seen)
            if place >= self._n:
                return
        if self._turn is None:
            self._turn = [msgspec.structs.astuple(r) for r in self.reservoir], set()
        sample, changed = self._turn
        sample[place : place + 1] = [tuple(record)]
        changed.add(place)

    def end_key(self, ctx: OperatorContext) -> list[Any]:
        """Emit the places of the key that have another record than before."""
        turn, self._turn = self._turn, None
        if turn is None:
            return []
        self.reservoir, changed = turn
        return [(*turn[0][place], place + 1) for place in sorted(changed)]


class SampleMethod(KeyedMethod):
    """``sample`` of keyed streams."""

    def sample(self, n: int, *, uid: str | None = None) -> Stream:
        """Keep up to ``n`` records of each key, chosen at random.

        Emits the input's columns and ``place`` (1 to ``n``). Each epoch emits the
        places that got a record: written as upserts by key and place, they are the
        sample. At any time, all records that a key has had are equally likely to be in
        it. Which ones they are follows from the epochs: a retry, a restart and a replay
        choose the same.

        Args:
            n: How many records are kept per key, for ever.
            uid: Stable name of its state; keep it when the code changes.

        Raises:
            InvalidFlowError: ``n`` is not a whole number of at least 1, or the input
                has a column ``place``.
        """
        columns = self._columns
        output = None if columns is None else placed(columns)
        return self._apply("sample", Sample(n), uid, output=output)
