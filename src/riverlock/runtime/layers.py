"""Rows of several epochs, one map over the other: the newest that has an id is right.

Putting a map on top costs nothing, while taking its rows into one large map costs more
than reading them did. So maps stay as they came until they are many.
"""

from __future__ import annotations

from itertools import repeat
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["UNKNOWN", "Layers"]

# None: deleted.
Rows: TypeAlias = dict[bytes, bytes | None]

# What no layer says anything about; no stored row is empty.
UNKNOWN: Final = b""
_MAX_LAYERS = 8


class Layers:
    """A stack of maps."""

    def __init__(self) -> None:
        """Begin without any."""
        self._maps: list[Rows] = []  # newest first

    @property
    def size(self) -> int:
        """How many rows are held, those that a newer layer hides included."""
        return sum(map(len, self._maps))

    def push(self, rows: Rows) -> None:
        """Put a map on top; it becomes ours."""
        self._maps.insert(0, rows)
        if len(self._maps) > _MAX_LAYERS:
            self.merge()

    def merge(self) -> Rows:
        """Make one map of all, and return it."""
        whole: Rows = {}
        for rows in self._maps:
            whole = _over(whole, rows)
        self._maps = [whole]
        return whole

    def get(self, entry_id: bytes) -> bytes | None:
        """Return what is known of an id."""
        for rows in self._maps:
            if entry_id in rows:
                return rows[entry_id]
        return UNKNOWN

    def get_many(self, ids: Sequence[bytes]) -> list[bytes | None]:
        """Return what is known of each id."""
        newest, *older = self._maps or [{}]
        found = list(map(newest.get, ids, repeat(UNKNOWN)))
        # Usually the newest has almost all.
        left = [n for n, row in enumerate(found) if row is UNKNOWN]
        for rows in older:
            for place in left:
                found[place] = rows.get(ids[place], UNKNOWN)
            left = [n for n in left if found[n] is UNKNOWN]
        return found


def _over(newer: Rows, older: Rows) -> Rows:
    """Return the rows of both, changing one of them: the one that costs less."""
    if len(newer) < len(older) // 2:
        older.update(newer)
        return older
    for entry_id in older.keys() - newer.keys():
        newer[entry_id] = older[entry_id]
    return newer
