"""``update_state_by_key``: a function of every key in every epoch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from riverlock.core.types import Field, Schema, Type, type_of
from riverlock.operators.base import bind, key_tuple
from riverlock.operators.keyed.key_by_key import KeyByKey
from riverlock.operators.keyed_method import KeyedMethod
from riverlock.program.signatures import check_function
from riverlock.state.spec import StateSpec, Value

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from riverlock.flow.stream import Stream
    from riverlock.operators.base import BuiltIn
    from riverlock.operators.keyed.context import OperatorContext

__all__ = ["UpdateState", "UpdateStateMethod"]


class UpdateState(KeyByKey):
    """A function of all new records and the state, for every key in every epoch."""

    key: Any
    state: Any

    def __init__(self, function: Callable[..., Any], state: Any) -> None:
        """Check the type now, while the user's line is on the stack."""
        self._function = function
        self._state_type = type_of(state)

    def bound(self, keys: Schema, columns: Schema) -> BuiltIn:
        """Declare the state; the key is stored to be visited without records."""
        output = Schema((*keys.fields, Field("state", self._state_type)))
        self._keys = keys
        states: dict[str, StateSpec] = {
            "key": Value(Type("struct", fields=keys.fields)),
            "state": Value(self._state_type),
        }
        return bind(self, output, states)

    def open(self) -> None:
        """Begin without records."""
        self._values: list[Any] = []

    def on_event(self, record: Any, ctx: OperatorContext) -> None:
        """Collect the record."""
        self._values.append(record)

    def end_key(self, ctx: OperatorContext) -> Iterator[Any]:
        """Compute the new state of a key."""
        values, self._values = self._values, []
        self.state = self._function(values, self.state)
        if self.state is None:
            self.key = None
            return
        key = key_tuple(ctx.key, len(self._keys.fields))
        self.key = dict(zip(self._keys.names, key, strict=True))
        yield (*key, self.state)


class UpdateStateMethod(KeyedMethod):
    """``update_state_by_key`` of keyed streams."""

    def update_state_by_key(
        self,
        function: Callable[[list[Any], Any], Any],
        state: Any,
        *,
        uid: str | None = None,
    ) -> Stream:
        """Call ``function(records, state)`` for every key in every epoch.

        It is also called for keys without new records, so its cost follows the size of
        the state; ``map_with_state`` costs what it touches. The function returns the
        new state; None forgets the key. Each epoch emits the whole state: key columns
        and ``state``.
        """
        check_function(
            "update_state_by_key()", function, 2, of="the records and the state"
        )
        return self._apply(
            "update_state_by_key", UpdateState(function, state), uid, visits_all=True
        )
