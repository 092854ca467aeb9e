"""What a region promises about the rows that leave it after a failure."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias, get_args

__all__ = ["AT_LEAST_ONCE", "AT_MOST_ONCE", "EXACTLY_ONCE", "GUARANTEES", "Guarantee"]

Guarantee: TypeAlias = Literal["exactly once", "at least once", "at most once"]

# Rows leave when their epoch is decided, as often as it takes until the sink has them.
EXACTLY_ONCE: Final = "exactly once"
# Rows may leave with their task; an epoch that is tried again gives them once more.
AT_LEAST_ONCE: Final = "at least once"
# Rows leave when their epoch is decided, and are never handed over a second time; after
# a failure the region goes on with the newest input.
AT_MOST_ONCE: Final = "at most once"
# From the strongest to the weakest.
GUARANTEES: Final[tuple[Guarantee, ...]] = get_args(Guarantee)
