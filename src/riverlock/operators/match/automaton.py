"""How matches of a pattern begin, grow, end and fail: pure, one event at a time.

Every event that fits the first step begins a match of its own, and each match takes the
first event that fits its next step. A match that is complete ends all others that had
begun before its last event: no event is in two matches.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from riverlock.core.times import shifted
from riverlock.program.pattern import Verdict

if TYPE_CHECKING:
    from datetime import datetime

    from riverlock.program.pattern import Pattern

__all__ = ["Partial", "advanced", "expired"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Partial:
    """A match in progress.

    Attributes:
        began: Number of its first event; later events have greater numbers.
        last: Number of its newest event.
        deadline: When its time is over.
        taken: Its events, each with the place of its step.
    """

    began: int
    last: int
    deadline: datetime
    taken: tuple[tuple[int, Any], ...]

    def matched(self, pattern: Pattern) -> dict[str, Any]:
        """Return its events by the names of their steps."""
        return {pattern.steps[place].name: event for place, event in self.taken}


def advanced(
    pattern: Pattern, partials: list[Partial], event: Any, at: datetime
) -> tuple[list[Partial], Partial | None]:
    """Return the matches that are in progress after an event, and the one it completes.

    Args:
        pattern: What is looked for.
        partials: The matches before it, in the order of their beginnings.
        event: The event.
        at: When it happened; no deadline of ``partials`` is at or before that.
    """
    assert pattern.span is not None
    number = 1 + max((p.last for p in partials), default=0)
    left: list[Partial] = []
    for partial in partials:
        place = pattern.place_of(event, partial.matched(pattern), partial.taken[-1][0])
        if place is Verdict.GOES_ON:
            left.append(partial)
        elif isinstance(place, int):
            grown = Partial(
                began=partial.began,
                last=number,
                deadline=partial.deadline,
                taken=(*partial.taken, (place, event)),
            )
            if pattern.ends_at(place):
                return [], grown
            left.append(grown)
    if pattern.steps[0].fits(event, {}):
        fresh = Partial(
            began=number,
            last=number,
            deadline=shifted(at, pattern.span),
            taken=((0, event),),
        )
        if pattern.ends_at(0):
            return [], fresh
        left.append(fresh)
    return left, None


def expired(
    pattern: Pattern, partials: list[Partial], at: datetime
) -> tuple[list[Partial], list[Partial]]:
    """Return the matches in progress whose time is not over, and those it completes."""
    left = [p for p in partials if p.deadline > at]
    # Those that began later have the later deadlines, unless the span was changed.
    due = sorted((p for p in partials if p.deadline <= at), key=_deadline)
    complete: list[Partial] = []
    while due:
        first = due.pop(0)
        if pattern.may_end_at(first.taken[-1][0]):
            complete.append(first)
            due = [p for p in due if p.began > first.last]
            left = [p for p in left if p.began > first.last]
    return left, complete


def _deadline(partial: Partial) -> tuple[datetime, int]:
    return partial.deadline, partial.began
