"""Sessions: records of a key that follow each other closely."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from riverlock.coordinator.watermarks import first_open_us
from riverlock.core.times import from_micros, micros
from riverlock.core.types import Field, Schema, Type
from riverlock.operators.base import UPDATES, bind
from riverlock.operators.row_identity import Identity, with_gone
from riverlock.operators.sessions.session_run import SessionRun
from riverlock.operators.windows.lateness import WithLateness
from riverlock.operators.windows.window_columns import BOUNDS
from riverlock.operators.windows.window_contents import Given
from riverlock.operators.windows.window_functions import Span
from riverlock.state.spec import Value

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from riverlock.operators.base import BuiltIn, Work
    from riverlock.operators.effects import Effects
    from riverlock.operators.keyed.context import OperatorContext
    from riverlock.operators.task_input import KeyedInput
    from riverlock.operators.windows.window_contents import Content
    from riverlock.program.windows import SessionWindows

__all__ = ["Sessions"]

_INSTANT = Type("timestamp")


@dataclass(slots=True)
class _Session:
    """From the first record to a gap after the last."""

    begin_us: int
    end_us: int
    held: Any
    is_given: bool = False


class Sessions(WithLateness):
    """Merges records into the sessions of their key.

    All records of a key in an epoch are merged at the end of its turn, once: its
    sessions are decoded and encoded once. Its one timer only brings the turn about.
    """

    window: SessionWindows
    sessions: Any

    def __init__(
        self, content: Content, window: SessionWindows, lateness_us: int
    ) -> None:
        """Take the content of sessions, and which records belong together."""
        self.content = content
        self.window = window
        self.lateness_us = lateness_us

    def bound(self, keys: Schema, columns: Schema) -> BuiltIn:
        """Declare the list of sessions that are not over."""
        bounds = Schema(tuple(Field(n, _INSTANT) for n in BOUNDS))
        output = self.content.bound(keys, columns, bounds)
        self._identity = Identity.of(keys.names, output.names)
        kept = (
            Field("begin", _INSTANT),
            Field("end", _INSTANT),
            Field("given", Type("boolean")),
            *self.content.fields,
        )
        list_of = Type("array", element=Type("struct", fields=kept))
        return bind(self, output, {"sessions": Value(list_of), **self.content.states})

    def updated(self, output: Schema) -> Schema:
        """Add to each row whether it is taken back: its session has other bounds."""
        return with_gone(output)

    def prepared(self, work: Work) -> Work:
        """Fold what Spark has only collected."""
        return self.content.prepared(work)

    def at_once(self, work: Work, data: KeyedInput | None) -> Effects | None:
        """Merge by column, if the content allows it."""
        aggregates = self.content.mergeable
        if aggregates is None or work.program.has_dead_letters:
            return None
        run = SessionRun(work, aggregates, self.window, self.lateness_us)
        return run.effects(work) if run.merge(data) else None

    def open(self) -> None:
        """Begin without records."""
        self.content.open()
        self._fresh: list[_Session] = []

    def on_event(self, record: Any, ctx: OperatorContext) -> None:
        """Take note of a record: a session of its own, for now."""
        at = ctx.time_us
        assert at is not None, "those without time are late, and left out"
        end = self.window.end_of(record, at)
        self._fresh.append(_Session(at, end, self.content.single(record, at)))

    def on_timer(self, at: Any, ctx: OperatorContext) -> None:
        """Do nothing: the turn ends with a check of all sessions."""

    def end_key(self, ctx: OperatorContext) -> Iterator[Any]:
        """Merge what came, emit sessions that are over, forget the oldest."""
        fresh, self._fresh = self._fresh, []
        stored = [self._loaded(s) for s in self.sessions or ()]
        before = self._next(stored)
        whole = self._merged(stored, fresh, ctx) if fresh else stored
        reached = first_open_us(ctx.watermark_us)
        is_updated = ctx.has_output(UPDATES)
        if is_updated:
            self._take_back(stored, whole, ctx)
        known = {id(session) for session in stored}
        kept = []
        for session in whole:
            is_over = reached is not None and session.end_us <= reached
            is_due = is_over and not session.is_given
            is_changed = is_updated and id(session) not in known
            rows = self._rows(session, ctx) if is_due or is_changed else ()
            if is_changed:
                for row in rows:
                    ctx.emit(UPDATES, (*row, False))
            if is_due:
                session.is_given = True
                yield from rows
            if reached is None or session.end_us + self.lateness_us > reached:
                kept.append(session)
            else:
                self.content.forget(session.held, self)
        self.sessions = [
            self._stored(s, f"{ctx.epoch}:{n}") for n, s in enumerate(kept)
        ] or None
        after = self._next(kept)
        if before not in (None, after):
            ctx.switch_timer(before, on=False)
        if after not in (None, before):
            ctx.switch_timer(after, on=True)

    def _rows(self, session: _Session, ctx: OperatorContext) -> Iterable[Any]:
        """Return the rows of a session; sets their time."""
        span = Span(from_micros(session.begin_us), from_micros(session.end_us))
        ctx.time_us = session.end_us - 1
        rows = self.content.rows(session.held, Given(span, span), self, ctx)
        if not ctx.has_output(UPDATES):
            return rows
        return self._identity.known(rows, span, ctx)

    def _take_back(
        self, stored: list[_Session], whole: list[_Session], ctx: OperatorContext
    ) -> None:
        """Report sessions that no longer exist: they grew, or are part of others."""
        left = {(session.begin_us, session.end_us) for session in whole}
        for session in stored:
            bounds = session.begin_us, session.end_us
            if bounds not in left:
                self._identity.take_back(*bounds, ctx)

    def _merged(
        self, stored: list[_Session], fresh: list[_Session], ctx: OperatorContext
    ) -> list[_Session]:
        """Return the sessions that are left when overlapping ones are merged."""
        ordered = sorted([*stored, *fresh], key=lambda s: s.begin_us)
        runs: list[list[_Session]] = []
        end = 0
        for session in ordered:
            if runs and session.begin_us <= end:
                runs[-1].append(session)
                end = max(end, session.end_us)
            else:
                runs.append([session])
                end = session.end_us
        return [run[0] if len(run) == 1 else self._one(run, ctx) for run in runs]

    def _one(self, run: list[_Session], ctx: OperatorContext) -> _Session:
        held = self.content.merged([session.held for session in run], ctx)
        return _Session(run[0].begin_us, max(s.end_us for s in run), held)

    def _next(self, sessions: list[_Session]) -> int | None:
        """Return when sessions are next checked: the last instant of one is over."""
        times = [
            s.end_us - 1 + (self.lateness_us if s.is_given else 0) for s in sessions
        ]
        return min(times, default=None)

    def _loaded(self, stored: Any) -> _Session:
        begin, end, is_given, *values = msgspec.structs.astuple(stored)
        held = self.content.loaded(values)
        return _Session(micros(begin), micros(end), held, is_given)

    def _stored(self, session: _Session, name: str) -> tuple[Any, ...]:
        times = from_micros(session.begin_us), from_micros(session.end_us)
        values = self.content.stored(session.held, self, name)
        return (*times, session.is_given, *values)
