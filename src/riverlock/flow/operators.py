"""Declarative operators as processes: one engine for all of them.

Their state and output depend on the columns of the input, which Spark tells when the
flow is compiled: ``bound`` then returns the process with everything filled in.
"""

from __future__ import annotations

import decimal
from typing import TYPE_CHECKING, Any

from riverlock.core.times import duration
from riverlock.core.types import Field, Schema, SchemaLike, Type, schema_of, type_of
from riverlock.flow.process import Process
from riverlock.state.spec import StateSpec, Value

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from datetime import timedelta

__all__ = ["Aggregate", "BuiltIn", "Count", "MapWithState", "Reduce", "UpdateState"]


class BuiltIn(Process):
    """A process whose state is declared once the input's columns are known."""

    def bound(self, keys: Schema, columns: Schema) -> Process:
        """Return the process for an input."""
        raise AssertionError


def _bind(process: BuiltIn, output: Schema, states: dict[str, StateSpec]) -> BuiltIn:
    """Return a copy of a process whose class declares the given state."""
    kind = type(process)
    made = type(kind.__name__, (kind,), {"__module__": kind.__module__, **states})
    bound: BuiltIn = object.__new__(made)
    bound.__dict__.update(process.__dict__)
    bound.output = output
    return bound


def _key_values(key: Any, width: int) -> tuple[Any, ...]:
    return (key,) if width == 1 else key


class Count(BuiltIn):
    """Counts the records of a key."""

    n: Any

    def bound(self, keys: Schema, columns: Schema) -> Process:
        """Declare the counter."""
        output = Schema((*keys.fields, Field("count", Type("long"))))
        self._width = len(keys.fields)
        return _bind(self, output, {"n": Value("long", default=0)})

    def on_event(self, record: Any, ctx: Any) -> list[Any]:
        """Count one."""
        self.n += 1
        return [(*_key_values(ctx.key, self._width), self.n)]


class Reduce(BuiltIn):
    """Folds records of the input's own columns."""

    folded: Any

    def __init__(self, function: Callable[[Any, Any], Any]) -> None:
        """Keep the function."""
        self._function = function

    def bound(self, keys: Schema, columns: Schema) -> Process:
        """Declare the fold as a struct of the input's columns."""
        struct = Type("struct", fields=columns.fields)
        self._names = columns.names
        return _bind(self, columns, {"folded": Value(struct)})

    def on_event(self, record: Any, ctx: Any) -> list[Any]:
        """Fold one record in."""
        old = self.folded
        self.folded = record if old is None else self._function(old, record)
        return [self._row(self.folded)]

    def _row(self, value: Any) -> tuple[Any, ...]:
        if isinstance(value, dict):
            return tuple(value.get(n) for n in self._names)
        if isinstance(value, tuple):
            return value
        return tuple(getattr(value, n) for n in self._names)


class MapWithState(BuiltIn):
    """A function of record and state, with an optional timeout."""

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

    def bound(self, keys: Schema, columns: Schema) -> Process:
        """Declare the state and the pending timeout."""
        states: dict[str, StateSpec] = {"state": Value(self._state_type)}
        if self._timeout is not None:
            states["deadline"] = Value("timestamp")
        return _bind(self, self._output, states)

    def on_event(self, record: Any, ctx: Any) -> list[Any]:
        """Call the function and put the timeout off."""
        row, self.state = self._function(record, self.state)
        if self._timeout is not None:
            self._postpone(ctx)
        return [] if row is None else [row]

    def _postpone(self, ctx: Any) -> None:
        if self.deadline is not None:
            ctx.delete_timer(self.deadline, processing=True)
        if self.state is None:
            self.deadline = None
            return
        self.deadline = ctx.now + self._timeout
        ctx.set_timer(self.deadline, processing=True)

    def on_timer(self, at: Any, ctx: Any) -> list[Any]:
        """Give the function a last word and forget the key."""
        row, _ = self._function(None, self.state)
        self.state = None
        self.deadline = None
        return [] if row is None else [row]


