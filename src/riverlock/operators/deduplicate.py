"""``deduplicate``: of the records of a key that lie close together, the first."""

from __future__ import annotations

from bisect import bisect
from typing import TYPE_CHECKING, Any

from riverlock.core.times import shifted
from riverlock.operators.built_in import LATE, BuiltIn, bind
from riverlock.program.process import SideOutput
from riverlock.state.spec import StateSpec, Value

if TYPE_CHECKING:
    from datetime import datetime, timedelta

    from riverlock.core.types import Schema
    from riverlock.program.process import Process
    from riverlock.program.time_basis import Timing

__all__ = ["Deduplicate"]


class Deduplicate(BuiltIn):
    """Keeps a record if no kept record of its key is less than ``within`` away.

    All kept times that a record which is not late could be close to are remembered,
    not only the newest: of records at 0, 15 and 5, in this order, the last one is far
    enough from 15, but too close to 0. A kept time is forgotten when the watermark is
    ``within`` past it, and what comes after that and is not late is far from it. So
    forgetting changes no result, and where epochs end does not either.
    """

    sides = (LATE,)
    kept: Any

    def __init__(self, within: timedelta, timing: Timing) -> None:
        """Take the distance and the time in which it is measured."""
        self._within = within
        self._timing = timing

    def bound(self, keys: Schema, columns: Schema) -> Process:
        """Declare the kept times, in order."""
        attributes: dict[str, StateSpec | SideOutput] = {
            "kept": Value("array<timestamp>", default=[]),
            LATE: SideOutput(columns),
        }
        return bind(self, columns, attributes)

    def on_event(self, record: Any, ctx: Any) -> list[Any] | None:
        """Keep the record, drop it, or say that nobody can tell (any more)."""
        at = self._timing.instant(ctx)
        if at is None:
            ctx.emit(LATE, tuple(record))
            return None
        place = bisect(self.kept, at)
        neighbours = self.kept[max(place - 1, 0) : place + 1]
        if any(abs(at - kept) < self._within for kept in neighbours):
            return None
        if self._timing.is_late(at, ctx):
            # One that was kept may be forgotten already.
            ctx.emit(LATE, tuple(record))
            return None
        self.kept.insert(place, at)
        self._timing.set_timer(shifted(at, self._within), ctx)
        return [tuple(record)]

    def on_timer(self, at: datetime, ctx: Any) -> None:
        """Forget the times that no record can be close to any more."""
        self.kept = self.kept[bisect(self.kept, at - self._within) :]
