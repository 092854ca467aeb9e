"""Python functions over windows: the panes of a key, kept under the key itself.

All records of a key in an epoch are taken at the end of its turn, once. Each pane is
stored once, however many windows it is in, and windows are put together when they end;
where a sink wants updates, also whenever they change.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import msgspec

from riverlock.coordinator.watermarks import first_open_us
from riverlock.core.times import from_micros
from riverlock.core.types import Field, Schema, SchemaLike, Type, schema_of
from riverlock.core.values.record import record_maker
from riverlock.operators.base import UPDATES, bind
from riverlock.operators.row_identity import Identity
from riverlock.operators.windows.lateness import WithLateness
from riverlock.operators.windows.window_columns import BOUNDS
from riverlock.operators.windows.window_contents import Fold, given_rows
from riverlock.state.spec import Map, StateSpec, Value

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from datetime import datetime

    from riverlock.operators.base import BuiltIn
    from riverlock.operators.keyed.context import OperatorContext
    from riverlock.program.windows import TimeWindows

__all__ = ["Span", "WindowApply", "WindowFunction", "WindowReduce"]

_Giver: TypeAlias = "Callable[[Span, list[int], Any], Iterable[Any]]"


class Span(NamedTuple):
    """The window that a function is called for."""

    start: datetime
    end: datetime


class WindowFunction(WithLateness):
    """What ``reduce`` and ``apply`` share: when which window emits.

    As ``WindowRun`` for aggregates: when the watermark passes its end, and again when
    records come that are late by no more than the lateness.
    """

    window: TimeWindows
    alive: Any  # when the panes end that are kept, earliest first
    alarm: Any  # the timer that is set

    def __init__(self, window: TimeWindows, lateness_us: int) -> None:
        """Take the windows."""
        self.window, self.lateness_us = window, lateness_us

    def _bound(
        self,
        keys: Schema,
        columns: Schema,
        output: Schema,
        states: dict[str, StateSpec],
    ) -> BuiltIn:
        self._columns = columns
        self._identity = Identity.of(keys.names, output.names)
        shared: dict[str, StateSpec] = {
            "alive": Value("array<bigint>", default=[]),
            "alarm": Value("bigint"),
        }
        return bind(self, output, {**shared, **states})

    def open(self) -> None:
        """Begin without records; prepare to show stored ones as users know them."""
        self._fresh: dict[int, list[Any]] = {}
        self._record = record_maker(self._columns)

    def on_event(self, record: Any, ctx: OperatorContext) -> None:
        """Take note of a record and its pane."""
        at = ctx.time_us
        assert at is not None, "those without time are late, and left out"
        pane = self.window.pane_of(at)
        self._fresh.setdefault(pane, []).append(record)

    def on_timer(self, at: Any, ctx: OperatorContext) -> None:
        """Do nothing: the turn ends with a check of all panes."""

    def end_key(self, ctx: OperatorContext) -> Iterator[Any]:
        """Take what came, emit windows that are over, forget panes that are."""
        fresh, self._fresh = self._fresh, {}
        for pane, records in fresh.items():
            self._absorb(pane, records, ctx)
        alive = sorted({*self.alive, *fresh})
        reached = first_open_us(ctx.watermark_us)
        given: dict[int, Iterable[Any]] = {}
        if reached is not None:
            for end in self._due(alive, fresh, ctx):
                rows = self._window(end, alive, ctx, self._rows)
                if ctx.has_output(UPDATES):
                    given[end] = rows
                yield from rows
        if ctx.has_output(UPDATES):
            self._update(alive, fresh, given, ctx)
        if reached is not None:
            # The last windows of panes end in the order of the panes.
            closed_at, last_end = reached - self.lateness_us, self.window.last_end
            closed = bisect_right(alive, closed_at, key=last_end)
            for pane in alive[:closed]:
                self._forget(pane)
            del alive[:closed]
        self.alive = alive
        self._set_alarm(alive, reached, ctx)

    def _window(
        self, end: int, alive: list[int], ctx: OperatorContext, give: _Giver
    ) -> Iterable[Any]:
        """Return the rows of the window that ends then; sets their time."""
        begin = end - self.window.size_us
        span = Span(from_micros(begin), from_micros(end))
        ctx.time_us = end - 1
        rows = give(span, _held(alive, begin, end), ctx)
        if not ctx.has_output(UPDATES):
            return rows
        return self._identity.known(rows, span, ctx)

    def _update(
        self,
        alive: list[int],
        fresh: Iterable[int],
        given: Mapping[int, Iterable[Any]],
        ctx: OperatorContext,
    ) -> None:
        """Emit all windows that changed; those that are over have emitted before."""
        for end in sorted(self._touched(fresh, None, ctx)):
            rows = given.get(end)
            if rows is None:
                rows = self._window(end, alive, ctx, self._rows_so_far)
            ctx.time_us = end - 1
            for row in rows:
                ctx.emit(UPDATES, row)

    def _touched(
        self, fresh: Iterable[int], until: int | None, ctx: OperatorContext
    ) -> set[int]:
        """Return when windows end that records came for, and that are not closed."""
        late_at = first_open_us(ctx.late_us)
        return {
            end
            for pane in fresh
            for end in self._ends(pane, None, until)
            if late_at is None or end + self.lateness_us > late_at
        }

    def _due(
        self, alive: list[int], fresh: Iterable[int], ctx: OperatorContext
    ) -> list[int]:
        """Return when the windows end that must emit now."""
        reached, before = map(first_open_us, (ctx.watermark_us, ctx.previous_us))
        assert reached is not None
        # Of panes whose windows are many, only those between two watermarks.
        since = None if before is None else self.window.first_end(before + 1)
        begin = None if since is None else since - self.window.size_us
        ends = {
            end
            for pane in _held(alive, begin, reached)
            for end in self._ends(pane, since, reached)
        }
        if before is not None:
            ends |= self._touched(fresh, before, ctx)
        return sorted(ends)

    def _ends(self, pane: int, since: int | None, until: int | None) -> range:
        """Return when windows of a pane end, from an end on and until an instant."""
        first, last = self.window.first_end(pane), self.window.last_end(pane)
        first = first if since is None else max(first, since)
        last = last if until is None else min(last, until)
        return range(first, last + 1, self.window.slide_us)

    def _set_alarm(
        self, alive: list[int], reached: int | None, ctx: OperatorContext
    ) -> None:
        """Set a timer for the key's next turn, when something is due."""
        nexts = [self._next(p, reached) for p in alive]
        # When the last instant before it is over.
        wanted = min(nexts) - 1 if nexts else None
        if self.alarm is not None and self.alarm != wanted:
            ctx.switch_timer(self.alarm, on=False)
        if wanted is not None:
            ctx.switch_timer(wanted, on=True)
        self.alarm = wanted

    def _next(self, pane: int, reached: int | None) -> int:
        first, last = self.window.first_end(pane), self.window.last_end(pane)
        if reached is None or first > reached:
            return first
        following = self.window.first_end(reached + 1)
        return following if following <= last else last + self.lateness_us

    def _absorb(self, pane: int, records: list[Any], ctx: OperatorContext) -> None:
        raise AssertionError

    def _forget(self, pane: int) -> None:
        raise AssertionError

    def _rows(
        self, span: Span, panes: list[int], ctx: OperatorContext
    ) -> Iterable[Any]:
        raise AssertionError

    def _rows_so_far(
        self, span: Span, panes: list[int], ctx: OperatorContext
    ) -> Iterable[Any]:
        """Return the rows of a window that is not over."""
        return self._rows(span, panes, ctx)

    def _restored(self, stored: Any) -> Any:
        if isinstance(stored, msgspec.Struct):
            return self._record(msgspec.structs.astuple(stored))
        return self._record(stored)


