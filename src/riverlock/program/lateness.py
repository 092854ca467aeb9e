"""Which records come too late for a window: the one place that says so.

The formulas hold for one number, for many in NumPy's arrays, and for a column of Spark
in SQL (``spark.sql_arithmetic``). Tasks leave out by them what Spark gives as `late`.
What is over in event time is said by ``coordinator.watermarks``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from riverlock.coordinator.watermarks import first_open_us
from riverlock.core.times import END_US, START_US

if TYPE_CHECKING:
    from riverlock.program.windows import Number, TimeWindows

__all__ = ["closed_at_us", "pane_lateness", "session_lateness"]


def closed_at_us(watermark_us: int | None, lateness_us: int) -> int | None:
    """Return until when windows must have ended to take no more records.

    None: nothing is over yet.
    """
    is_open = first_open_us(watermark_us)
    return None if is_open is None else is_open - lateness_us


def pane_lateness(
    window: TimeWindows, pane: Number, closed_at: int | None
) -> tuple[Any, Any]:
    """Return whether a pane is in any window at all, and whether it is too late.

    Args:
        window: The windows.
        pane: When the pane ends.
        closed_at: As ``closed_at_us`` says.
    """
    last = window.last_end(pane)
    # Time has an end: a window beyond it never would be over. Nor does one have a
    # beginning that is before the beginning of time.
    begin = window.first_end(pane) - window.size_us
    is_late: Any = (last > END_US) | (begin < START_US)
    if closed_at is not None:
        is_late = is_late | (last <= closed_at)
    # Where windows are apart, some panes are in none, and never late.
    is_used: Any = last >= pane
    return is_used, is_used & is_late


def session_lateness(at: Number, gap: Number, closed_at: int | None) -> Any:
    """Return whether a record is too late for any session.

    Args:
        at: Its event time.
        gap: How long after it its session lasts; without a gap there is none.
        closed_at: As ``closed_at_us`` says.
    """
    is_late: Any = gap <= 0
    return is_late if closed_at is None else is_late | (at + gap <= closed_at)
