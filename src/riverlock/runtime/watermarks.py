"""Watermarks of operators: the minimum of their inputs.

An input that is idle is moved along with the others, by the planner and for good: its
watermark is raised, so that when it wakes up time does not run backwards. What it
brings then may be late.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from riverlock.snapshot.records import Watermark

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from riverlock.flow.graph import EventTime

__all__ = ["moved_along", "operator_watermark"]


def operator_watermark(
    declared: Iterable[str], marks: Mapping[str, Watermark]
) -> int | None:
    """Return the watermark of an operator, or None while an input has no time yet."""
    times = [marks[d].watermark_us if d in marks else None for d in declared]
    known = [t for t in times if t is not None]
    return min(known) if known and len(known) == len(times) else None


def moved_along(
    operators: Iterable[tuple[EventTime, ...]],
    marks: Mapping[str, Watermark],
    *,
    now_us: int,
    since_us: int,
) -> dict[str, Watermark]:
    """Return the watermarks with idle inputs raised to those of the others.

    If all inputs of an operator are idle, time stands still, it does not jump.

    Args:
        operators: The declarations that reach each operator.
        marks: The watermarks so far.
        now_us: Processing time.
        since_us: When the run began: an input without any rows is idle from then on.
    """
    raised: dict[str, list[int]] = {}
    for declared in operators:
        idle = [d for d in declared if _is_idle(d, marks.get(d.uid), now_us, since_us)]
        awake = [d.uid for d in declared if d not in idle]
        reached = operator_watermark(awake, marks)
        for each in idle:
            if reached is not None:
                raised.setdefault(each.uid, []).append(reached)
    moved = dict(marks)
    for uid, times in raised.items():
        old = marks.get(uid, Watermark())
        highest = max([min(times), *([old.watermark_us] if old.watermark_us else [])])
        moved[uid] = msgspec.structs.replace(old, watermark_us=highest)
    return moved


def _is_idle(
    declared: EventTime, mark: Watermark | None, now_us: int, since_us: int
) -> bool:
    if declared.idle_us is None:
        return False
    active = None if mark is None else mark.active_us
    return now_us - (since_us if active is None else active) > declared.idle_us
