"""When a regular snapshot is due, what it is called, and which older ones go."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["is_due", "is_regular", "next_name", "too_many"]

_REGULAR = re.compile(r"auto-(\d{6,})")


def is_regular(name: str) -> bool:
    """Tell whether a snapshot was taken by itself: people call theirs otherwise."""
    return _REGULAR.fullmatch(name) is not None


def is_due(*, last_us: int, now_us: int, every_us: int) -> bool:
    """Tell whether it is time for the next one.

    A clock that was set back does not put it off for longer than one interval.
    """
    return now_us >= last_us + every_us or now_us < last_us - every_us


def next_name(names: Iterable[str]) -> str:
    """Return the name after all that there are.

    >>> next_name(["auto-000007", "before-upgrade"])
    'auto-000008'
    """
    numbers = [int(m[1]) for m in map(_REGULAR.fullmatch, names) if m is not None]
    return f"auto-{max(numbers, default=0) + 1:06d}"


def too_many(names: Iterable[str], *, keep: int) -> list[str]:
    """Return the oldest regular ones, if there are more than are kept.

    >>> too_many(["auto-000002", "mine", "auto-000001"], keep=1)
    ['auto-000001']
    """
    mine = [(int(m[1]), m[0]) for m in map(_REGULAR.fullmatch, names) if m is not None]
    return [name for _, name in sorted(mine)[: max(0, len(mine) - keep)]]
