"""Which time an operator uses: that of its records, or the clock's."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from riverlock.core.errors import InvalidConfigError, InvalidFlowError
from riverlock.core.times import duration
from riverlock.program.graph import (
    Connect,
    EventTime,
    Keyed,
    Read,
    described,
    event_times_of,
    inputs_of,
)
from riverlock.program.two_inputs import LooksUp

if TYPE_CHECKING:
    from riverlock.core.types import Schema
    from riverlock.program.context import Context
    from riverlock.program.graph import Node

__all__ = [
    "Timing",
    "check_event_time",
    "check_timestamp",
    "positive_duration",
    "timing_of",
]


@dataclass(frozen=True, kw_only=True)
class Timing:
    """Event time, if the stream has one; else processing time."""

    has_event_time: bool

    def instant(self, ctx: Context) -> datetime | None:
        """Return when the current record happened; None if it does not say."""
        return ctx.time if self.has_event_time else ctx.now

    def is_late(self, at: datetime, ctx: Context) -> bool:
        """Tell whether a record came later than the declared delay allows."""
        watermark = ctx.watermark if self.has_event_time else None
        return watermark is not None and at <= watermark

    def set_timer(self, at: datetime, ctx: Context) -> None:
        """Set a timer of the current key in this time."""
        ctx.set_timer(at, processing=not self.has_event_time)


def timing_of(node: Node, what: str, columns: Schema | None) -> Timing:
    """Return the time that an operator over a node's rows uses.

    Args:
        node: What the operator reads.
        what: The operator, for errors.
        columns: The columns of its rows, if they are known.

    Raises:
        InvalidFlowError: Some of the rows have event time, and others have none.
    """
    declared = [t for t in event_times_of(node) if t.column is not None]
    if declared:
        check_event_time(node, what, columns)
    return Timing(has_event_time=bool(declared))


def check_event_time(node: Node, what: str, columns: Schema | None) -> None:
    """Refuse rows without event time: all of them would be late.

    Args:
        node: What the operator reads.
        what: The operator, for errors.
        columns: The columns of its rows, if they are known.

    Raises:
        InvalidFlowError: On some path to the operator no event time is declared.
    """
    source = _untimed(node)
    if source is None:
        return
    fields = () if columns is None else columns.fields
    times = [f.name for f in fields if f.type.kind.startswith("timestamp")]
    line = f'.event_time("{times[0] if times else "at"}", delay="1 minute")'
    raise InvalidFlowError(
        what,
        expected="event time in all rows",
        found=f"none in rows of {described(source)}: they would all be late",
        hint=f"declare it where they are read, before key_by and union: {line}",
    )


def check_timestamp(column: str, columns: Schema | None) -> None:
    """Refuse a column that cannot be an event time, as far as columns are known.

    Raises:
        InvalidFlowError: It has another type.
    """
    if columns is None or columns[column].kind.startswith("timestamp"):
        return
    raise InvalidFlowError(
        f"event_time({column!r})",
        expected="a timestamp column",
        found=f"{column} {columns[column].ddl}",
        hint=f"make it one before: .with_column({column!r},"
        f" 'to_timestamp({column})').event_time({column!r})",
    )


def _untimed(node: Node) -> Node | None:
    """Return a source from which rows come without event time, if there is one.

    Of two connected streams one is enough: rows of the other may only be looked up.
    """
    if isinstance(node, Read):
        return node
    if isinstance(node, EventTime) and node.column is not None:
        return None
    if isinstance(node, Keyed) and isinstance(node.input, Connect):
        left, right = map(_untimed, (node.input.left, node.input.right))
        is_left = isinstance(node.process, LooksUp) or node.has_control
        return left if is_left or right else None
    inputs = (node.input,) if isinstance(node, Keyed) else inputs_of(node)
    found = map(_untimed, inputs)
    return next((each for each in found if each is not None), None)


def positive_duration(what: str, value: str | timedelta) -> timedelta:
    """Return a duration of more than zero.

    Raises:
        InvalidFlowError: It is not one.
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
