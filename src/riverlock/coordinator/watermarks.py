"""Watermarks: what is over in event time, of an input and of an operator.

One rule for all: *an instant is over when the watermark has reached it*. A record is
late if its instant is over, a timer is due when its instant is, and a window when its
last instant is. So a record that is late by exactly the declared delay is in time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from riverlock.core.times import START_US
from riverlock.snapshot.format.records import PartitionTime, Watermark

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = [
    "advanced",
    "first_open_us",
    "operator_watermark",
    "reached_by",
    "slowest",
]


def reached_by(max_time_us: int, delay_us: int) -> int | None:
    """Return the last instant of which no more records are expected.

    One that is the whole delay behind the newest may still come. None: no instant is
    over, since it would be one before time begins.
    """
    reached = max_time_us - delay_us - 1
    return reached if reached >= START_US else None


def first_open_us(watermark_us: int | None) -> int | None:
    """Return the first instant that is not over: windows that end until then are."""
    return None if watermark_us is None else watermark_us + 1


def slowest(partitions: Iterable[PartitionTime], delay_us: int) -> int | None:
    """Return the watermark of partitions: that of the one that is furthest behind.

    None if there are none, or if one of them has not said anything of time yet.
    """
    times = [p.max_time_us for p in partitions]
    known = [t for t in times if t is not None]
    if not known or len(known) < len(times):
        return None
    return reached_by(min(known), delay_us)


def advanced(  # noqa: PLR0913 - all that a watermark follows from
    before: Watermark,
    used: Watermark,
    seen: Iterable[int | None],
    partitions: Iterable[Mapping[str, int | None]],
    *,
    delay_us: int | None,
    now_us: int,
) -> Watermark:
    """Return the watermark of an input after an epoch.

    Args:
        before: As the epoch before left it.
        used: As this epoch saw it, with idle inputs and partitions moved along.
        seen: Greatest times of the epoch's rows by task; none if there were no rows.
        partitions: The same by partition, if the input is declared so.
        delay_us: How late rows may come; None: rows do not move it.
        now_us: Processing time of the epoch.
    """
    times = list(seen)
    newest = _greatest((before.max_time_us, used.max_time_us, *times))
    known = _with_times(used.partitions, partitions, now_us)
    reached = None
    if delay_us is None:
        pass  # told by another region
    elif known:
        reached = slowest(known.values(), delay_us)
    elif newest is not None:
        reached = reached_by(newest, delay_us)
    return msgspec.structs.replace(
        used,
        max_time_us=newest,
        # Never back, also behind what this epoch's timers have already seen.
        watermark_us=_greatest((before.watermark_us, used.watermark_us, reached)),
        active_us=now_us if times else before.active_us,
        partitions=known,
    )


def _with_times(
    known: Mapping[str, PartitionTime],
    seen: Iterable[Mapping[str, int | None]],
    now_us: int,
) -> dict[str, PartitionTime]:
    found = dict(known)
    for times in seen:
        for name, time_us in times.items():
            old = found.get(name, PartitionTime())
            found[name] = PartitionTime(
                max_time_us=_greatest((old.max_time_us, time_us)), active_us=now_us
            )
    return found


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


def _greatest(values: Iterable[int | None]) -> int | None:
    return max((v for v in values if v is not None), default=None)
