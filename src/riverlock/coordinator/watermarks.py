"""The watermark of an operator: the minimum of its inputs."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from riverlock.snapshot.records import Watermark

__all__ = ["operator_watermark"]


def operator_watermark(
    declared: Iterable[str],
    marks: Mapping[str, Watermark],
    before_us: int | None = None,
) -> int | None:
    """Return the watermark of an operator, or None while an input has no time yet.

    Args:
        declared: The ``event_time`` declarations that reach the operator.
        marks: The watermark of each.
        before_us: The operator's own so far: an input that is added to it later must
            not turn time back, for what was given would be given again.
    """
    times = [marks[d].watermark_us if d in marks else None for d in declared]
    known = [t for t in times if t is not None]
    reached = min(known) if known and len(known) == len(times) else None
    if reached is None or before_us is None:
        return before_us if reached is None else reached
    return max(reached, before_us)
