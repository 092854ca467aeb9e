"""Where processing time comes from; tests turn the hands themselves."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Protocol

from riverlock.core.times import duration_us

if TYPE_CHECKING:
    from datetime import timedelta

__all__ = ["Clock", "ManualClock", "SystemClock"]


class Clock(Protocol):
    """Tells wall time; used once per epoch, never by tasks."""

    def now_us(self) -> int:
        """Return microseconds since 1970 in UTC."""
        ...


class SystemClock:
    """The machine's clock."""

    def now_us(self) -> int:
        """Return the machine's wall time."""
        return time.time_ns() // 1_000


class ManualClock:
    """A clock that moves only when told."""

    def __init__(self, now_us: int = 0) -> None:
        """Start at ``now_us``."""
        self._now_us = now_us

    def now_us(self) -> int:
        """Return the time last set."""
        return self._now_us

    def advance(self, by: str | timedelta) -> None:
        """Move on by a duration such as ``"5 minutes"``."""
        self._now_us += duration_us(by)

    def set_us(self, now_us: int) -> None:
        """Jump, also backwards."""
        self._now_us = now_us
