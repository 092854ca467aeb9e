"""Aggregates over windows, as the engine runs them: a row of state per key and pane."""

from __future__ import annotations

from typing import TYPE_CHECKING

from riverlock.core.errors import InvalidFlowError
from riverlock.core.types import Field, Schema, Type
from riverlock.operators.aggregates.partial import (
    columns_of,
    merges_of,
    partial_states,
)
from riverlock.operators.base import BuiltIn, bind
from riverlock.operators.boundary import aggregator_errors
from riverlock.operators.windows.window_columns import BOUNDS, LONG_KEY, check_output
from riverlock.operators.windows.window_run import WindowRun
from riverlock.state.spec import Value

if TYPE_CHECKING:
    from collections.abc import Mapping

    from riverlock.operators.aggregates.partial import Merge, PartialAggregate
    from riverlock.operators.base import Work
    from riverlock.operators.effects import Effects
    from riverlock.program.windows import TimeWindows
    from riverlock.state.spec import StateSpec

__all__ = ["WindowAggregate"]

_INSTANT = Type("timestamp")


class WindowAggregate(BuiltIn):
    """Merges the partial aggregates of panes, and emits those of windows."""

    def __init__(
        self,
        aggregates: Mapping[str, PartialAggregate],
        window: TimeWindows,
        lateness_us: int,
    ) -> None:
        """Take what the compiler found in the user's expressions."""
        self.aggregates = dict(aggregates)
        self.window = window
        self.lateness_us = lateness_us

    @property
    def merges(self) -> list[Merge]:
        """How partial columns are merged."""
        return merges_of(self.aggregates)

    def state_keys(self, keys: Schema) -> Schema:
        """Return the key columns of state: when the pane ends, then the user's."""
        name = "window_end" if self.window.is_tumbling else "pane_end"
        return Schema((Field(name, _INSTANT), *keys.fields))

    def bound(self, keys: Schema, columns: Schema) -> BuiltIn:
        """Declare one value per partial aggregate."""
        check_output(keys, self.aggregates)
        for taken in {LONG_KEY, self.state_keys(keys).names[0]} & {
            *keys.names,
            *columns_of(self.aggregates),
        }:
            raise InvalidFlowError(
                "a window", expected="another column name", found=repr(taken)
            )
        bounds = [Field(n, _INSTANT) for n in BOUNDS]
        results = [Field(n, each.type) for n, each in self.aggregates.items()]
        states: dict[str, StateSpec] = partial_states(self.aggregates)
        if keys.fields:
            states[LONG_KEY] = Value("binary")
        return bind(self, Schema((*keys.fields, *bounds, *results)), states)

    def run(self, work: Work) -> Effects:
        """Merge panes and emit windows of one task and epoch, by column."""
        work.on_prepared()
        with aggregator_errors(work.program.uid, work.info.epoch):
            return WindowRun(work, self).effects(work)
