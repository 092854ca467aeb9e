"""How much an epoch takes: a fixed number of rows, or what fits a duration."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Admission"]

_FIRST = 100_000
_LEAST, _MOST = 10_000, 5_000_000
# An epoch has a fixed cost (planning, scheduling, syncing). If the target is hardly
# more than that, epochs of the target's length would do almost nothing but pay it.
_MIN_FIXED = 2.5
# How much of what older epochs taught is kept: machines and flows change.
_KEEP = 0.85


@dataclass
class Admission:
    """Adapts the row limit to earlier epochs: a line through rows and durations.

    Attributes:
        target_us: How long an epoch should take; None: always ``max_rows``.
        max_rows: A limit that is never exceeded; None for none.
    """

    target_us: int | None
    max_rows: int | None = None
    _limit: int = _FIRST
    _epochs: int = 0
    # Sums over epochs, the older the lighter: weight, x, y, x², xy.
    _sums: tuple[float, float, float, float, float] = (0.0, 0.0, 0.0, 0.0, 0.0)

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
        seen = (1.0, rows, took_us, rows * rows, rows * took_us)
        self._sums = tuple(  # type: ignore[assignment]
            old * _KEEP + new for old, new in zip(self._sums, seen, strict=True)
        )
        # An epoch that was not filled shows the cost, not how much would fit.
        if rows < self.rows // 2:
            return
        fixed, per_row = self._line(rows, took_us)
        budget = max(self.target_us, _MIN_FIXED * fixed) - fixed
        bounded = max(self._limit // 2, min(int(budget / per_row), self._limit * 2))
        self._limit = max(_LEAST, min(bounded, _MOST))

    def _line(self, rows: int, took_us: int) -> tuple[float, float]:
        """Return the fixed cost of an epoch and the cost of a row."""
        n, x, y, xx, xy = self._sums
        spread = n * xx - x * x
        if spread > 1e-3 * xx * n:
            per_row = (n * xy - x * y) / spread
            fixed = (y - per_row * x) / n
            if per_row > 0 and fixed >= 0:
                return fixed, per_row
        # All epochs were alike: nothing is known of the fixed cost yet.
        return 0.0, took_us / rows
