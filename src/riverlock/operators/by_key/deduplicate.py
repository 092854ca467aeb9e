"""``deduplicate``: the first of the records of a key that lie close together."""

from __future__ import annotations

from bisect import bisect
from typing import TYPE_CHECKING, Any

from riverlock.core.times import shifted
from riverlock.operators.base import LATE, bind
from riverlock.operators.keyed.key_by_key import KeyByKey
from riverlock.operators.keyed_method import KeyedMethod
from riverlock.program.process import SideOutput
from riverlock.program.time_basis import positive_duration, timing_of
from riverlock.state.spec import StateSpec, Value

if TYPE_CHECKING:
    from datetime import datetime, timedelta

    from riverlock.core.types import Schema
    from riverlock.flow.stream import Stream
    from riverlock.operators.base import BuiltIn
    from riverlock.operators.keyed.context import OperatorContext
    from riverlock.program.time_basis import Timing

__all__ = ["Deduplicate", "DeduplicateMethod"]


class Deduplicate(KeyByKey):
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

    def bound(self, keys: Schema, columns: Schema) -> BuiltIn:
        """Declare the kept times, in order."""
        attributes: dict[str, StateSpec | SideOutput] = {
            "kept": Value("array<timestamp>", default=[]),
            LATE: SideOutput(columns),
        }
        return bind(self, columns, attributes)

    def on_event(self, record: Any, ctx: OperatorContext) -> list[Any] | None:
        """Keep the record, drop it, or send it to ``late`` if nobody can tell."""
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

    def on_timer(self, at: datetime, ctx: OperatorContext) -> None:
        """Forget the times that no record can be close to any more."""
        self.kept = self.kept[bisect(self.kept, at - self._within) :]


class DeduplicateMethod(KeyedMethod):
    """``deduplicate`` of keyed streams."""

    def deduplicate(
        self, within: str | timedelta = "1 hour", *, uid: str | None = None
    ) -> Stream:
        """Keep the first record of each key, and further ones ``within`` away from it.

        A record is dropped if an earlier record of its key was kept whose event time is
        less than ``within`` away, on either side. What comes first is kept, so the
        result depends on the order of arrival, but not on where epochs end; no two kept
        records of a key are closer than ``within``. Records go to the side output
        ``late`` if they have no event time, or if they are late and not duplicates of
        what is still remembered.

        Without event time the time is the clock's, which is one instant per epoch.
        """
        distance = positive_duration("within of deduplicate", within)
        timing = timing_of(self._node, "deduplicate", self._columns)
        process = Deduplicate(distance, timing)
        return self._apply("deduplicate", process, uid, output=self._columns)
