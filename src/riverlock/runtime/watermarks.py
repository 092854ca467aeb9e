"""Watermarks of operators: the minimum of their inputs, idle ones left out."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from riverlock.flow.graph import EventTime
    from riverlock.snapshot.records import Watermark

__all__ = ["is_idle", "operator_watermark"]


def is_idle(declared: EventTime, mark: Watermark | None, now_us: int) -> bool:
    """Tell whether an input has had no rows for so long that it does not count."""
    if declared.idle_us is None or mark is None or mark.active_us is None:
        return False
    return now_us - mark.active_us > declared.idle_us


def operator_watermark(
    declared: Iterable[EventTime], marks: Mapping[str, Watermark], now_us: int
) -> int | None:
    """Return the watermark of an operator, or None while an input has no time yet.

    If all inputs are idle, none is left out: time stands still, it does not jump.
    """
    every = list(declared)
    awake = [d for d in every if not is_idle(d, marks.get(d.uid), now_us)] or every
    times = [marks[d.uid].watermark_us if d.uid in marks else None for d in awake]
    known = [t for t in times if t is not None]
    return min(known) if known and len(known) == len(times) else None
