"""Watermarks of inputs and partitions that are idle, or that have ended.

An input that is idle is moved along with the others, by the planner and for good: its
watermark is raised, so that when it wakes up time does not run backwards. What it
brings then may be late. Idle partitions of an input do not count while others are
awake. An input that has ended has the last watermark there is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from riverlock.coordinator.watermarks import operator_watermark, slowest
from riverlock.core.times import END_US
from riverlock.snapshot.format.records import PartitionTime, Watermark
from riverlock.worker.event_times import MAX_PARTITIONS, too_many_partitions

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from riverlock.program.graph import EventTime

__all__ = ["at_the_end", "declared_marks", "moved_along"]


def declared_marks(
    declared: Iterable[EventTime], marks: Mapping[str, Watermark], *, now_us: int
) -> dict[str, Watermark]:
    """Return the watermarks as they are declared now, without idle partitions.

    If all partitions of an input are idle, its time stands still.

    Raises:
        InvalidFlowError: An input has too many partitions.
    """
    found = dict(marks)
    for each in declared:
        old = marks.get(each.uid, Watermark())
        parts = old.partitions if each.per is not None else {}
        awake = {n: p for n, p in parts.items() if not _is_silent(each, p, now_us)}
        if len(parts) > MAX_PARTITIONS:
            # Those that are idle are remembered for people only.
            parts = awake
        if len(parts) > MAX_PARTITIONS:
            raise too_many_partitions(each.uid, len(parts))
        reached = slowest(awake.values(), each.delay_us)
        known = [t for t in (old.watermark_us, reached) if t is not None]
        found[each.uid] = msgspec.structs.replace(
            old,
            watermark_us=max(known, default=None),
            idle_after_us=each.idle_us,
            delay_us=each.delay_us,
            per=each.per,
            is_marked=each.watermark is not None,
            partitions=dict(parts),
        )
    return found


def _is_silent(declared: EventTime, partition: PartitionTime, now_us: int) -> bool:
    if declared.idle_us is None or partition.active_us is None:
        return False
    return now_us - partition.active_us > declared.idle_us


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
        # One that has ended says nothing of the time that others have reached.
        live = [d for d in declared if not _has_ended(marks.get(d.uid))]
        idle = [d for d in live if _is_idle(d, marks.get(d.uid), now_us, since_us)]
        awake = [d.uid for d in live if d not in idle]
        reached = operator_watermark(awake, marks)
        for each in idle:
            if reached is not None:
                raised.setdefault(each.uid, []).append(reached)
    moved = dict(marks)
    for uid, times in raised.items():
        old = marks.get(uid, Watermark())
        before = min(times) if old.watermark_us is None else old.watermark_us
        highest = max(min(times), before)
        moved[uid] = msgspec.structs.replace(old, watermark_us=highest)
    return moved


def at_the_end(
    marks: Mapping[str, Watermark], ended: Iterable[str]
) -> dict[str, Watermark]:
    """Return the watermarks, the last instant for inputs that have ended."""
    found = dict(marks)
    for uid in ended:
        old = marks.get(uid, Watermark())
        found[uid] = msgspec.structs.replace(old, watermark_us=END_US)
    return found


def _has_ended(mark: Watermark | None) -> bool:
    return mark is not None and mark.watermark_us == END_US


def _is_idle(
    declared: EventTime, mark: Watermark | None, now_us: int, since_us: int
) -> bool:
    if declared.idle_us is None:
        return False
    active = None if mark is None else mark.active_us
    return now_us - (since_us if active is None else active) > declared.idle_us
