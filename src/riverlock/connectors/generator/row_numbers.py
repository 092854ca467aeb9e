"""Positions of generated rows: numbers, and when the first one was due."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from riverlock.core.clock import Clock
    from riverlock.sources import Generator

__all__ = ["RowNumbers"]


class RowNumbers:
    """Plans ranges of row numbers, the same for all who read them."""

    def __init__(self, source: Generator, clock: Clock) -> None:
        """Keep the description."""
        self._source, self._clock = source, clock

    def initial(self) -> Any:
        """Begin at row 0; with a pace, time is counted from now."""
        if self._source.rows_per_second is None:
            return {"row": 0}
        return {"row": 0, "origin_us": self._clock.now_us()}

    def latest(self, start: Any) -> Any:
        """Return the number of rows there are by now."""
        end = self._source.rows
        pace = self._source.rows_per_second
        if pace is not None:
            passed = max(0, self._clock.now_us() - start["origin_us"])
            due = int(passed * pace / 1_000_000)
            end = due if end is None else min(due, end)
        assert end is not None
        return {**start, "row": max(start["row"], end)}

    def advance(self, start: Any, latest: Any, max_rows: int) -> Any:
        """Return an offset at most ``max_rows`` further."""
        return {**start, "row": min(start["row"] + max_rows, latest["row"])}

    def has_ended(self, start: Any, latest: Any) -> bool:
        """Whether all rows are made, and no more were promised."""
        source = self._source
        return (
            source.bounded and source.rows is not None and start["row"] >= source.rows
        )

    def rows_between(self, start: Any, end: Any) -> int:
        """Return the number of rows."""
        return int(end["row"] - start["row"])

    def observed(self, rows: int) -> dict[str, float]:
        """Nothing to learn."""
        return {}

    def close(self) -> None:
        """Nothing is open."""
