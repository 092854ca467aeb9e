"""Aggregates over sessions: records of a key that follow each other closely."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from riverlock.core.times import END_US, from_micros, micros
from riverlock.core.types import Field, Schema, Type
from riverlock.flow.operators import BuiltIn, bind, results_of
from riverlock.flow.partial import columns_of, merger, merges_of
from riverlock.flow.window_aggregate import BOUNDS, check_output
from riverlock.state.spec import Value

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from riverlock.flow.partial import PartialAggregate
    from riverlock.flow.process import Process
    from riverlock.flow.windows import SessionWindows

__all__ = ["SessionAggregate"]

_INSTANT = Type("timestamp")
_EVENT = 0


@dataclass(slots=True)
class _Session:
    """From the first record to a gap after the last."""

    begin_us: int
    end_us: int
    parts: dict[str, Any]
    is_given: bool = False


class SessionAggregate(BuiltIn):
    """Merges records into the sessions of their key.

    All records of a key in an epoch are merged at the end of its turn, once: its
    sessions are decoded and encoded once, and timers only bring the turn about.
    """

    sessions: Any

    def __init__(
        self,
        aggregates: Mapping[str, PartialAggregate],
        window: SessionWindows,
        lateness_us: int,
    ) -> None:
        """Take what the compiler found in the user's expressions."""
        self.aggregates = dict(aggregates)
        self.window = window
        self.lateness_us = lateness_us

    def bound(self, keys: Schema, columns: Schema) -> Process:
        """Declare the list of sessions that are not over."""
        parts = columns_of(self.aggregates)
        kept = (
            Field("begin", _INSTANT),
            Field("end", _INSTANT),
            Field("given", Type("boolean")),
            *(Field(f"of_{n}", t) for n, t in parts.items()),
        )
        check_output(keys, self.aggregates)
        merges = merges_of(self.aggregates)
        self._merges = [(tuple(m.columns), merger(m.how)) for m in merges]
        self._parts, self._width = tuple(parts), len(keys.fields)
        self._places = [columns.names.index(n) for n in parts]
        bounds = [Field(n, _INSTANT) for n in BOUNDS]
        results = [Field(n, each.type) for n, each in self.aggregates.items()]
        list_of = Type("array", element=Type("struct", fields=kept))
        return bind(
            self,
            Schema((*keys.fields, *bounds, *results)),
            {"sessions": Value(list_of)},
        )

    def open(self) -> None:
        """Begin without records."""
        self._fresh: list[_Session] = []

    def on_event(self, record: Any, ctx: Any) -> None:
        """Take note of a record: a session of its own, for now."""
        at, values = ctx._time_us, list(record)
        found = [values[place] for place in self._places]
        parts = dict(zip(self._parts, found, strict=True))
        # Time has an end, and so have sessions that would go beyond it.
        end = min(at + self.window.gap_us, END_US)
        self._fresh.append(_Session(at, end, parts))

    def on_timer(self, at: Any, ctx: Any) -> None:
        """Nothing: the turn ends with a look at all sessions."""

    def _result(self, ctx: Any) -> Iterator[Any]:
        """Merge what came, give sessions that are over, forget the oldest."""
        fresh, self._fresh = self._fresh, []
        stored = [self._loaded(s) for s in self.sessions or ()]
        timers = {self._timer(s) for s in stored}
        whole = self._merged(stored, fresh) if fresh else stored
        reached = ctx._watermark_us
        kept = []
        for session in whole:
            is_over = reached is not None and session.end_us <= reached
            if is_over and not session.is_given:
                session.is_given = True
                ctx._time_us = session.end_us - 1
                yield self._row(session, ctx.key)
            if not is_over or session.end_us + self.lateness_us > reached:
                kept.append(session)
        self.sessions = [self._stored(s) for s in kept] or None
        wanted = {self._timer(s) for s in kept}
        for at in timers - wanted:
            ctx._timers[(_EVENT, at)] = False
        for at in wanted - timers:
            ctx._timers[(_EVENT, at)] = True

    def _merged(self, stored: list[_Session], fresh: list[_Session]) -> list[_Session]:
        """Return the sessions that are left when those that overlap are one."""
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
        return [run[0] if len(run) == 1 else self._one(run) for run in runs]

    def _one(self, run: list[_Session]) -> _Session:
        """Merge neighbours, pair by pair: a list that grows is copied a few times."""
        parts = [session.parts for session in run]
        while len(parts) > 1:
            pairs = zip(parts[::2], parts[1::2], strict=False)
            odd = parts[-1:] if len(parts) % 2 else []
            parts = [*(self._both(a, b) for a, b in pairs), *odd]
        return _Session(run[0].begin_us, max(s.end_us for s in run), parts[0])

    def _both(self, a: dict[str, Any], b: dict[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for names, merge in self._merges:
            old, new = tuple(a[n] for n in names), tuple(b[n] for n in names)
            found.update(zip(names, merge(old, new), strict=True))
        return found

    def _timer(self, session: _Session) -> int:
        """Return when a session is next looked at."""
        return session.end_us + (self.lateness_us if session.is_given else 0)

    def _row(self, session: _Session, key: Any) -> tuple[Any, ...]:
        columns = {n: [v] for n, v in session.parts.items()}
        results = [column[0] for column in results_of(self.aggregates, columns, 1)]
        times = (from_micros(session.begin_us), from_micros(session.end_us))
        return (*((key,) if self._width == 1 else key), *times, *results)

    def _loaded(self, stored: Any) -> _Session:
        begin, end, is_given, *values = msgspec.structs.astuple(stored)
        parts = dict(zip(self._parts, values, strict=True))
        return _Session(micros(begin), micros(end), parts, is_given)

    def _stored(self, session: _Session) -> tuple[Any, ...]:
        times = from_micros(session.begin_us), from_micros(session.end_us)
        return (*times, session.is_given, *(session.parts[n] for n in self._parts))