class UpdateState(BuiltIn):
    """A function of all new records and the state, for every key in every epoch."""

    key: Any
    state: Any
    _values: list[Any]

    def __init__(self, function: Callable[..., Any], state: Any) -> None:
        """Check the type now, while the user's line is on the stack."""
        self._function = function
        self._state_type = type_of(state)

    def bound(self, keys: Schema, columns: Schema) -> Process:
        """Declare the state; the key is stored to be visited without records."""
        output = Schema((*keys.fields, Field("state", self._state_type)))
        self._keys = keys
        states: dict[str, StateSpec] = {
            "key": Value(Type("struct", fields=keys.fields)),
            "state": Value(self._state_type),
        }
        return _bind(self, output, states)

    def on_event(self, record: Any, ctx: Any) -> None:
        """Collect the record; the engine empties ``_values`` before each key."""
        self._values.append(record)

    def _result(self, ctx: Any) -> Iterator[Any]:
        """Compute the new state of a key."""
        self.state = self._function(self._values, self.state)
        if self.state is None:
            self.key = None
            return
        key = _key_values(ctx.key, len(self._keys.fields))
        self.key = dict(zip(self._keys.names, key, strict=True))
        yield (*key, self.state)


class Aggregate(BuiltIn):
    """Merges partial aggregates that Spark computed, one row per key and task.

    Attributes:
        parts: Column -> how two partial values merge.
        results: Output column -> how it follows from the parts.
    """

    def __init__(
        self,
        parts: dict[str, tuple[Type, str]],
        results: dict[str, tuple[Type, str, tuple[str, ...]]],
    ) -> None:
        """Take what the compiler found in the user's expressions."""
        self._merges = [(name, _MERGES[how]) for name, (_, how) in parts.items()]
        self.parts = parts
        self._results = results

    def bound(self, keys: Schema, columns: Schema) -> Process:
        """Declare one value per partial aggregate."""
        fields = [Field(n, t) for n, (t, _, _) in self._results.items()]
        self._width = len(keys.fields)
        self._finish = [
            (_finisher(kind, how), names) for kind, how, names in self._results.values()
        ]
        states: dict[str, StateSpec] = {n: Value(t) for n, (t, _) in self.parts.items()}
        return _bind(self, Schema((*keys.fields, *fields)), states)

    def on_event(self, record: Any, ctx: Any) -> None:
        """Merge one partial row; the engine asks for the result at the end."""
        mine = self.__dict__
        for name, merge in self._merges:
            new = getattr(record, name)
            if new is not None:
                old = mine.get(name)
                mine[name] = new if old is None else merge(old, new)

    def _result(self, ctx: Any) -> list[Any]:
        """Give the aggregates of a key that changed."""
        get = self.__dict__.get
        values = [finish(*map(get, names)) for finish, names in self._finish]
        return [(*_key_values(ctx.key, self._width), *values)]

    def finished(self, columns: Mapping[str, Sequence[Any]]) -> list[list[Any]]:
        """Return the results of many keys, column by column."""
        return [
            list(map(finish, *(columns[name] for name in names)))
            for finish, names in self._finish
        ]


# Sums of decimal(38) need more digits than Python's default context keeps.
_EXACT = decimal.Context(prec=76)


def _add(a: Any, b: Any) -> Any:
    return _EXACT.add(a, b) if isinstance(a, decimal.Decimal) else a + b


def _least(a: Any, b: Any) -> Any:
    return b if b < a or _is_nan(a) else a


def _greatest(a: Any, b: Any) -> Any:
    return b if b > a or _is_nan(b) else a


def _is_nan(value: Any) -> bool:
    """Whether it is the number that is greater than all others, for Spark."""
    return isinstance(value, float) and value != value


_MERGES: dict[str, Callable[[Any, Any], Any]] = {
    "sum": _add,
    "min": _least,
    "max": _greatest,
}


def _same(value: Any) -> Any:
    return value


def _count(value: Any) -> int:
    return value or 0


def _average(total: Any, n: Any) -> Any:
    return total / n if n else None


def _decimal_average(scale: int) -> Callable[..., Any]:
    unit = decimal.Decimal(1).scaleb(-scale)

    def finish(total: Any, n: Any) -> Any:
        if not n:
            return None
        exact = _EXACT.divide(total, decimal.Decimal(n))
        return exact.quantize(unit, decimal.ROUND_HALF_UP, _EXACT)

    return finish


def _finisher(kind: Type, how: str) -> Callable[..., Any]:
    if how == "avg" and kind.kind == "decimal":
        return _decimal_average(kind.scale)
    return _RESULTS[how]


_RESULTS: dict[str, Callable[..., Any]] = {
    "same": _same,
    "count": _count,
    "avg": _average,
}
