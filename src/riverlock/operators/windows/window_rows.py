"""Panes and windows of many keys, by the column."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from riverlock.operators.aggregates.merging import Column, joined_columns, taken
from riverlock.operators.windows.panes import Pane, joined

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["NO_IDS", "JoinedPanes", "WindowRows", "joined_rows"]

NO_IDS = pa.array([], pa.binary())


@dataclass(frozen=True)
class WindowRows:
    """Panes of state, or windows: whose, when each ends, and the partial columns."""

    # Of the entry; of a window, those of any entry of its key.
    ids: pa.BinaryArray
    ends: np.ndarray
    columns: Mapping[str, Column]

    def __len__(self) -> int:
        return len(self.ends)

    def take(self, places: np.ndarray) -> WindowRows:
        """Return some of them."""
        some = pa.array(places)
        columns = {name: taken(column, some) for name, column in self.columns.items()}
        return WindowRows(self.ids.take(some), self.ends[places], columns)

    def and_also(self, other: WindowRows) -> WindowRows:
        """Return these and others."""
        return joined_rows([self, other])


class JoinedPanes:
    """Panes, earliest first: whose rows they have, and the columns of all of them."""

    def __init__(
        self, parts: Sequence[tuple[int, Pane, bool]], keys: pa.BinaryArray
    ) -> None:
        """Take when each ends, its rows, and whether this epoch touched them.

        Args:
            parts: These, in any order; a pane may have rows of both kinds.
            keys: Whom the codes of rows are numbers of.
        """
        parts = sorted(parts, key=lambda part: part[0])
        self.keys = keys
        self.ends = np.array([end for end, _, _ in parts], dtype=np.int64)
        lengths = [len(pane.codes) for _, pane, _ in parts]
        self._bounds = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
        self._are_touched = np.repeat([is_new for _, _, is_new in parts], lengths)
        self._rows = joined([pane for _, pane, _ in parts]) if parts else None

    def between(self, after: int, until: int) -> tuple[Pane, np.ndarray]:
        """Return the rows of panes that end in a span, and which are touched."""
        assert self._rows
        places = np.searchsorted(self.ends, [after, until], side="right")
        low, high = self._bounds[places].tolist()
        table = self._rows.table.slice(low, high - low)
        return Pane(self._rows.codes[low:high], table), self._are_touched[low:high]


def joined_rows(parts: Sequence[WindowRows]) -> WindowRows:
    """Return the rows of some parts, behind each other."""
    if not parts:
        return WindowRows(NO_IDS, np.array([], dtype=np.int64), {})
    parts = [p for p in parts if len(p)] or parts[:1]
    if len(parts) == 1:
        return parts[0]
    columns = {
        name: joined_columns([p.columns[name] for p in parts])
        for name in parts[0].columns
    }
    ids = pa.concat_arrays([p.ids for p in parts])
    return WindowRows(ids, np.concatenate([p.ends for p in parts]), columns)
