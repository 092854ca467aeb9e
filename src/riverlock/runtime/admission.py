"""How much an epoch takes: a fixed number of rows, or what fits a duration."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Admission"]

_FIRST = 100_000
_LEAST, _MOST = 10_000, 5_000_000
# An epoch has a fixed cost (planning, scheduling, syncing). If the target is hardly
# more than that, epochs of the target's length would do almost nothing but pay it.
_MIN_FLOORS = 2.5
# The fixed cost is the fastest epoch seen; slowly forgotten, since machines change.
_FORGET = 1.02


@dataclass
class Admission:
    """Adapts the row limit to the pace of the epochs before.

    Attributes:
        target_us: How long an epoch should take; None: always ``max_rows``.
        max_rows: A limit that is never exceeded; None for none.
    """

    target_us: int | None
    max_rows: int | None = None
    _limit: int = _FIRST
    _floor_us: float | None = None
    _epochs: int = 0

    @property
    def rows(self) -> int:
        """How many rows the next epoch may take."""
        if self.max_rows is None:
            return self._limit
        is_fixed = self.target_us is None
        return self.max_rows if is_fixed else min(self._limit, self.max_rows)

    def learn(self, rows: int, took_us: int) -> None:
        """Move towards the number of rows that would have taken the target."""
        self._epochs += 1
        # The first epochs start workers and compile plans: they tell nothing.
        if self.target_us is None or self._epochs <= 2 or rows <= 0 or took_us <= 0:
            return
        known = took_us if self._floor_us is None else self._floor_us * _FORGET
        self._floor_us = floor = min(took_us * 0.9, known)
        # An epoch that was not filled says nothing about how much would fit.
        if rows < self.rows // 2:
            return
        budget = max(self.target_us, _MIN_FLOORS * floor) - floor
        ideal = int(rows * budget / (took_us - floor))
        bounded = max(self._limit // 2, min(ideal, self._limit * 2))
        self._limit = max(_LEAST, min(bounded, _MOST))
