"""Declarative operators as processes: one engine for all of them.

Their state and output depend on the columns of the input, which Spark tells when the
flow is compiled: ``bound`` then returns the process with everything filled in.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from riverlock.core.times import duration
from riverlock.core.types import Field, Schema, SchemaLike, Type, schema_of, type_of
from riverlock.operators.aggregates.partial import (
    Merge,
    PartialAggregate,
    columns_of,
    finisher,
    merger,
    merges_of,
)
from riverlock.program.process import Process, SideOutput
from riverlock.state.spec import StateSpec, Value

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from datetime import timedelta

__all__ = [
    "GONE",
    "LATE",
    "UPDATES",
    "Aggregate",
    "BuiltIn",
    "Count",
    "MapWithState",
    "Reduce",
    "UpdateState",
    "bind",
    "lends_objects",
    "partial_states",
    "results_of",
]


# The side output of records that came too late; they are counted.
LATE = "late"
# The output of windows with every change of theirs, not only what is final.
UPDATES = "updates"
# The column of updates that says that a row is taken back.
GONE = "gone"


class BuiltIn(Process):
    """A process whose state is declared once the input's columns are known.

    Attributes:
        sides: Names of its side outputs, which are declared together with the state.
        lends: Whether functions of the user are given its values, and may change them
            in place. Our own code assigns what it changes.
    """

    sides: tuple[str, ...] = ()
    lends = False

    def bound(self, keys: Schema, columns: Schema) -> Process:
        """Return the process for an input."""
        raise AssertionError

    def updated(self, output: Schema) -> Schema:
        """Return the columns of its updates; given are those of its rows."""
        return output


def lends_objects(process: Process) -> bool:
    """Tell whether code of the user may change values of the state in place."""
    return process.lends if isinstance(process, BuiltIn) else True


def bind(
    process: BuiltIn, output: Schema, attributes: Mapping[str, StateSpec | SideOutput]
) -> BuiltIn:
    """Return a copy of a process whose class declares state and side outputs."""
    kind = type(process)
    made = type(kind.__name__, (kind,), {"__module__": kind.__module__, **attributes})
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
        return bind(self, output, {"n": Value("long", default=0)})

    def on_event(self, record: Any, ctx: Any) -> list[Any]:
        """Count one."""
        self.n += 1
        return [(*_key_values(ctx.key, self._width), self.n)]


class Reduce(BuiltIn):
    """Folds records of the input's own columns."""

    lends = True
    folded: Any

    def __init__(self, function: Callable[[Any, Any], Any]) -> None:
        """Keep the function."""
        self._function = function

    def bound(self, keys: Schema, columns: Schema) -> Process:
        """Declare the fold as a struct of the input's columns."""
        struct = Type("struct", fields=columns.fields)
        self._names = columns.names
        return bind(self, columns, {"folded": Value(struct)})

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

    def bound(self, keys: Schema, columns: Schema) -> Process:
        """Declare the state and the pending timeout."""
        states: dict[str, StateSpec] = {"state": Value(self._state_type)}
        if self._timeout is not None:
            states["deadline"] = Value("timestamp")
        return bind(self, self._output, states)

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
        return bind(self, output, states)

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
    """Merges partial aggregates that Spark computed, one row per key and task."""

    def __init__(self, aggregates: Mapping[str, PartialAggregate]) -> None:
        """Take what the compiler found in the user's expressions."""
        self.aggregates = dict(aggregates)

    @property
    def merges(self) -> list[Merge]:
        """How partial columns are merged."""
        return merges_of(self.aggregates)

    def bound(self, keys: Schema, columns: Schema) -> Process:
        """Declare one value per partial aggregate."""
        fields = [Field(n, each.type) for n, each in self.aggregates.items()]
        self._width = len(keys.fields)
        self._merges = [(tuple(m.columns), merger(m.how)) for m in self.merges]
        output = Schema((*keys.fields, *fields))
        return bind(self, output, partial_states(self.aggregates))

    def on_event(self, record: Any, ctx: Any) -> None:
        """Merge one partial row; the engine asks for the result at the end."""
        mine = self.__dict__
        for names, merge in self._merges:
            old = tuple(map(mine.get, names))
            new = tuple(record[n] for n in names)
            for name, value in zip(names, merge(old, new), strict=True):
                if value is not None:
                    mine[name] = value

    def _result(self, ctx: Any) -> list[Any]:
        """Give the aggregates of a key that changed."""
        mine = {n: [v] for n, v in self.__dict__.items()}
        values = [column[0] for column in results_of(self.aggregates, mine, 1)]
        return [(*_key_values(ctx.key, self._width), *values)]


def partial_states(
    aggregates: Mapping[str, PartialAggregate],
) -> dict[str, StateSpec]:
    """Return the state that partial aggregates are kept in."""
    return {name: Value(kind) for name, kind in columns_of(aggregates).items()}


def results_of(
    aggregates: Mapping[str, PartialAggregate],
    columns: Mapping[str, Sequence[Any]],
    size: int,
) -> list[list[Any]]:
    """Return the results of many keys from their partial columns."""
    unset = [None] * size
    return [
        list(
            map(
                finisher(each.type, each.result),
                *(columns.get(name, unset) for name in each.columns),
            )
        )
        for each in aggregates.values()
    ]
