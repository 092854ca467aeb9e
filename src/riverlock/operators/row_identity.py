"""Which key and window a row belongs to, so that a later row can replace it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from riverlock.core.errors import InvalidFlowError
from riverlock.core.times import from_micros
from riverlock.core.types import Field, Schema, Type
from riverlock.operators.base import GONE, UPDATES
from riverlock.operators.windows.window_columns import BOUNDS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from riverlock.operators.keyed.context import OperatorContext

__all__ = ["Identity", "missing_columns", "with_gone"]


def missing_columns(
    keys: Sequence[str], names: Sequence[str], bounds: Sequence[str] = BOUNDS
) -> list[str]:
    """Return what rows with these columns lack to be identified by key and window."""
    return [name for name in (*keys, *bounds) if name not in names]


def with_gone(output: Schema) -> Schema:
    """Return the columns of rows that say whether they are taken back.

    Raises:
        InvalidFlowError: There is already a column of that name.
    """
    if GONE in output.names:
        raise InvalidFlowError(
            "a session in mode update or complete",
            expected=f"columns other than {GONE!r}, which says that a row is gone",
            found=repr(GONE),
        )
    return Schema((*output.fields, Field(GONE, Type("boolean"))))


@dataclass(frozen=True)
class Identity:
    """Where in a row its key and its window are; None: the row does not have them."""

    names: tuple[str, ...]
    places: tuple[int, ...] | None
    # How many columns the rows have.
    width: int

    @classmethod
    def of(
        cls, keys: Sequence[str], names: Sequence[str], bounds: Sequence[str] = BOUNDS
    ) -> Identity:
        """Return the identity of rows with these columns."""
        wanted = (*keys, *bounds)
        if missing_columns(keys, names, bounds):
            return cls(wanted, None, len(names))
        return cls(wanted, tuple(names.index(n) for n in wanted), len(names))

    def known(
        self, rows: Iterable[Any], window: Sequence[Any], ctx: OperatorContext
    ) -> list[tuple[Any, ...]]:
        """Return rows of a window of the current key that have this key and window.

        Others could replace rows they have nothing to do with: such a window fails, or
        becomes a dead letter if the flow has a sink for them.
        """
        found = [ctx.as_row(row) for row in rows]
        try:
            for row in found:
                self._check(row, ctx.key, window)
        except ValueError as error:
            if not ctx.buries:
                raise
            ctx.bury(error, (window, found))
            return []
        return found

    def take_back(self, begin_us: int, end_us: int, ctx: OperatorContext) -> None:
        """Emit a row that says that a window of the current key no longer exists.

        The row has the key and the window, and nothing else.
        """
        row: list[Any] = [None] * self.width
        window = from_micros(begin_us), from_micros(end_us)
        for place, value in self._values(ctx.key, window):
            row[place] = value
        ctx.time_us = end_us - 1
        ctx.emit(UPDATES, (*row, True))

    def _values(self, key: Any, window: Sequence[Any]) -> list[tuple[int, Any]]:
        """Return the values of key and window, with their places.

        Args:
            key: As functions see it: one value, a tuple of several, or None.
            window: The values of the columns that identify it.
        """
        assert self.places is not None, "refused when the flow was built"
        is_single = len(self.names) - len(window) == 1
        keys = (key,) if is_single else key or ()
        return list(zip(self.places, (*keys, *window), strict=True))

    def _check(self, row: Sequence[Any], key: Any, window: Sequence[Any]) -> None:
        """Refuse a row of another key or window than the one it was made from.

        Raises:
            ValueError: It is one.
        """
        values = self._values(key, window)
        for name, (place, expected) in zip(self.names, values, strict=True):
            found = row[place]
            # Not a number is never equal, not even to itself.
            is_equal = found == expected or (found != found and expected != expected)
            if not is_equal:
                message = (
                    "modes update and complete need rows that keep their key and"
                    f" window: expected {name}={expected!r}, found {found!r}"
                )
                raise ValueError(message)
