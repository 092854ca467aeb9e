"""What is kept of the records of a window, and what it emits.

Sessions, count windows and triggered windows differ in which records belong together;
what happens to these is the same for all: aggregates, a fold, or the records as such.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from riverlock.core.errors import InvalidFlowError
from riverlock.core.hidden_columns import GAP
from riverlock.core.types import Field, Schema, SchemaLike, Type, schema_of
from riverlock.core.values.record import record_maker
from riverlock.operators.aggregates.aggregator import NamedAggregator
from riverlock.operators.aggregates.collected import with_folds
from riverlock.operators.aggregates.partial import (
    PythonAggregate,
    columns_of,
    merger,
    merges_of,
    results_of,
)
from riverlock.operators.base import UPDATES
from riverlock.operators.windows.window_columns import check_output
from riverlock.state.codec import codec_of
from riverlock.state.spec import Map, StateSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from riverlock.core.values.record import Record
    from riverlock.operators.aggregates.partial import PartialAggregate
    from riverlock.operators.base import Work
    from riverlock.operators.keyed.context import OperatorContext

__all__ = ["Aggregates", "Content", "Fold", "Kept", "given_rows"]


class Content:
    """What a window holds: made from single records, merged, stored, emitted.

    Attributes:
        fields: How it is stored, as part of the struct of its window.
        states: State of the operator that it needs besides.
    """

    fields: tuple[Field, ...] = ()
    states: Mapping[str, StateSpec] = {}

    def bound(self, keys: Schema, columns: Schema, bounds: Schema) -> Schema:
        """Learn the columns; return those of the output.

        Args:
            keys: The key columns.
            columns: The columns of the input.
            bounds: The columns that say which window a row belongs to.
        """
        raise AssertionError

    @property
    def mergeable(self) -> Mapping[str, PartialAggregate] | None:
        """The partial aggregates that it is, if columns can merge them."""
        return None

    def prepared(self, work: Work) -> Work:
        """Return an operator's work with the columns that ``single`` is to see."""
        return work

    def open(self) -> None:
        """Prepare in the worker."""

    def single(self, record: Any, at_us: int | None) -> Any:
        """Return the content that is one record."""
        raise AssertionError

    def merged(self, parts: list[Any], ctx: OperatorContext) -> Any:
        """Return the content of windows that become one; the parts may be changed."""
        raise AssertionError

    def copied(self, held: Any) -> Any:
        """Return content that can be merged while this one is needed elsewhere."""
        return held

    def loaded(self, values: Sequence[Any]) -> Any:
        """Return what ``stored`` has stored."""
        raise AssertionError

    def stored(self, held: Any, owner: Any, name: str) -> tuple[Any, ...]:
        """Return values of ``fields``.

        Args:
            held: The content.
            owner: The operator, for state of its own.
            name: A name that no other content of the key ever has.
        """
        raise AssertionError

    def forget(self, held: Any, owner: Any) -> None:
        """Remove what was stored in ``states``."""

    def rows(
        self, held: Any, of: Given, owner: Any, ctx: OperatorContext
    ) -> Iterable[Any]:
        """Return the rows of a window."""
        raise AssertionError


@dataclass(frozen=True, slots=True)
class Given:
    """The window that rows belong to: as a function sees it, and as columns."""

    window: Any
    bounds: tuple[Any, ...]


