"""``running_count``: with each record, how many its key has had."""

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

__all__ = ["RunningCount", "RunningCountMethod"]


class RunningCount(KeyByKey):
    """Numbers the records of a key."""

    keeps_all_keys = True
    n: Any

    def bound(self, keys: Schema, columns: Schema) -> BuiltIn:
        """Declare the counter."""
        output = Schema((*keys.fields, Field("count", Type("long"))))
        self._width = len(keys.fields)
        return bind(self, output, {"n": Value("long", default=0)})

    def on_event(self, record: Any, ctx: OperatorContext) -> list[Any]:
        """Count one."""
        self.n += 1
        return [(*key_tuple(ctx.key, self._width), self.n)]


class RunningCountMethod(KeyedMethod):
    """``running_count`` of keyed streams."""

    def running_count(self, *, uid: str | None = None) -> Stream:
        """Number the records of each key: emits key columns and ``count`` per record.

        The order is that of the input; ``count`` emits a key once per epoch.
        """
        return self._apply("running_count", RunningCount(), uid)
