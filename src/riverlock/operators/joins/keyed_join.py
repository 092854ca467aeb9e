"""Joins of two keyed streams: built-in operators with two inputs.

What all of them share: the key is what is joined on, a null in a key equals nothing (as
in SQL), and a row is the columns of the left side followed by those of the right
without its key columns. ``interval_join`` has the join that buffers both sides.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from riverlock.core.errors import InvalidFlowError
from riverlock.core.times import END_US, duration_us, from_micros
from riverlock.core.types import Field, Schema, Type
from riverlock.operators.base import LATE, bind
from riverlock.operators.keyed.key_by_key import KeyByKey
from riverlock.program.process import SideOutput
from riverlock.program.two_inputs import LEFT_ROW, RIGHT_ROW, LooksUp, TwoSided
from riverlock.state.spec import Map, StateSpec, Value

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import timedelta

    from riverlock.operators.base import BuiltIn
    from riverlock.operators.keyed.context import OperatorContext

__all__ = ["EventTimeJoin", "Join", "LatestJoin", "Lookup"]

Row = tuple[Any, ...]


class Join(KeyByKey, TwoSided["OperatorContext"]):
    """What all joins have in common: how the rows of two sides make one."""

    # Which rows a join gives besides those of matching pairs.
    kinds: tuple[str, ...] = ("inner", "left")

    def __init__(self, how: str, right_keys: tuple[str, ...]) -> None:
        """Check the kind of join now, while the user's line is on the stack."""
        if how not in self.kinds:
            raise InvalidFlowError(
                "join(how=)", expected=" or ".join(self.kinds), found=repr(how)
            )
        self._how, self._right_keys = how, right_keys

    def bound(self, keys: Schema, columns: Schema) -> BuiltIn:
        """Declare state and output by the columns of both sides."""
        left = Schema(columns[LEFT_ROW].fields)
        right = Schema(columns[RIGHT_ROW].fields)
        self._width = len(keys.fields)
        self._left_keys = [left.names.index(k) for k in keys.names]
        rest = [f for f in right.fields if f.name not in self._right_keys]
        self._rest = [right.names.index(f.name) for f in rest]
        self._blank = (None,) * len(left.names)
        output = left if self._gives_left_only else _side_by_side(left, rest)
        attributes: dict[str, StateSpec | SideOutput] = {
            **self._states(left, right),
            **self._side_outputs(left, right),
        }
        return bind(self, self._output(output), attributes)

    def _output(self, joined: Schema) -> Schema:
        """Return the columns of a row, given those of the records in it."""
        return joined

    @property
    def _gives_left_only(self) -> bool:
        return self._how in ("semi", "anti")

    def _states(self, left: Schema, right: Schema) -> dict[str, StateSpec]:
        raise AssertionError

    def _side_outputs(self, left: Schema, right: Schema) -> dict[str, SideOutput]:
        return {}

    def _pair(self, left: Row, right: Row | None) -> Row:
        """Return the row of a left record and its partner, if it has one."""
        if self._gives_left_only:
            return left
        if right is None:
            return (*left, *(None for _ in self._rest))
        return (*left, *(right[i] for i in self._rest))

    def _only_right(self, key: Any, right: Row) -> Row:
        """Return the row of a right record without partner; it keeps the key."""
        blank = list(self._blank)
        for place, value in zip(self._left_keys, self._key(key), strict=True):
            blank[place] = value
        return self._pair(tuple(blank), right)

    def _key(self, key: Any) -> Row:
        return (key,) if self._width == 1 else key

    def _is_null(self, key: Any) -> bool:
        return None in self._key(key)


def _side_by_side(left: Schema, rest: Iterable[Any]) -> Schema:
    clash = [f.name for f in rest if f.name in left.names]
    if clash:
        raise InvalidFlowError(
            "a join",
            expected="no column names on both sides, except the key",
            found=f"{', '.join(clash)} on both sides",
            hint=f"rename one before key_by: .select(..., '{clash[0]} as ...')",
        )
    return Schema((*left.fields, *rest))


def values_of(row: Any) -> Row:
    """Return the values of a stored row."""
    return msgspec.structs.astuple(row)


def struct_of(columns: Schema) -> Type:
    """Return the type of a stored row."""
    return Type("struct", fields=columns.fields)