def _held(panes: list[int], begin_us: int | None, end_us: int) -> list[int]:
    """Return the panes, which are in order, that lie in a span of time."""
    first = 0 if begin_us is None else bisect_right(panes, begin_us)
    return panes[first : bisect_right(panes, end_us)]


class WindowReduce(WindowFunction):
    """Folds the records of each pane, and then panes."""

    folded: Any

    def __init__(
        self,
        function: Callable[[Any, Any], Any],
        window: TimeWindows,
        lateness_us: int,
    ) -> None:
        """Keep the function."""
        super().__init__(window, lateness_us)
        self._fold = Fold(function)

    def bound(self, keys: Schema, columns: Schema) -> BuiltIn:
        """Declare a fold per pane."""
        bounds = Schema(tuple(Field(n, Type("timestamp")) for n in BOUNDS))
        output = self._fold.bound(keys, columns, bounds)
        return self._bound(
            keys, columns, output, {"folded": Map("bigint", self._fold.type)}
        )

    def open(self) -> None:
        """Prepare the fold too."""
        super().open()
        self._fold.open()

    def _absorb(self, pane: int, records: list[Any], ctx: OperatorContext) -> None:
        stored = self.folded.get(pane)
        found = records if stored is None else [self._restored(stored), *records]
        self.folded[pane] = tuple(self._fold.merged(found, ctx))

    def _forget(self, pane: int) -> None:
        self.folded.pop(pane, None)

    def _rows(
        self, span: Span, panes: list[int], ctx: OperatorContext
    ) -> Iterable[Any]:
        folds = [self._restored(self.folded[p]) for p in panes]
        return [(*self._fold.merged(folds, ctx), *span)]


class WindowApply(WindowFunction):
    """Keeps all records, and gives them to a function.

    What an epoch brings of a pane is one entry: adding to a pane does not read it.
    """

    chunks: Any
    epochs: Any

    def __init__(
        self,
        function: Callable[..., Any],
        output: SchemaLike,
        window: TimeWindows,
        lateness_us: int,
    ) -> None:
        """Check the columns now, while the user's line is on the stack."""
        super().__init__(window, lateness_us)
        self._function, self._output = function, schema_of(output)

    @property
    def columns(self) -> Schema:
        """The columns of the rows that the function gives."""
        return self._output

    def bound(self, keys: Schema, columns: Schema) -> BuiltIn:
        """Declare records by pane and epoch, and which epochs a pane has."""
        records = Type("array", element=Type("struct", fields=columns.fields))
        states: dict[str, StateSpec] = {
            "chunks": Map("string", records),
            "epochs": Map("bigint", "array<bigint>"),
        }
        return self._bound(keys, columns, self._output, states)

    def _absorb(self, pane: int, records: list[Any], ctx: OperatorContext) -> None:
        self.chunks[f"{pane}:{ctx.epoch}"] = [tuple(r) for r in records]
        self.epochs[pane] = [*self.epochs.get(pane, ()), ctx.epoch]

    def _forget(self, pane: int) -> None:
        for epoch in self.epochs.pop(pane, ()):
            self.chunks.pop(f"{pane}:{epoch}", None)

    def _rows(
        self, span: Span, panes: list[int], ctx: OperatorContext
    ) -> Iterable[Any]:
        records = [
            self._restored(each)
            for pane in panes
            for epoch in self.epochs[pane]
            for each in self.chunks[f"{pane}:{epoch}"]
        ]
        return given_rows(self._function, span, records, ctx)
