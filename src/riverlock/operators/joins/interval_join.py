"""Joins records whose times lie within given bounds of each other.

A pair is emitted when its second record comes, so pairs depend neither on the order of
arrival nor on where epochs end. A record waits until the watermark says that no partner
can come any more: every record that is accepted later is later than the watermark. Only
then is it known to have none.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from datetime import timedelta
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

from riverlock.core.errors import InvalidFlowError
from riverlock.core.times import END_US, START_US, duration_us, from_micros
from riverlock.core.types import Field, Schema, Type
from riverlock.operators.joins.keyed_join import EventTimeJoin, struct_of, values_of
from riverlock.state.spec import Map, StateSpec

if TYPE_CHECKING:
    from collections.abc import Iterator

    from riverlock.operators.keyed.context import OperatorContext

__all__ = ["IntervalJoin"]

_SECOND_US = 1_000_000
# Times are listed by halves of the interval: a record looks at three lists and changes
# one. Finer lists would be shorter, but each is a look-up, and they are only numbers.
_PARTS = 2


class _Buffer:
    """The records of one side that wait, by time.

    Rows are entries by their exact time, so that only those that match are read. A
    second map lists which times there are, in parts: a state map has no ranges.
    """

    def __init__(self, rows: Any, times: Any, part_us: int) -> None:
        self._rows, self._times, self._part_us = rows, times, part_us

    def add(self, at: int, row: Any, *, is_matched: bool) -> None:
        others = self._rows.get(at)
        entry = {"is_matched": is_matched, "row": row}
        self._rows[at] = [entry] if others is None else [*others, entry]
        if others is None:
            part = at // self._part_us
            listed = self._times.get(part)
            if listed is None:
                self._times[part] = [at]
            else:
                insort(listed, at)

    def between(self, low: int, high: int) -> Iterator[tuple[int, Any]]:
        """Yield the records of a range of times, both ends included."""
        for part in range(low // self._part_us, high // self._part_us + 1):
            times = self._times.get(part, ())
            for at in times[bisect_left(times, low) : bisect_right(times, high)]:
                for entry in self._rows[at]:
                    yield at, entry

    def waiting(self, since: int) -> list[int]:
        """Return the times from an instant on."""
        parts = [p for p in self._times if p >= since // self._part_us]
        return sorted(t for p in parts for t in self._times[p] if t >= since)

    def take(self, at: int) -> list[Any]:
        """Remove the records of one instant."""
        found: list[Any] = self._rows.pop(at, [])
        if found:
            part = at // self._part_us
            listed = self._times[part]
            listed.remove(at)
            if not listed:
                del self._times[part]
        return found


class _Side(NamedTuple):
    """What holds for one side."""

    name: str
    # Times of partners, relative to a record's own.
    low_us: int
    high_us: int
    # Whether a record without partner is given in the end.
    gives_unmatched: bool

    @property
    def is_left(self) -> bool:
        return self.name == "left"


class IntervalJoin(EventTimeJoin):
    """Joins by key and by the difference of event times."""

    kinds = ("inner", "left", "right", "full", "semi", "anti")

    left_rows: Any
    left_times: Any
    right_rows: Any
    right_times: Any

    def __init__(
        self, how: str, right_keys: tuple[str, ...], within: tuple[Any, Any]
    ) -> None:
        """Take bounds of the right record's time minus the left one's."""
        super().__init__(how, right_keys)
        lower, upper = _bounds_us(within)
        self._part_us = max((upper - lower) // _PARTS, _SECOND_US)
        self._left = _Side(
            name="left",
            low_us=lower,
            high_us=upper,
            gives_unmatched=how in ("left", "full", "anti"),
        )
        self._right = _Side(
            name="right",
            low_us=-upper,
            high_us=-lower,
            gives_unmatched=how in ("right", "full"),
        )

    def _states(self, left: Schema, right: Schema) -> dict[str, StateSpec]:
        return {
            "left_rows": Map("bigint", _entries(left)),
            "left_times": Map("bigint", "array<bigint>"),
            "right_rows": Map("bigint", _entries(right)),
            "right_times": Map("bigint", "array<bigint>"),
        }

    def _buffer(self, side: _Side) -> _Buffer:
        if side.is_left:
            return _Buffer(self.left_rows, self.left_times, self._part_us)
        return _Buffer(self.right_rows, self.right_times, self._part_us)

    def on_left(self, record: Any, ctx: OperatorContext) -> None:
        """Join with the right records seen so far, and wait for others."""
        self._arrive(self._left, self._right, record, ctx)

    def on_right(self, record: Any, ctx: OperatorContext) -> None:
        """Join with the left records seen so far, and wait for others."""
        self._arrive(self._right, self._left, record, ctx)

    def on_timer(self, at: Any, ctx: OperatorContext) -> None:
        """Forget records for which no partner can come any more."""
        now = ctx.time_us
        assert now is not None, "its timers are of event time"
        for side in (self._left, self._right):
            buffer, since = self._buffer(side), now - side.high_us
            # Nobody waits beyond the end of time.
            times = [since] if now < END_US else buffer.waiting(since)
            for entry in chain.from_iterable(map(buffer.take, times)):
                if side.gives_unmatched and not entry.is_matched:
                    self._give_alone(side, values_of(entry.row), now, ctx)

    def _arrive(
        self, side: _Side, other: _Side, record: Any, ctx: OperatorContext
    ) -> None:
        at = self._time(side.name, record, ctx)
        if at is None:
            return
        is_null = self._is_null(ctx.key)
        is_matched = not is_null and self._meet(side, other, record, at, ctx)
        if side.is_left and is_matched and self._gives_left_only:
            return  # one partner decides
        last = min(at + side.high_us, END_US)
        reached = ctx.watermark_us
        # Nobody can come before the beginning of time either.
        may_come = last >= START_US if reached is None else last > reached
        if not is_null and may_come:
            self._buffer(side).add(at, record, is_matched=is_matched)
            ctx.set_timer(from_micros(last))
        elif side.gives_unmatched and not is_matched:
            self._give_alone(side, tuple(record), at, ctx)

    def _meet(
        self, side: _Side, other: _Side, record: Any, at: int, ctx: OperatorContext
    ) -> bool:
        """Join a record with the partners seen so far; tell whether it has any."""
        mine, theirs = tuple(record), self._buffer(other)
        met = list(theirs.between(at + side.low_us, at + side.high_us))
        if self._gives_left_only:
            self._decide(side, mine, [time for time, _ in met], ctx)
            return bool(met)
        for time, entry in met:
            if other.gives_unmatched:
                entry.is_matched = True
            found = values_of(entry.row)
            pair = (mine, found) if side.is_left else (found, mine)
            # The later of the two: the same whichever came first, and never late.
            ctx.emit_at(self._pair(*pair), max(at, time))
        return bool(met)

    def _decide(
        self, side: _Side, mine: Any, times: list[int], ctx: OperatorContext
    ) -> None:
        """Emit (semi) or drop (anti) the left records that have met a right one."""
        rows = [mine] if times else []
        if not side.is_left:
            lefts = self._buffer(self._left)
            rows = [
                values_of(entry.row)
                for time in dict.fromkeys(times)
                for entry in lefts.take(time)
            ]
        if self._how == "semi":
            for row in rows:
                ctx.emit_at(row, ctx.time_us)

    def _give_alone(self, side: _Side, row: Any, at: int, ctx: OperatorContext) -> None:
        if side.is_left:
            ctx.emit_at(self._pair(row, None), at)
        else:
            ctx.emit_at(self._only_right(ctx.key, row), at)


def _bounds_us(within: Any) -> tuple[int, int]:
    if not isinstance(within, tuple | list) or len(within) != 2:
        raise _bad_bounds(within)
    if not all(isinstance(bound, str | timedelta) for bound in within):
        raise _bad_bounds(within)
    lower, upper = map(_signed_us, within)
    if lower > upper:
        raise _bad_bounds(within)
    return lower, upper


def _bad_bounds(within: Any) -> InvalidFlowError:
    return InvalidFlowError(
        "join(within=)",
        expected="a lower and an upper bound, such as ('-5 minutes', '10 minutes')",
        found=repr(within),
    )


def _signed_us(bound: str | timedelta) -> int:
    if isinstance(bound, timedelta):
        return bound // timedelta(microseconds=1)
    text = bound.strip()
    return -duration_us(text[1:]) if text.startswith("-") else duration_us(text)


def _entries(columns: Schema) -> Type:
    """Return the type of the records of one instant."""
    fields = (Field("is_matched", Type("boolean")), Field("row", struct_of(columns)))
    return Type("array", element=Type("struct", fields=fields))