class Lookup(Join, LooksUp):
    """Enriches left records at once with the latest right record of their key.

    State is one row per key: a record costs one look-up.
    """

    latest: Any

    def __init__(
        self, how: str, right_keys: tuple[str, ...], ttl: timedelta | None = None
    ) -> None:
        """Take for how long a right record is kept, by the clock."""
        super().__init__(how, right_keys)
        self._ttl = ttl

    def _states(self, left: Schema, right: Schema) -> dict[str, StateSpec]:
        return {"latest": Value(struct_of(right), ttl=self._ttl)}

    def on_right(self, record: Any, ctx: OperatorContext) -> None:
        """Keep the record instead of the one before."""
        if not self._is_null(ctx.key):
            self.latest = record

    def on_left(self, record: Any, ctx: OperatorContext) -> list[Row]:
        """Emit the record with its partner, if there is one."""
        found = self.latest
        if found is None:
            return [] if self._how == "inner" else [self._pair(tuple(record), None)]
        return [self._pair(tuple(record), values_of(found))]


class EventTimeJoin(Join):
    """A join by event time: exact for what comes in time, and reports what did not."""

    sides = (LATE,)

    def _side_outputs(self, left: Schema, right: Schema) -> dict[str, SideOutput]:
        """Declare late records of both sides: a column each, and null in the other."""
        columns = (
            Field("side", Type("string")),
            Field("at", Type("timestamp")),
            Field("left", struct_of(left)),
            Field("right", struct_of(right)),
        )
        return {LATE: SideOutput(Schema(columns))}

    def _time(self, side: str, record: Any, ctx: OperatorContext) -> int | None:
        """Return the time of a record; None if it goes to ``late``.

        A record that is late may have partners that are gone, and whoever waited for it
        waits no more.
        """
        at: int | None = ctx.time_us
        reached = ctx.watermark_us
        if at is not None and not self._is_late(at, reached):
            return at
        row, is_left = tuple(record), side == "left"
        sides = (row, None) if is_left else (None, row)
        ctx.emit(LATE, (side, ctx.time, *sides))
        return None

    def _is_late(self, at: int, reached: int | None) -> bool:
        return reached is not None and at <= reached


class LatestJoin(EventTimeJoin):
    """Emits left records with the right record that was valid at their time.

    Records of both sides wait under their time until the watermark reaches it. Timers
    fire in the order of time, so what is valid by then is one value, and older ones are
    forgotten: a record costs one entry, and one more look-up when it is due.
    """

    current: Any  # what holds at the watermark
    since: Any  # from when on, if it does not hold for ever
    coming: Any  # time -> what holds from then on
    waiting: Any  # time -> left records

    def __init__(
        self, how: str, right_keys: tuple[str, ...], valid_for: timedelta | None = None
    ) -> None:
        """Take for how long a right record holds, if no other one takes its place."""
        super().__init__(how, right_keys)
        self._valid_us = None if valid_for is None else duration_us(valid_for)

    def _states(self, left: Schema, right: Schema) -> dict[str, StateSpec]:
        several = Type("array", element=struct_of(left))
        since = {} if self._valid_us is None else {"since": Value("bigint")}
        return {
            **since,
            "current": Value(struct_of(right)),
            "coming": Map("bigint", struct_of(right)),
            "waiting": Map("bigint", several),
        }

    def on_left(self, record: Any, ctx: OperatorContext) -> None:
        """Wait until everything that could be valid at this time has come."""
        at = self._time("left", record, ctx)
        if at is not None:
            self.waiting[at] = [*self.waiting.get(at, ()), record]
            ctx.set_timer(from_micros(at))

    def on_right(self, record: Any, ctx: OperatorContext) -> None:
        """Be valid from this time on; of two of one instant the last to come counts."""
        at = self._time("right", record, ctx)
        if at is not None and not self._is_null(ctx.key):
            self.coming[at] = record
            ctx.set_timer(from_micros(at))

    def on_timer(self, at: Any, ctx: OperatorContext) -> None:
        """Let a right record take effect, then give the left ones of this time."""
        now = ctx.time_us
        assert now is not None, "its timers are of event time"
        if self._valid_us is not None:
            self._expire(now, self._valid_us, ctx)
        self.current = self.coming.pop(now, self.current)
        found = None if self.current is None else values_of(self.current)
        for row in self.waiting.pop(now, ()):
            if found is not None or self._how == "left":
                ctx.emit_at(self._pair(values_of(row), found), now)

    def _expire(self, now: int, valid_us: int, ctx: OperatorContext) -> None:
        """Forget the valid record when its time is over, or another one replaces it."""
        is_replaced = now in self.coming
        end = None if self.since is None else self.since + valid_us
        if end is not None and now >= end:
            self.current = self.since = None
        elif end is not None and is_replaced and not self._is_awaited(end):
            ctx.delete_timer(from_micros(min(end, END_US)))
        if is_replaced:
            self.since = now
            ctx.set_timer(from_micros(min(now + valid_us, END_US)))

    def _is_awaited(self, at: int) -> bool:
        at = min(at, END_US)
        return at in self.coming or at in self.waiting
