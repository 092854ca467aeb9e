"""Two stores that were told the same, one by bytes and one by files, must agree."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from riverlock.state.store import EVENT, PROCESSING

if TYPE_CHECKING:
    from riverlock.state.copy.memory import MemoryStore
    from riverlock.state.store import Changes

__all__ = ["check_same_content"]


def check_same_content(
    ours: MemoryStore, theirs: MemoryStore, live: Changes, columns: Changes
) -> None:
    """Make sure that two stores hold the same, after each was told of its changes.

    Args:
        ours: The store that goes on.
        theirs: The one beside it.
        live: What the one was told last, as a working copy is.
        columns: What the other was told, as after a crash.
    """
    assert _content(ours) == _content(theirs), _difference(live, columns)


def _content(store: MemoryStore) -> Any:
    """Return what a store holds; NaN-free by being bytes."""
    timers = [list(store.due_timers(k, 1 << 62)) for k in (EVENT, PROCESSING)]
    return list(store.scan(b"")), timers


def _difference(live: Changes, columns: Changes) -> str:
    first = next(
        (
            p
            for p in zip(live.puts.items(), columns.puts.items(), strict=False)
            if p[0] != p[1]
        ),
        math.nan,
    )
    return f"the change file does not say what the store was told: {first}"
