"""Where processing time comes from; tests turn the hands themselves."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Protocol

from riverlock.core.times import duration_us

if TYPE_CHECKING:
    from datetime import timedelta

__all__ = ["Clock", "ManualClock", "SystemClock"]


class Clock(Protocol):
    """Tells wall time, which may jump, and how time goes by; never used by tasks."""

    def now_us(self) -> int:
        """Return microseconds since 1970 in UTC."""
        ...

    def elapsed_us(self) -> int:
        """Return microseconds since some instant; never back, whatever is set."""
        ...


class SystemClock:
    """The machine's clock."""

    def now_us(self) -> int:
        """Return the machine's wall time."""
        return time.time_ns() // 1_000

    def elapsed_us(self) -> int:
        """Return how long the machine has been running."""
        return time.monotonic_ns() // 1_000


class ManualClock:
    """A clock that moves only when told."""

    def __init__(self, now_us: int = 0) -> None:
        """Start at ``now_us``."""
        self._now_us = now_us
        self._elapsed_us = 0

    def now_us(self) -> int:
        """Return the time last set."""
        return self._now_us

    def elapsed_us(self) -> int:
        """Return by how much it was moved on; jumps do not count."""
        return self._elapsed_us

    def advance(self, by: str | timedelta) -> None:
        """Move on by a duration such as ``"5 minutes"``."""
        self._now_us += duration_us(by)
        self._elapsed_us += duration_us(by)

    def set_us(self, now_us: int) -> None:
        """Jump, also backwards."""
        self._now_us = now_us
