"""Windows that emit more often than at the watermark, or that never end.

Each window of a key is kept by itself, also where windows overlap, and records are
added to it in the order of arrival, one by one: so what a counting trigger emits does
not depend on where epochs end.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import msgspec

from riverlock.coordinator.watermarks import first_open_us
from riverlock.core.times import END_US, from_micros, micros
from riverlock.core.types import Field, Schema, Type
from riverlock.operators.base import UPDATES, bind
from riverlock.operators.row_identity import Identity, with_gone
from riverlock.operators.windows.lateness import WithLateness
from riverlock.operators.windows.window_columns import BOUNDS
from riverlock.operators.windows.window_contents import Given
from riverlock.program.triggers import Trigger
from riverlock.program.windows import GlobalWindow, SessionWindows, TimeWindows
from riverlock.state.spec import Value
from riverlock.state.store import EVENT, PROCESSING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from datetime import datetime

    from riverlock.operators.base import BuiltIn, Work
    from riverlock.operators.keyed.context import OperatorContext
    from riverlock.operators.windows.window_contents import Content
    from riverlock.state.spec import StateSpec

__all__ = ["Firing", "Triggered"]

_INSTANT = Type("timestamp")
_EARLY, _ON_TIME, _LATE = "early", "on time", "late"
_Timers: TypeAlias = set[tuple[int, int]]
# Windows of a key by their end, which is never the same for two.
_Windows: TypeAlias = "dict[int, _Live]"
_Span: TypeAlias = tuple[int, int]


class Firing(NamedTuple):
    """The window that a function is called for, and why now."""

    start: datetime | None
    end: datetime | None
    firing: str


@dataclass(slots=True)
class _Live:
    """A window that is not over, or may still be corrected."""

    begin_us: int
    end_us: int
    # Content that has not been merged yet; empty: all of it was emitted and discarded.
    parts: list[Any]
    # The watermark has passed its end.
    is_given: bool = False
    # Records since it last emitted, early or not; and when, by the clock, it is due.
    fresh: int = 0
    due_us: int | None = None
    latest_us: int | None = None


class Triggered(WithLateness):
    """Adds records to the windows of their key, which emit when triggered."""

    windows: Any
    shown: Any  # sessions as they were last given to sinks that want updates

    def __init__(
        self,
        content: Content,
        window: TimeWindows | SessionWindows | GlobalWindow,
        lateness_us: int,
        trigger: Trigger | None,
        *,
        accumulates: bool,
    ) -> None:
        """Take the content of windows, which records they have, and when they emit.

        Args:
            content: What happens to the records.
            window: Which belong together.
            lateness_us: How long a window that is over is kept.
            trigger: When it emits; rows say why. None: when it is over.
            accumulates: Emit all records each time, not only new ones.
        """
        self.content, self.window = content, window
        self.lateness_us = lateness_us
        self._trigger = trigger or Trigger()
        self._says_why = trigger is not None
        self._accumulates = accumulates

    def bound(self, keys: Schema, columns: Schema) -> BuiltIn:
        """Declare the list of windows."""
        has_bounds = not isinstance(self.window, GlobalWindow)
        bounds = [Field(n, _INSTANT) for n in BOUNDS] if has_bounds else []
        names = [bound.name for bound in bounds]
        if self._says_why:
            bounds.append(Field("firing", Type("string")))
        output = self.content.bound(keys, columns, Schema(tuple(bounds)))
        self._identity = Identity.of(keys.names, output.names, names)
        kept = (
            Field("begin", _INSTANT),
            Field("end", _INSTANT),
            Field("given", Type("boolean")),
            Field("fresh", Type("long")),
            Field("due", _INSTANT),
            Field("latest", _INSTANT),
            *self.content.fields,
        )
        list_of = Type("array", element=Type("struct", fields=kept))
        states: dict[str, StateSpec] = {"windows": Value(list_of)}
        states |= self.content.states
        if self._is_session:
            span = Type("struct", fields=kept[:2])
            states["shown"] = Value(Type("array", element=span))
        return bind(self, output, states)

    @property
    def _is_session(self) -> bool:
        return isinstance(self.window, SessionWindows)

    def updated(self, output: Schema) -> Schema:
        """Add to rows of sessions whether they are taken back: the bounds changed."""
        return with_gone(output) if self._is_session else output

    def prepared(self, work: Work) -> Work:
        """Fold what Spark has only collected."""
        return self.content.prepared(work)

    def open(self) -> None:
        """Begin without records."""
        self.content.open()
        self._fresh: list[tuple[int | None, int, Any]] = []

    def on_event(self, record: Any, ctx: OperatorContext) -> None:
        """Take note of a record."""
        at, end = ctx.time_us, END_US
        if isinstance(self.window, SessionWindows):
            assert at is not None, "those without time are late, and left out"
            end = self.window.end_of(record, at)
        self._fresh.append((at, end, self.content.single(record, at)))

    def on_timer(self, at: Any, ctx: OperatorContext) -> None:
        """Do nothing: the turn ends with a check of all windows."""

    def end_key(self, ctx: OperatorContext) -> Iterator[Any]:
        """Add what came, emit what is due, forget what is over."""
        fresh, self._fresh = self._fresh, []
        # The last firing of each window: its time and its rows.
        self._newest: dict[_Span, tuple[int | None, list[Any]]] = {}
        loaded = [self._loaded(w) for w in self.windows or ()]
        live: _Windows = {w.end_us: w for w in loaded}
        before = self._timers(live)
        # Records come after the watermark that makes them late.
        late_us = first_open_us(ctx.late_us)
        reached = first_open_us(ctx.watermark_us)
        yield from self._passed(live, late_us, ctx)
        for at, end, part in fresh:
            for window in self._windows_of(live, at, end, part, late_us):
                yield from self._grown(window, at, ctx)
        yield from self._passed(live, reached, ctx)
        for window in live.values():
            if window.is_given and window.fresh:
                yield from self._fired(window, _LATE, ctx)
            elif window.due_us is not None and window.due_us <= ctx.now_us:
                yield from self._fired(window, _EARLY, ctx)
        shown = self._take_back(ctx) if self._is_session else []
        self._update(ctx)
        live = self._open(live, reached, ctx)
        if self._is_session:
            self._keep_shown(shown, live)
        self.windows = [
            self._stored(w, f"{ctx.epoch}:{n}", ctx)
            for n, w in enumerate(live.values())
        ] or None
        wanted = self._timers(live)
        for kind, at_us in before - wanted:
            ctx.switch_timer(at_us, kind, on=False)
        for kind, at_us in wanted - before:
            ctx.switch_timer(at_us, kind, on=True)

    # Which windows a record belongs to

    def _windows_of(
        self,
        live: _Windows,
        at: int | None,
        end: int,
        part: Any,
        late_us: int | None,
    ) -> list[_Live]:
        """Add a record to its windows; return them."""
        window = self.window
        if isinstance(window, GlobalWindow):
            return [self._added(live, 0, end, part, late_us)]
        assert at is not None
        if isinstance(window, SessionWindows):
            return [self._joined(live, _Live(at, end, [part]), late_us)]
        return [
            self._added(
                live, end - window.size_us, end, self.content.copied(part), late_us
            )
            for end in window.ends_of(window.pane_of(at))
            if late_us is None or end + self.lateness_us > late_us
        ]

    def _added(
        self, live: _Windows, begin: int, end: int, part: Any, late_us: int | None
    ) -> _Live:
        if end not in live:
            live[end] = _Live(begin, end, [], _is_over(end, late_us))
        live[end].parts.append(part)
        return live[end]

    def _joined(self, live: _Windows, new: _Live, late_us: int | None) -> _Live:
        """Merge a session with all that it touches."""
        touched = [
            w
            for w in live.values()
            if w.begin_us <= new.end_us and new.begin_us <= w.end_us
        ]
        for each in touched:
            del live[each.end_us]
        every = sorted([*touched, new], key=lambda w: w.begin_us)
        end = max(w.end_us for w in every)
        made = _Live(
            every[0].begin_us,
            end,
            [part for w in every for part in w.parts],
            _is_over(end, late_us),
            fresh=sum(w.fresh for w in every),
            due_us=min((w.due_us for w in every if w.due_us is not None), default=None),
        )
        live[end] = made
        return made

    # When a window emits

    def _grown(
        self, window: _Live, at: int | None, ctx: OperatorContext
    ) -> Iterator[Any]:
        """Count a record that a window got, and check whether the trigger fires."""
        window.fresh += 1
        known = [t for t in (window.latest_us, at) if t is not None]
        window.latest_us = max(known, default=None)
        count, every_us = self._trigger.count, self._trigger.every_us
        if window.is_given:
            return  # given once per epoch, after all its late records
        if count is not None and window.fresh >= count:
            yield from self._fired(window, _EARLY, ctx)
        elif every_us is not None and window.due_us is None:
            window.due_us = ctx.now_us + every_us

    def _passed(
        self, live: _Windows, limit: int | None, ctx: OperatorContext
    ) -> Iterator[Any]:
        """Emit windows that are over, earliest first."""
        for _, window in sorted(live.items()):
            if not window.is_given and _is_over(window.end_us, limit):
                window.is_given = True
                window.due_us = None
                if window.parts:
                    yield from self._fired(window, _ON_TIME, ctx)

    def _fired(self, window: _Live, firing: str, ctx: OperatorContext) -> Iterator[Any]:
        """Emit a window."""
        held = self._one(window, ctx)
        has_bounds = not isinstance(self.window, GlobalWindow)
        span = (window.begin_us, window.end_us) if has_bounds else ()
        times = [from_micros(us) for us in span]
        start, end = times or (None, None)
        why = (firing,) if self._says_why else ()
        ctx.time_us = window.end_us - 1 if has_bounds else window.latest_us
        given = Given(Firing(start, end, firing), (*times, *why))
        rows = self.content.rows(held, given, self, ctx)
        if ctx.has_output(UPDATES):
            rows = self._identity.known(rows, times, ctx)
            span = window.begin_us, window.end_us
            for part in _parts(self._newest, span):
                del self._newest[part]
            self._newest[span] = ctx.time_us, rows
        yield from rows
        window.fresh, window.due_us = 0, None
        if not self._accumulates:
            self.content.forget(held, self)
            window.parts = []

    def _update(self, ctx: OperatorContext) -> None:
        """Emit windows as they last emitted, for those that did before."""
        for at_us, rows in self._newest.values():
            ctx.time_us = at_us
            for row in rows:
                ctx.emit(UPDATES, (*row, False) if self._is_session else row)

    def _take_back(self, ctx: OperatorContext) -> list[_Span]:
        """Report sessions that are no longer as they were emitted; return the others.

        A session grows and merges: what it was is part of what it is.
        """
        shown = [(micros(s.begin), micros(s.end)) for s in self.shown or ()]
        parts = {part for span in self._newest for part in _parts(shown, span)}
        for part in sorted(parts - self._newest.keys()):
            self._identity.take_back(*part, ctx)
        return [*(span for span in shown if span not in parts), *self._newest]

    def _keep_shown(self, shown: list[_Span], live: _Windows) -> None:
        """Remember how sessions were emitted, as long as they can change."""
        spans = [(w.begin_us, w.end_us) for w in live.values()]
        kept = [part for span in spans for part in _parts(shown, span)]
        times = [tuple(map(from_micros, span)) for span in sorted(kept)]
        self.shown = times or None

    def _open(
        self, live: _Windows, reached: int | None, ctx: OperatorContext
    ) -> _Windows:
        """Return windows that are not closed; the others are forgotten."""
        if reached is None:
            return live
        kept: _Windows = {}
        for end, window in live.items():
            if end + self.lateness_us > reached:
                kept[end] = window
            elif window.parts:
                self.content.forget(self._one(window, ctx), self)
        return kept

    def _timers(self, live: _Windows) -> _Timers:
        """Return when windows are next checked."""
        found = set()
        for end, window in live.items():
            kept_us = self.lateness_us if window.is_given else 0
            found.add((EVENT, end - 1 + kept_us))  # its last instant is over
            if window.due_us is not None:
                found.add((PROCESSING, window.due_us))
        return found

    # How it is kept

    def _one(self, window: _Live, ctx: OperatorContext) -> Any:
        if len(window.parts) > 1:
            window.parts = [self.content.merged(window.parts, ctx)]
        return window.parts[0]

    def _loaded(self, stored: Any) -> _Live:
        begin, end, is_given, fresh, due, latest, *values = msgspec.structs.astuple(
            stored
        )
        is_empty = not self._accumulates and fresh == 0
        return _Live(
            micros(begin),
            micros(end),
            [] if is_empty else [self.content.loaded(values)],
            is_given,
            fresh,
            None if due is None else micros(due),
            None if latest is None else micros(latest),
        )

    def _stored(
        self, window: _Live, name: str, ctx: OperatorContext
    ) -> tuple[Any, ...]:
        instants = (window.due_us, window.latest_us)
        values: tuple[Any, ...] = (None,) * len(self.content.fields)
        if window.parts:
            values = self.content.stored(self._one(window, ctx), self, name)
        return (
            from_micros(window.begin_us),
            from_micros(window.end_us),
            window.is_given,
            window.fresh,
            *(None if us is None else from_micros(us) for us in instants),
            *values,
        )


def _parts(spans: Iterable[_Span], whole: _Span) -> list[_Span]:
    """Return the spans that lie in another, which may be the same."""
    begin, end = whole
    return [span for span in spans if begin <= span[0] and span[1] <= end]


def _is_over(end_us: int, limit: int | None) -> bool:
    return limit is not None and end_us <= limit
