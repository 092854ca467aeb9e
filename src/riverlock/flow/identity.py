"""Of which key and window a row is, where a later row takes its place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from riverlock.flow.window_aggregate import BOUNDS

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Identity", "missing_columns"]


def missing_columns(keys: Sequence[str], names: Sequence[str]) -> list[str]:
    """Return what rows with these columns lack to be known by key and window."""
    return [name for name in (*keys, *BOUNDS) if name not in names]


@dataclass(frozen=True)
class Identity:
    """Where in a row its key and its window are; None: it does not say."""

    names: tuple[str, ...]
    places: tuple[int, ...] | None

    @classmethod
    def of(cls, keys: Sequence[str], names: Sequence[str]) -> Identity:
        """Return the identity of rows with these columns."""
        wanted = (*keys, *BOUNDS)
        if missing_columns(keys, names):
            return cls(wanted, None)
        return cls(wanted, tuple(names.index(name) for name in wanted))

    def check(self, row: Sequence[Any], key: Any, window: Sequence[Any]) -> None:
        """Refuse a row of another key or window than the one it was made of.

        Args:
            row: What the function gave.
            key: As functions see it: one value, a tuple of several, or None.
            window: Its first instant, and the one after its last.

        Raises:
            ValueError: It is one.
        """
        assert self.places is not None, "refused when the flow was built"
        width = len(self.names) - len(BOUNDS)
        keys = (key,) if width == 1 else key or ()
        for name, place, expected in zip(
            self.names, self.places, (*keys, *window), strict=True
        ):
            found = row[place]
            # Not a number is never equal, not even to itself.
            is_equal = found == expected or (found != found and expected != expected)
            if not is_equal:
                message = (
                    "modes update and complete need rows that keep their key and"
                    f" window: expected {name}={expected!r}, found {found!r}"
                )
                raise ValueError(message)
