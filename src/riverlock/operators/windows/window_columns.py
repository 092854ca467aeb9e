"""The columns that windows add to rows and state."""

from __future__ import annotations

from typing import TYPE_CHECKING

from riverlock.core.errors import InvalidFlowError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from riverlock.core.types import Schema
    from riverlock.operators.aggregates.partial import PartialAggregate

__all__ = ["BOUNDS", "LONG_KEY", "check_output"]

# Holds a key, as MessagePack, that is too long to be in its ids; usually not set.
LONG_KEY = "long_key"
# The columns that say which window a row is of.
BOUNDS = ("window_start", "window_end")


def check_output(
    keys: Schema,
    aggregates: Mapping[str, PartialAggregate],
    bounds: tuple[str, ...] = BOUNDS,
) -> None:
    """Refuse columns of a window that would have the same name.

    Raises:
        InvalidFlowError: There are such.
    """
    names = [*keys.names, *bounds, *aggregates]
    twice = sorted({n for n in names if names.count(n) > 1})
    if twice:
        raise InvalidFlowError(
            "a window",
            expected=f"column names other than {' and '.join(bounds)}, each once",
            found=", ".join(twice),
        )
