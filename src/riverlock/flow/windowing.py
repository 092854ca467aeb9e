"""Aggregates over windows, as the engine runs them: a row of state per key and pane."""

from __future__ import annotations

from typing import TYPE_CHECKING

from riverlock.core.errors import InvalidFlowError
from riverlock.core.types import Field, Schema, Type
from riverlock.flow.operators import BuiltIn, bind, partial_states
from riverlock.state.spec import Value

if TYPE_CHECKING:
    from collections.abc import Mapping

    from riverlock.flow.partial import Merge, PartialAggregate
    from riverlock.flow.process import Process
    from riverlock.flow.windows import TimeWindows
    from riverlock.state.spec import StateSpec

__all__ = ["LONG_KEY", "WindowAggregate"]

# Holds a key, as MessagePack, that is too long to be in its ids; usually not set.
LONG_KEY = "long_key"
_INSTANT = Type("timestamp")


class WindowAggregate(BuiltIn):
    """Merges the partial aggregates of panes, and gives those of windows."""

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
        return [m for each in self.aggregates.values() for m in each.merges]

    def state_keys(self, keys: Schema) -> Schema:
        """Return the key columns of state: when the pane ends, then the user's."""
        name = "window_end" if self.window.is_tumbling else "pane_end"
        return Schema((Field(name, _INSTANT), *keys.fields))

    def bound(self, keys: Schema, columns: Schema) -> Process:
        """Declare one value per partial aggregate."""
        bounds = [Field(n, _INSTANT) for n in ("window_start", "window_end")]
        results = [Field(n, each.type) for n, each in self.aggregates.items()]
        fields = (*keys.fields, *bounds, *results)
        names = [f.name for f in fields]
        twice = sorted({n for n in names if names.count(n) > 1})
        if twice:
            raise InvalidFlowError(
                "columns of a window",
                expected="names other than window_start and window_end, each once",
                found=", ".join(twice),
            )
        states: dict[str, StateSpec] = partial_states(self.aggregates)
        if keys.fields:
            states[LONG_KEY] = Value("binary")
        return bind(self, Schema(fields), states)