class Aggregates(Content):
    """Partial aggregates; Spark computed those of single records."""

    def __init__(self, aggregates: Mapping[str, PartialAggregate]) -> None:
        """Take what the compiler found in the user's expressions."""
        self.aggregates = dict(aggregates)

    def bound(self, keys: Schema, columns: Schema, bounds: Schema) -> Schema:
        """Learn where the partial aggregates are."""
        check_output(keys, self.aggregates, bounds.names)
        parts = columns_of(self.aggregates)
        merges = merges_of(self.aggregates)
        self.fields = tuple(Field(f"of_{n}", t) for n, t in parts.items())
        self._merges = [(tuple(m.columns), merger(m.how)) for m in merges]
        # Merging in Python may change an accumulator.
        self._changes = any(isinstance(m.how, PythonAggregate) for m in merges)
        self._parts, self._width = tuple(parts), len(keys.fields)
        self._places = [columns.names.index(n) for n in parts]
        results = [Field(n, each.type) for n, each in self.aggregates.items()]
        return Schema((*keys.fields, *bounds.fields, *results))

    @property
    def mergeable(self) -> Mapping[str, PartialAggregate] | None:
        """All of them, unless one is the user's own."""
        ways = [merge.how for merge in merges_of(self.aggregates)]
        is_users = any(isinstance(how, NamedAggregator) for how in ways)
        return None if is_users else self.aggregates

    def prepared(self, work: Work) -> Work:
        """Fold what Spark has only collected."""
        return with_folds(work, self.aggregates)

    def single(self, record: Any, at_us: int | None) -> dict[str, Any]:
        """Take the partial aggregates of a record."""
        values = list(record)
        found = [values[place] for place in self._places]
        return dict(zip(self._parts, found, strict=True))

    def merged(self, parts: list[Any], ctx: OperatorContext) -> dict[str, Any]:
        """Merge neighbours, pair by pair: a list that grows is copied a few times."""
        while len(parts) > 1:
            pairs = zip(parts[::2], parts[1::2], strict=False)
            odd = parts[-1:] if len(parts) % 2 else []
            parts = [*(self._both(a, b) for a, b in pairs), *odd]
        found: dict[str, Any] = parts[0]
        return found

    def copied(self, held: Any) -> Any:
        """Copy accumulators."""
        return deepcopy(held) if self._changes else held

    def _both(self, a: dict[str, Any], b: dict[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for names, merge in self._merges:
            old, new = tuple(a[n] for n in names), tuple(b[n] for n in names)
            found.update(zip(names, merge(old, new), strict=True))
        return found

    def loaded(self, values: Sequence[Any]) -> dict[str, Any]:
        """Name the values."""
        return dict(zip(self._parts, values, strict=True))

    def stored(self, held: Any, owner: Any, name: str) -> tuple[Any, ...]:
        """Put the values in order."""
        return tuple(held[n] for n in self._parts)

    def rows(
        self, held: Any, of: Given, owner: Any, ctx: OperatorContext
    ) -> Iterable[Any]:
        """Compute the results."""
        columns = {n: [v] for n, v in held.items()}
        results = [column[0] for column in results_of(self.aggregates, columns, 1)]
        key = (ctx.key,) if self._width == 1 else ctx.key or ()
        return [(*key, *of.bounds, *results)]


class _OfRecords(Content):
    """What functions of whole records share."""

    def _take(self, columns: Schema) -> None:
        # The last column says how long the gap after the record is, if gaps differ.
        self._has_gap = GAP in columns.names
        mine = columns.fields[:-1] if self._has_gap else columns.fields
        self._columns = Schema(mine)

    def open(self) -> None:
        """Prepare to show stored records as users know them."""
        self._record = record_maker(self._columns)

    def restored(self, stored: Any) -> Record:
        """Return a stored record as users know it."""
        if isinstance(stored, msgspec.Struct):
            return self._record(msgspec.structs.astuple(stored))
        return self._record(stored)

    def _plain(self, record: Any) -> Record:
        return self._record(tuple(record)[:-1]) if self._has_gap else record


class Fold(_OfRecords):
    """One record, into which all others were folded."""

    def __init__(self, function: Callable[[Any, Any], Any]) -> None:
        """Keep the function."""
        self._function = function

    def bound(self, keys: Schema, columns: Schema, bounds: Schema) -> Schema:
        """Add the bounds to the columns of the input."""
        self._take(columns)
        columns = self._columns
        taken = sorted(set(bounds.names) & set(columns.names))
        if taken:
            raise InvalidFlowError(
                "reduce() over windows",
                expected=f"no columns {' and '.join(bounds.names)}, which it adds",
                found=", ".join(taken),
            )
        self.type = Type("struct", fields=columns.fields)
        self.fields = (Field("folded", self.type),)
        return Schema((*columns.fields, *bounds.fields))

    def single(self, record: Any, at_us: int | None) -> Record:
        """Begin with the record."""
        return self._plain(record)

    def merged(self, parts: list[Any], ctx: OperatorContext) -> Record:
        """Fold one after the other; what cannot be folded in is a dead letter."""
        folded: Record = parts[0]
        for each in parts[1:]:
            folded = self._folded(folded, each, ctx)
        return folded

    def _folded(self, old: Record, new: Record, ctx: OperatorContext) -> Record:
        try:
            found = self.row(self._function(old, new))
            if ctx.buries:
                codec_of(self.type).checked(found)
            return self.restored(found)
        except Exception as error:
            if not ctx.buries:
                raise
            ctx.bury(error, new)
            return old

    def row(self, value: Any) -> tuple[Any, ...]:
        """Return the values that a function returned."""
        if isinstance(value, dict):
            return tuple(value.get(n) for n in self._columns.names)
        return tuple(value)

    def loaded(self, values: Sequence[Any]) -> Record:
        """Show the fold as a record."""
        return self.restored(values[0])

    def stored(self, held: Any, owner: Any, name: str) -> tuple[Any, ...]:
        """Keep its values."""
        return (tuple(held),)

    def rows(
        self, held: Any, of: Given, owner: Any, ctx: OperatorContext
    ) -> Iterable[Any]:
        """Emit the fold."""
        return [(*held, *of.bounds)]


@dataclass(slots=True)
class _Chunks:
    """Names of stored records, oldest first, and records that came since."""

    names: list[str] = field(default_factory=list)
    fresh: list[tuple[int | None, Record]] = field(default_factory=list)


class Kept(_OfRecords):
    """All records, for a function.

    What an epoch brings to a window is one entry: adding to it does not read it.

    Attributes:
        columns: Those of the rows that the function returns.
    """

    def __init__(
        self, function: Callable[..., Any], output: SchemaLike, *, by_time: bool
    ) -> None:
        """Check the columns now, while the user's line is on the stack.

        Args:
            function: Called with key, window and records.
            output: Columns of the rows that it returns.
            by_time: Pass records in the order of their times; else of arrival.
        """
        self._function, self.columns = function, schema_of(output)
        self._by_time = by_time

    def bound(self, keys: Schema, columns: Schema, bounds: Schema) -> Schema:
        """Declare where records are kept."""
        self._take(columns)
        record = Type("struct", fields=self._columns.fields)
        timed = (Field("at", Type("long")), Field("record", record))
        chunk = Type("array", element=Type("struct", fields=timed))
        self.fields = (Field("chunks", Type("array", element=Type("string"))),)
        self.states = {"chunks": Map("string", chunk)}
        return self.columns

    def single(self, record: Any, at_us: int | None) -> _Chunks:
        """Begin with the record."""
        return _Chunks(fresh=[(at_us, self._plain(record))])

    def merged(self, parts: list[Any], ctx: OperatorContext) -> _Chunks:
        """Put the lists together."""
        return _Chunks(
            [name for each in parts for name in each.names],
            [record for each in parts for record in each.fresh],
        )

    def loaded(self, values: Sequence[Any]) -> _Chunks:
        """Name the stored records; they are read when they are emitted."""
        return _Chunks(list(values[0]))

    def stored(self, held: Any, owner: Any, name: str) -> tuple[Any, ...]:
        """Store what came since."""
        if not held.fresh:
            return (held.names,)
        owner.chunks[name] = [(at, tuple(record)) for at, record in held.fresh]
        return ([*held.names, name],)

    def forget(self, held: Any, owner: Any) -> None:
        """Remove the records."""
        for name in held.names:
            owner.chunks.pop(name, None)

    def rows(
        self, held: Any, of: Given, owner: Any, ctx: OperatorContext
    ) -> Iterable[Any]:
        """Call the function with all records."""
        timed = [
            (at, self.restored(record))
            for name in held.names
            for at, record in map(_values, owner.chunks[name])
        ]
        timed += held.fresh
        if self._by_time:
            timed.sort(key=lambda each: each[0])
        records = [record for _, record in timed]
        return given_rows(self._function, of.window, records, ctx)


def _values(stored: Any) -> tuple[Any, ...]:
    is_struct = isinstance(stored, msgspec.Struct)
    return msgspec.structs.astuple(stored) if is_struct else stored


def given_rows(
    function: Callable[..., Any], window: Any, records: list[Any], ctx: OperatorContext
) -> list[Any]:
    """Call ``function(key, window, records)``; return its rows.

    A window whose function raises, or returns rows that do not fit, is one dead letter,
    if the flow has a sink for them.
    """
    try:
        rows = list(function(ctx.key, window, records) or ())
        if ctx.has_output(UPDATES) and len(rows) != 1:
            message = (
                "modes update and complete of apply need one row of each window, that"
                f" the next one takes the place of; found {len(rows)}"
            )
            raise ValueError(message)
        if ctx.buries:
            rows = [ctx.as_row(row) for row in rows]
        return rows
    except Exception as error:
        if not ctx.buries:
            raise
        ctx.bury(error, (window, records))
        return []
