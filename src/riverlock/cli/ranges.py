"""What an epoch read of a source, in a few words: what is different at its end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["brief_range"]

# A table has no room for more; ``riverlock explain`` has all of it.
_MAX = 3


def brief_range(start: Any, end: Any) -> str:
    """Return where a source's offset was and where it came to; empty: nowhere.

    >>> brief_range({"row": 50, "origin": 7}, {"row": 100, "origin": 7})
    '50 to 100'
    >>> brief_range({"partitions": {"t-0": 5}}, {"partitions": {"t-0": 9, "t-1": 2}})
    't-0 5 to 9, t-1 0 to 2'
    """
    before, after = dict(_leaves(start)), dict(_leaves(end))
    changed = {
        name: (before.get(name), value)
        for name, value in after.items()
        if before.get(name) != value
    }
    # Paths and checksums change along with numbers, and say less.
    counts = {
        name: (old or 0, new)
        for name, (old, new) in changed.items()
        if isinstance(new, int) and isinstance(old, int | None)
    }
    shown = [
        (f"{name} " if len(counts or changed) > 1 else "") + f"{old} to {new}"
        for name, (old, new) in (counts or changed).items()
    ]
    more = f" and {len(shown) - _MAX} more" if len(shown) > _MAX else ""
    return ", ".join(shown[:_MAX]) + more


def _leaves(offset: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Give the plain values of an offset, each by its own name."""
    if isinstance(offset, dict):
        for inner, value in offset.items():
            yield from _leaves(value, inner)
    elif not isinstance(offset, list):
        yield name, offset
