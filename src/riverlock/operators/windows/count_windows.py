"""Count windows: a number of records of a key, in the order of arrival."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from riverlock.core.times import END_US
from riverlock.core.types import Field, Schema, Type
from riverlock.operators.base import UPDATES, bind
from riverlock.operators.keyed.key_by_key import KeyByKey
from riverlock.operators.row_identity import Identity
from riverlock.operators.windows.window_contents import Given
from riverlock.state.spec import Value

if TYPE_CHECKING:
    from collections.abc import Iterator

    from riverlock.operators.base import BuiltIn, Work
    from riverlock.operators.keyed.context import OperatorContext
    from riverlock.operators.windows.window_contents import Content
    from riverlock.program.windows import CountWindows

__all__ = ["NUMBERS", "Counted", "Numbers"]

# The columns that say which window a row is of.
NUMBERS = ("first_record", "last_record")
_LONG = Type("long")


class Numbers(NamedTuple):
    """The window that a function is called for: numbers of its records, from 1 on."""

    first: int
    last: int


@dataclass(slots=True)
class _Pane:
    """Records that no window divides: the number of the last, and its content."""

    last: int
    latest_us: int | None
    # Parts that have not been merged yet.
    parts: list[Any]


class Counted(KeyByKey):
    """Numbers the records of a key, and emits a window after every so many."""

    seen: Any
    panes: Any

    def __init__(self, content: Content, window: CountWindows) -> None:
        """Take the content of windows, and how many records belong together."""
        self.content = content
        self.window = window

    def bound(self, keys: Schema, columns: Schema) -> BuiltIn:
        """Declare the number of the last record, and panes that are still needed."""
        bounds = Schema(tuple(Field(n, _LONG) for n in NUMBERS))
        output = self.content.bound(keys, columns, bounds)
        self._identity = Identity.of(keys.names, output.names, NUMBERS)
        kept = (
            Field("last", _LONG),
            Field("latest", _LONG),
            *self.content.fields,
        )
        list_of = Type("array", element=Type("struct", fields=kept))
        states = {"seen": Value("bigint"), "panes": Value(list_of)}
        return bind(self, output, {**states, **self.content.states})

    def prepared(self, work: Work) -> Work:
        """Fold what Spark has only collected."""
        return self.content.prepared(work)

    def open(self) -> None:
        """Begin without records."""
        self.content.open()
        self._fresh: list[tuple[int | None, Any]] = []

    def on_event(self, record: Any, ctx: OperatorContext) -> None:
        """Take note of a record."""
        at = ctx.time_us
        self._fresh.append((at, self.content.single(record, at)))

    def on_timer(self, at: Any, ctx: OperatorContext) -> None:
        """Do nothing: the turn ends with a check for the end of the input."""

    def end_key(self, ctx: OperatorContext) -> Iterator[Any]:
        """Count what came, emit windows that are full, and at the end what is left."""
        fresh, self._fresh = self._fresh, []
        window = self.window
        if self.seen is None:
            ctx.switch_timer(END_US, on=True)
        seen = self.seen or 0
        panes = [self._loaded(p) for p in self.panes or ()]
        for at, held in fresh:
            seen += 1
            if window.has(seen):
                self._add(panes, seen, at, held)
            if seen % window.slide == 0:
                yield from self._rows(panes, seen, ctx)
                panes = self._needed(panes, window.first_of(seen + window.slide))
        if ctx.watermark_us is not None and ctx.watermark_us >= END_US:
            if seen % window.slide:
                yield from self._rows(panes, seen, ctx)
            self._needed(panes, seen + 1)  # none is: all are forgotten
            ctx.switch_timer(END_US, on=False)
            self.seen = self.panes = None
            return
        self.seen = seen
        self.panes = [
            self._stored(p, f"{ctx.epoch}:{n}", ctx) for n, p in enumerate(panes)
        ]

    def _add(self, panes: list[_Pane], number: int, at: int | None, held: Any) -> None:
        if panes and panes[-1].last % self.window.pane:
            pane = panes[-1]
            pane.last = number
            pane.parts.append(held)
            known = [t for t in (pane.latest_us, at) if t is not None]
            pane.latest_us = max(known, default=None)
        else:
            panes.append(_Pane(number, at, [held]))

    def _rows(
        self, panes: list[_Pane], last: int, ctx: OperatorContext
    ) -> Iterator[Any]:
        """Emit the window that ends with a record, or would end after it."""
        end = -(-last // self.window.slide) * self.window.slide
        first = self.window.first_of(end)
        mine = [pane for pane in panes if pane.last >= first]
        if not mine:
            return
        numbers = Numbers(max(first, 1), last)
        # Windows that overlap have panes in common.
        parts = [self.content.copied(self._one(pane, ctx)) for pane in mine]
        held = self.content.merged(parts, ctx)
        times = [pane.latest_us for pane in mine if pane.latest_us is not None]
        ctx.time_us = max(times, default=None)
        rows = self.content.rows(held, Given(numbers, tuple(numbers)), self, ctx)
        if ctx.has_output(UPDATES):
            rows = self._identity.known(rows, numbers, ctx)
            for row in rows:
                ctx.emit(UPDATES, row)
        yield from rows

    def _needed(self, panes: list[_Pane], first: int) -> list[_Pane]:
        """Return panes that later windows need; the others are forgotten."""
        for pane in panes:
            if pane.last < first:
                for part in pane.parts:
                    self.content.forget(part, self)
        return [pane for pane in panes if pane.last >= first]

    def _one(self, pane: _Pane, ctx: OperatorContext) -> Any:
        if len(pane.parts) > 1:
            pane.parts = [self.content.merged(pane.parts, ctx)]
        return pane.parts[0]

    def _loaded(self, stored: Any) -> _Pane:
        last, latest, *values = msgspec.structs.astuple(stored)
        return _Pane(last, latest, [self.content.loaded(values)])

    def _stored(self, pane: _Pane, name: str, ctx: OperatorContext) -> tuple[Any, ...]:
        values = self.content.stored(self._one(pane, ctx), self, name)
        return (pane.last, pane.latest_us, *values)
