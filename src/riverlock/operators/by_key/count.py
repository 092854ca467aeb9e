"""``count``: how many records a key has had."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from riverlock.core.types import Field, Schema, Type
from riverlock.operators.base import bind, key_tuple
from riverlock.operators.keyed.key_by_key import KeyByKey
from riverlock.operators.keyed_method import KeyedMethod
from riverlock.state.spec import Value

if TYPE_CHECKING:
    from riverlock.flow.stream import Stream
    from riverlock.operators.base import BuiltIn
    from riverlock.operators.keyed.context import OperatorContext

__all__ = ["Count", "CountMethod"]

# What older versions kept the count in.
_FORMERLY = {"count": "n"}


class Count(KeyByKey):
    """Counts the records of a key, where nothing has counted them before."""

    keeps_all_keys = True
    count: Any

    def bound(self, keys: Schema, columns: Schema) -> BuiltIn:
        """Declare the counter."""
        output = Schema((*keys.fields, Field("count", Type("long"))))
        self._width = len(keys.fields)
        counter = Value("long", default=0, formerly=_FORMERLY["count"])
        return bind(self, output, {"count": counter})

    def on_event(self, record: Any, ctx: OperatorContext) -> None:
        """Count one; the engine asks for the result at the end."""
        self.count += 1

    def end_key(self, ctx: OperatorContext) -> list[Any]:
        """Emit the count of a key that has had records."""
        return [(*key_tuple(ctx.key, self._width), self.count)]


class CountMethod(KeyedMethod):
    """``count`` of keyed streams."""

    def count(self, *, uid: str | None = None) -> Stream:
        """Count the records of each key: emits key columns and ``count``.

        Each epoch emits one row per key that had records, as ``agg`` does; see
        ``running_count`` for a row per record. Spark counts the rows of a key before
        they are shuffled.
        """
        return self._apply(
            "count",
            Count(),
            uid,
            aggregates={"count": "count(*)"},
            formerly=_FORMERLY,
            on_error=None,
        )
