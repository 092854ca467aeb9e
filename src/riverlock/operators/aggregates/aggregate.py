"""Aggregates of a key: what Spark has combined, merged into state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from riverlock.core.types import Field, Schema
from riverlock.operators.aggregates.collected import with_folds
from riverlock.operators.aggregates.folding import fold
from riverlock.operators.aggregates.partial import (
    merger,
    merges_of,
    partial_states,
    results_of,
)
from riverlock.operators.base import bind, key_tuple
from riverlock.operators.keyed.key_by_key import KeyByKey

if TYPE_CHECKING:
    from collections.abc import Mapping

    from riverlock.operators.aggregates.partial import Merge, PartialAggregate
    from riverlock.operators.base import BuiltIn, Work
    from riverlock.operators.effects import Effects
    from riverlock.operators.keyed.context import OperatorContext
    from riverlock.operators.task_input import KeyedInput

__all__ = ["Aggregate"]


class Aggregate(KeyByKey):
    """Merges partial aggregates that Spark computed, one row per key and task."""

    def __init__(
        self,
        aggregates: Mapping[str, PartialAggregate],
        formerly: Mapping[str, str] | None = None,
    ) -> None:
        """Take what the compiler found in the user's expressions.

        Args:
            aggregates: By the name of their column.
            formerly: Names that their stored parts had in older stores.
        """
        self.aggregates = dict(aggregates)
        self._formerly = dict(formerly or {})

    @property
    def merges(self) -> list[Merge]:
        """How partial columns are merged."""
        return merges_of(self.aggregates)

    def bound(self, keys: Schema, columns: Schema) -> BuiltIn:
        """Declare one value per partial aggregate."""
        fields = [Field(n, each.type) for n, each in self.aggregates.items()]
        self._width = len(keys.fields)
        self._merges = [(tuple(m.columns), merger(m.how)) for m in self.merges]
        output = Schema((*keys.fields, *fields))
        return bind(self, output, partial_states(self.aggregates, self._formerly))

    def prepared(self, work: Work) -> Work:
        """Fold what Spark has only collected."""
        return with_folds(work, self.aggregates)

    def at_once(self, work: Work, data: KeyedInput | None) -> Effects | None:
        """Merge by column, if there are only numbers."""
        if data is None or work.program.has_dead_letters:
            return None
        return fold(work, data, self)

    def on_event(self, record: Any, ctx: OperatorContext) -> None:
        """Merge one partial row; the engine asks for the result at the end."""
        mine = self.__dict__
        for names, merge in self._merges:
            old = tuple(map(mine.get, names))
            new = tuple(record[n] for n in names)
            for name, value in zip(names, merge(old, new), strict=True):
                if value is not None:
                    mine[name] = value

    def end_key(self, ctx: OperatorContext) -> list[Any]:
        """Emit the aggregates of a key that changed."""
        mine = {n: [v] for n, v in self.__dict__.items()}
        values = [column[0] for column in results_of(self.aggregates, mine, 1)]
        return [(*key_tuple(ctx.key, self._width), *values)]
