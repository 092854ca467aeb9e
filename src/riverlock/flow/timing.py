"""Which time an operator goes by: that of its records, or the clock's."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from riverlock.core.errors import InvalidConfigError, InvalidFlowError
from riverlock.core.times import duration
from riverlock.flow.graph import event_times_of

if TYPE_CHECKING:
    from riverlock.flow.graph import Node

__all__ = ["Timing", "positive_duration", "timing_of"]


@dataclass(frozen=True, kw_only=True)
class Timing:
    """Event time, if the stream has one; else processing time."""

    has_event_time: bool

    def instant(self, ctx: Any) -> datetime | None:
        """Return when the current record happened; None if it does not say."""
        at: datetime | None = ctx.time if self.has_event_time else ctx.now
        return at

    def is_late(self, at: datetime, ctx: Any) -> bool:
        """Tell whether a record came later than the declared delay allows."""
        watermark = ctx.watermark if self.has_event_time else None
        return watermark is not None and at <= watermark

    def set_timer(self, at: datetime, ctx: Any) -> None:
        """Set a timer of the current key in this time."""
        ctx.set_timer(at, processing=not self.has_event_time)


def timing_of(node: Node) -> Timing:
    """Return the time that an operator over a node's rows goes by."""
    declared = [t for t in event_times_of(node) if t.column is not None]
    return Timing(has_event_time=bool(declared))


def positive_duration(what: str, value: str | timedelta) -> timedelta:
    """Return a duration of more than nothing.

    Raises:
        InvalidFlowError: It is none.
    """
    try:
        found = duration(value)
    except (InvalidConfigError, TypeError):
        found = timedelta(0)
    if found <= timedelta(0):
        raise InvalidFlowError(
            what,
            expected="a duration such as '10 minutes'",
            found=repr(value),
        )
    return found
