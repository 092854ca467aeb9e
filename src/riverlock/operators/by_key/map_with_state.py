"""``map_with_state``: a function of each record and the state of its key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from riverlock.core.times import duration
from riverlock.core.types import Schema, SchemaLike, schema_of, type_of
from riverlock.operators.base import bind
from riverlock.operators.keyed.key_by_key import KeyByKey
from riverlock.operators.keyed_method import KeyedMethod
from riverlock.program.signatures import check_function
from riverlock.state.columns.python_rows import RowError
from riverlock.state.spec import StateSpec, Value

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import timedelta

    from riverlock.flow.stream import Stream
    from riverlock.operators.base import BuiltIn
    from riverlock.operators.keyed.context import OperatorContext

__all__ = ["MapWithState", "MapWithStateMethod"]


class MapWithState(KeyByKey):
    """A function of record and state, with an optional timeout."""

    lends = True
    state: Any
    deadline: Any

    def __init__(
        self,
        function: Callable[..., Any],
        state: Any,
        output: SchemaLike,
        timeout: str | timedelta | None,
    ) -> None:
        """Check types now, while the user's line is on the stack."""
        self._function = function
        self._state_type = type_of(state)
        self._output = schema_of(output)
        self._timeout = None if timeout is None else duration(timeout)

    def bound(self, keys: Schema, columns: Schema) -> BuiltIn:
        """Declare the state and the pending timeout."""
        states: dict[str, StateSpec] = {"state": Value(self._state_type)}
        if self._timeout is not None:
            states["deadline"] = Value("timestamp")
        return bind(self, self._output, states)

    def on_event(self, record: Any, ctx: OperatorContext) -> list[Any]:
        """Call the function and put the timeout off."""
        row, self.state = self._called(record)
        if self._timeout is not None:
            self._postpone(self._timeout, ctx)
        return [] if row is None else [row]

    def _called(self, record: Any) -> tuple[Any, Any]:
        result = self._function(record, self.state)
        if isinstance(result, tuple) and len(result) == 2:
            return result
        message = (
            f"a function of map_with_state returns (row, state), got {result!r:.200}"
        )
        raise RowError(message)

    def _postpone(self, timeout: timedelta, ctx: OperatorContext) -> None:
        if self.deadline is not None:
            ctx.delete_timer(self.deadline, processing=True)
        if self.state is None:
            self.deadline = None
            return
        self.deadline = ctx.now + timeout
        ctx.set_timer(self.deadline, processing=True)

    def on_timer(self, at: Any, ctx: OperatorContext) -> list[Any]:
        """Let the function have a last word and forget the key."""
        row, _ = self._called(None)
        self.state = None
        self.deadline = None
        return [] if row is None else [row]


class MapWithStateMethod(KeyedMethod):
    """``map_with_state`` of keyed streams."""

    def map_with_state(
        self,
        function: Callable[[Any, Any], Any],
        state: Any,
        output: SchemaLike,
        *,
        uid: str | None = None,
        timeout: str | timedelta | None = None,
    ) -> Stream:
        """Call ``function(record, state)`` per record; cost follows the input.

        The function returns ``(row or None, new state)``; a state of None forgets the
        key. With a ``timeout`` (processing time without records) it is called once more
        with a record of None, and the key is forgotten.
        """
        check_function("map_with_state()", function, 2, of="a record and its state")
        process = MapWithState(function, state, output, timeout)
        return self._apply("map_with_state", process, uid)
