"""Joins records of both sides that lie in the same window.

A window's rows are emitted when it is over: then it is known who is in it, and who has
no partner. So the result depends neither on the order of arrival nor on where epochs
end. Records are kept once, with their pane, however many windows they are in.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Any

from riverlock.coordinator.watermarks import first_open_us
from riverlock.core.errors import InvalidFlowError
from riverlock.core.times import from_micros
from riverlock.core.types import Field, Schema, Type
from riverlock.operators.joins.keyed_join import (
    EventTimeJoin,
    Row,
    struct_of,
    values_of,
)
from riverlock.operators.windows.window_columns import BOUNDS
from riverlock.program.lateness import closed_at_us, pane_lateness
from riverlock.program.windows import TimeWindows
from riverlock.state.spec import Map, StateSpec, Value

if TYPE_CHECKING:
    from collections.abc import Iterator

    from riverlock.operators.keyed.context import OperatorContext

__all__ = ["WindowedJoin"]


class _Buffer:
    """The records of one side, by pane and by the epoch that brought them.

    Adding to a pane does not read what it holds.
    """

    def __init__(self, rows: Any, epochs: Any) -> None:
        self._rows, self._epochs = rows, epochs

    def add(self, pane: int, row: Any, epoch: int) -> None:
        found = self._rows.setdefault(f"{pane}:{epoch}", [])
        if not found:
            self._epochs[pane] = [*self._epochs.get(pane, ()), epoch]
        found.append(row)

    def of(self, panes: list[int]) -> list[Row]:
        """Return the records of some panes, those of each in order of arrival."""
        return [
            row if isinstance(row, tuple) else values_of(row)
            for pane in panes
            for epoch in self._epochs.get(pane, ())
            for row in self._rows[f"{pane}:{epoch}"]
        ]

    def forget(self, pane: int) -> None:
        for epoch in self._epochs.pop(pane, ()):
            del self._rows[f"{pane}:{epoch}"]


class WindowedJoin(EventTimeJoin):
    """Joins by key and window; a pair that shares several windows is in each."""

    kinds = ("inner", "left", "right", "full", "semi", "anti")

    panes: Any  # when the panes end that are kept, earliest first
    left_rows: Any
    left_epochs: Any
    right_rows: Any
    right_epochs: Any

    def __init__(self, how: str, right_keys: tuple[str, ...], window: Any) -> None:
        """Check the windows now, while the user's line is on the stack."""
        super().__init__(how, right_keys)
        if not isinstance(window, TimeWindows) or window.slide_us > window.size_us:
            raise InvalidFlowError(
                "join(window=)",
                expected="rl.tumbling(...) or rl.sliding(...), without gaps between",
                found=repr(window),
            )
        self._window = window

    def _states(self, left: Schema, right: Schema) -> dict[str, StateSpec]:
        return {
            "panes": Value("array<bigint>", default=[]),
            "left_rows": Map("string", Type("array", element=struct_of(left))),
            "left_epochs": Map("bigint", "array<bigint>"),
            "right_rows": Map("string", Type("array", element=struct_of(right))),
            "right_epochs": Map("bigint", "array<bigint>"),
        }

    def _output(self, joined: Schema) -> Schema:
        """Add the bounds of the window: a pair may be in several."""
        taken = sorted(set(BOUNDS) & set(joined.names))
        if taken:
            raise InvalidFlowError(
                "a join over windows",
                expected=f"no columns {' and '.join(BOUNDS)}, which it adds",
                found=", ".join(taken),
            )
        bounds = (Field(n, Type("timestamp")) for n in BOUNDS)
        return Schema((*joined.fields, *bounds))

    @property
    def _lefts(self) -> _Buffer:
        return _Buffer(self.left_rows, self.left_epochs)

    @property
    def _rights(self) -> _Buffer:
        return _Buffer(self.right_rows, self.right_epochs)

    def _is_late(self, at: int, reached: int | None) -> bool:
        """Tell whether all windows of a record are over."""
        pane, closed_at = self._window.pane_of(at), closed_at_us(reached, 0)
        _, is_late = pane_lateness(self._window, pane, closed_at)
        return bool(is_late)

    def on_left(self, record: Any, ctx: OperatorContext) -> None:
        """Keep the record for its windows."""
        self._keep("left", self._lefts, record, ctx)

    def on_right(self, record: Any, ctx: OperatorContext) -> None:
        """Keep the record for its windows."""
        self._keep("right", self._rights, record, ctx)

    def _keep(
        self, side: str, buffer: _Buffer, record: Any, ctx: OperatorContext
    ) -> None:
        at = self._time(side, record, ctx)
        if at is None:
            return
        pane = self._window.pane_of(at)
        place = bisect_left(self.panes, pane)
        if self.panes[place : place + 1] != [pane]:
            self.panes.insert(place, pane)
        buffer.add(pane, tuple(record), ctx.epoch)
        is_open = first_open_us(ctx.watermark_us)
        first = self._window.first_end(pane)
        if is_open is not None and first <= is_open:
            first = self._window.first_end(is_open + 1)
        self._look_at(first, ctx)

    @staticmethod
    def _look_at(end: int, ctx: OperatorContext) -> None:
        ctx.set_timer(from_micros(end - 1))

    def on_timer(self, at: Any, ctx: OperatorContext) -> None:
        """Emit the window that is over, and forget panes that are in no other."""
        last = ctx.time_us
        assert last is not None, "its timers are of event time"
        end = last + 1
        window = self._window
        mine = [p for p in self.panes if end - window.size_us < p <= end]
        bounds = (from_micros(end - window.size_us), from_micros(end))
        for row in self._joined(mine, ctx.key):
            ctx.emit_at((*row, *bounds), last)
        for pane in [p for p in self.panes if window.last_end(p) <= end]:
            self._lefts.forget(pane)
            self._rights.forget(pane)
        kept = [p for p in self.panes if window.last_end(p) > end]
        if len(kept) < len(self.panes):
            self.panes = kept
        following = end + window.slide_us
        if kept and kept[0] <= following:
            self._look_at(following, ctx)

    def _joined(self, panes: list[int], key: Any) -> Iterator[Row]:
        lefts, rights = self._lefts.of(panes), self._rights.of(panes)
        # A null equals nothing, so such a record has no partner.
        is_met = bool(lefts and rights) and not self._is_null(key)
        if is_met and self._gives_left_only:
            yield from lefts if self._how == "semi" else ()
        elif is_met:
            yield from (self._pair(x, y) for x in lefts for y in rights)
        else:
            if self._how in ("left", "full", "anti"):
                yield from (self._pair(x, None) for x in lefts)
            if self._how in ("right", "full"):
                yield from (self._only_right(key, y) for y in rights)
