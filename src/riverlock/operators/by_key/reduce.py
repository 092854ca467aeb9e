"""``reduce``: the records of a key folded into one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from riverlock.core.types import Schema, Type
from riverlock.operators.base import bind
from riverlock.operators.keyed.key_by_key import KeyByKey
from riverlock.operators.keyed_method import KeyedMethod
from riverlock.program.signatures import check_function
from riverlock.state.columns.python_rows import as_tuple
from riverlock.state.spec import Value

if TYPE_CHECKING:
    from collections.abc import Callable

    from riverlock.flow.stream import Stream
    from riverlock.operators.base import BuiltIn
    from riverlock.operators.keyed.context import OperatorContext

__all__ = ["Reduce", "ReduceMethod"]


class Reduce(KeyByKey):
    """Folds records of the input's own columns."""

    keeps_all_keys = True

    lends = True
    folded: Any

    def __init__(self, function: Callable[[Any, Any], Any]) -> None:
        """Keep the function."""
        self._function = function

    def bound(self, keys: Schema, columns: Schema) -> BuiltIn:
        """Declare the fold as a struct of the input's columns."""
        struct = Type("struct", fields=columns.fields)
        self._names = columns.names
        return bind(self, columns, {"folded": Value(struct)})

    def on_event(self, record: Any, ctx: OperatorContext) -> list[Any]:
        """Fold one record in."""
        old = self.folded
        self.folded = record if old is None else self._function(old, record)
        return [self._row(self.folded)]

    def _row(self, value: Any) -> tuple[Any, ...]:
        if isinstance(value, dict):
            return tuple(value.get(n) for n in self._names)
        if isinstance(value, tuple):
            return value
        return as_tuple(value, self._names)


class ReduceMethod(KeyedMethod):
    """``reduce`` of keyed streams."""

    def reduce(
        self, function: Callable[[Any, Any], Any], *, uid: str | None = None
    ) -> Stream:
        """Fold the records of each key: ``function(old, new)`` returns a record or row.

        Emits one row per record: the fold so far, with the columns of the input.
        """
        check_function("reduce()", function, 2, of="two records")
        return self._apply("reduce", Reduce(function), uid)
