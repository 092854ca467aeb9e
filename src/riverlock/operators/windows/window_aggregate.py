"""Aggregates over windows, as the engine runs them: a row of state per key and pane."""

from __future__ import annotations

from typing import TYPE_CHECKING

from riverlock.core.errors import InvalidFlowError
from riverlock.core.types import Field, Schema, Type
from riverlock.operators.aggregates.partial import columns_of, merges_of
from riverlock.operators.built_in import BuiltIn, bind, partial_states
from riverlock.state.spec import Value

if TYPE_CHECKING:
    from collections.abc import Mapping

    from riverlock.operators.aggregates.partial import Merge, PartialAggregate
    from riverlock.program.process import Process
    from riverlock.program.windows import TimeWindows
    from riverlock.state.spec import StateSpec

__all__ = ["BOUNDS", "LONG_KEY", "WindowAggregate", "check_output"]

# Holds a key, as MessagePack, that is too long to be in its ids; usually not set.
LONG_KEY = "long_key"
# The columns that say which window a row is of.
BOUNDS = ("window_start", "window_end")
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
        return merges_of(self.aggregates)

    def state_keys(self, keys: Schema) -> Schema:
        """Return the key columns of state: when the pane ends, then the user's."""
        name = "window_end" if self.window.is_tumbling else "pane_end"
        return Schema((Field(name, _INSTANT), *keys.fields))

    def bound(self, keys: Schema, columns: Schema) -> Process:
        """Declare one value per partial aggregate."""
        check_output(keys, self.aggregates)
        for taken in {LONG_KEY, self.state_keys(keys).names[0]} & {
            *keys.names,
            *columns_of(self.aggregates),
        }:
            raise InvalidFlowError(
                "columns of a window", expected="another name", found=repr(taken)
            )
        bounds = [Field(n, _INSTANT) for n in BOUNDS]
        results = [Field(n, each.type) for n, each in self.aggregates.items()]
        states: dict[str, StateSpec] = partial_states(self.aggregates)
        if keys.fields:
            states[LONG_KEY] = Value("binary")
        return bind(self, Schema((*keys.fields, *bounds, *results)), states)


def check_output(
    keys: Schema,
    aggregates: Mapping[str, PartialAggregate],
    bounds: tuple[str, ...] = BOUNDS,
) -> None:
    """Refuse columns of a window that would have one name.

    Raises:
        InvalidFlowError: There are such.
    """
    names = [*keys.names, *bounds, *aggregates]
    twice = sorted({n for n in names if names.count(n) > 1})
    if twice:
        raise InvalidFlowError(
            "columns of a window",
            expected=f"names other than {' and '.join(bounds)}, each once",
            found=", ".join(twice),
        )
