"""Windows: which spans of event time a record belongs to.

A sliding window is made of *panes*, spans that no window divides: a record is stored
once, with its pane, and a window is the merge of its panes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from riverlock.core.errors import InvalidConfigError
from riverlock.core.keywords import told_keywords
from riverlock.core.times import END_US, duration_us

if TYPE_CHECKING:
    from datetime import timedelta

    import numpy as np

    from riverlock.spark.sql_arithmetic import SqlNumber

__all__ = [
    "TIMED",
    "CountWindows",
    "GlobalWindow",
    "Number",
    "SessionWindows",
    "TimeWindows",
    "Windows",
    "count_windows",
    "global_window",
    "sessions",
    "sliding",
    "tumbling",
]


# One instant, or many.
Number = TypeVar("Number", int, "np.ndarray", "SqlNumber")


@dataclass(frozen=True, kw_only=True)
class TimeWindows:
    """Windows of one length that begin at regular instants; see ``sliding``.

    All times are in microseconds. A window includes its start and excludes its end.
    What holds for one instant or pane holds for many at once, in NumPy or SQL.
    """

    size_us: int
    slide_us: int
    offset_us: int = 0

    def __str__(self) -> str:
        """Say what must not change while there is state (format §4.1)."""
        sizes = f"size {self.size_us} slide {self.slide_us}"
        return f"{sizes} offset {self.offset_us}"

    @property
    def pane_us(self) -> int:
        """The length of the panes that all windows are made of."""
        return math.gcd(self.size_us, self.slide_us)

    @property
    def is_tumbling(self) -> bool:
        """Whether each instant lies in exactly one window."""
        return self.size_us == self.slide_us

    @property
    def phase_us(self) -> int:
        """An instant at which some window ends."""
        return self.offset_us + self.size_us

    def pane_of(self, at_us: Number) -> Number:
        """Return the end of the pane that an instant lies in."""
        end: Number = at_us - (at_us - self.offset_us) % self.pane_us + self.pane_us
        return end

    def first_end(self, pane_end_us: Number) -> Number:
        """Return the end of the first window that holds a pane."""
        end: Number = pane_end_us + (self.phase_us - pane_end_us) % self.slide_us
        return end

    def last_end(self, pane_end_us: Number) -> Number:
        """Return the end of the last one; before the first: the pane is in a gap."""
        latest = pane_end_us - self.pane_us + self.size_us
        end: Number = latest - (latest - self.phase_us) % self.slide_us
        return end

    def ends_of(self, pane_end_us: int) -> range:
        """Return when the windows end that hold a pane."""
        first, last = self.first_end(pane_end_us), self.last_end(pane_end_us)
        return range(first, last + 1, self.slide_us)

    def last_closed_pane(self, at_us: int) -> int:
        """Return an instant after which no pane ends whose windows are all over."""
        return min(at_us, at_us + self.pane_us - self.size_us + self.slide_us - 1)


@dataclass(frozen=True, kw_only=True)
class SessionWindows:
    """Windows that last until a key has been silent for some time; see ``sessions``."""

    # One gap, or an expression that Spark evaluates for each record.
    gap_us: int | None = None
    gap_expr: str | None = None

    def __str__(self) -> str:
        """Say what must not change while there is state (format §4.1)."""
        return f"session {'by record' if self.gap_us is None else self.gap_us}"

    def end_of(self, record: Any, at_us: int) -> int:
        """Return when a session of one record ends; its last column may be the gap."""
        gap_us = tuple(record)[-1] if self.gap_us is None else self.gap_us
        # Time has an end, and so have sessions that would go beyond it.
        return min(at_us + gap_us, END_US)


@dataclass(frozen=True, kw_only=True)
class CountWindows:
    """Windows of a fixed number of records of a key; see ``count_windows``."""

    size: int
    slide: int

    def __str__(self) -> str:
        """Say what must not change while there is state (format §4.1)."""
        return f"count {self.size} slide {self.slide}"

    @property
    def pane(self) -> int:
        """How many records there are that no window divides."""
        return math.gcd(self.size, self.slide)

    def first_of(self, last: int) -> int:
        """Return the number of a window's first record; 1 is the first of the key."""
        return last - self.size + 1

    def has(self, number: int) -> bool:
        """Whether a record is in any window: there may be gaps between them."""
        end = -(-number // self.slide) * self.slide
        return number >= self.first_of(end)


@dataclass(frozen=True, kw_only=True)
class GlobalWindow:
    """One window that never ends; see ``global_window``."""

    def __str__(self) -> str:
        """Say what must not change while there is state (format §4.1)."""
        return "global"


# Windows of event time: records can be late for them.
TIMED = TimeWindows | SessionWindows
Windows: TypeAlias = TimeWindows | SessionWindows | CountWindows | GlobalWindow


@told_keywords
def global_window() -> GlobalWindow:
    """Put all records of a key into one window, which never ends.

    It emits when a trigger fires, and at the end of a bounded input.
    """
    return GlobalWindow()


@told_keywords
def sessions(
    gap: str | timedelta | None = None, *, gap_expr: str | None = None
) -> SessionWindows:
    """Let windows last while records of a key come: ``sessions("30 minutes")``.

    A session begins with its first record and ends a gap after the last; a record that
    comes exactly a gap after another still belongs to it, as in Spark and Flink.

    Args:
        gap: How long a key must be silent.
        gap_expr: Instead, SQL over the columns of a record for the gap after it: an
            interval, text such as ``'5 minutes'``, or a number of seconds.

    Raises:
        InvalidConfigError: There is neither, or both, or the gap is zero.
    """
    if (gap is None) == (gap_expr is None):
        raise InvalidConfigError(
            "sessions()",
            expected="a gap, or a gap_expr",
            found="neither" if gap is None else "both",
        )
    if gap is None:
        return SessionWindows(gap_expr=gap_expr)
    gap_us = duration_us(gap)
    if gap_us <= 0:
        raise InvalidConfigError(
            "sessions(gap=)", expected="more than 0", found=f"{gap_us} µs"
        )
    return SessionWindows(gap_us=gap_us)


@told_keywords
def tumbling(
    size: str | timedelta, *, offset: str | timedelta = "0 seconds"
) -> TimeWindows:
    """Divide event time into windows that do not overlap: ``tumbling("1 hour")``.

    Args:
        size: Their length.
        offset: When they begin, counted from 1970-01-01T00:00:00Z: days of a time zone
            that is two hours ahead begin at ``22 hours``.
    """
    return sliding(size, size, offset=offset)


@told_keywords
def sliding(
    size: str | timedelta,
    slide: str | timedelta,
    *,
    offset: str | timedelta = "0 seconds",
) -> TimeWindows:
    """Let a window begin every ``slide``: ``sliding("1 hour", "1 minute")``.

    If windows begin less often than they are long, records between them are in none.
    """
    window = TimeWindows(
        size_us=duration_us(size),
        slide_us=duration_us(slide),
        offset_us=duration_us(offset),
    )
    for name, value in (("size", window.size_us), ("slide", window.slide_us)):
        if value <= 0:
            raise InvalidConfigError(
                f"{name} of a window", expected="more than 0", found=f"{value} µs"
            )
    return window


@told_keywords
def count_windows(size: int, slide: int | None = None) -> CountWindows:
    """Put a number of records of a key into a window: ``count_windows(100)``.

    Records are counted in the order of arrival. A window emits when it is full; with a
    ``slide``, after every ``slide`` records, over the last ``size`` (the first ones
    hold fewer, as in Flink). At the end of a bounded input the window that is not full
    emits too.
    """
    window = CountWindows(size=size, slide=size if slide is None else slide)
    for name, value in (("size", window.size), ("slide", window.slide)):
        if type(value) is not int or value < 1:
            raise InvalidConfigError(
                f"{name} of a count window",
                expected="a whole number of at least 1",
                found=repr(value),
            )
    return window
