"""Operators over windows that records may be too late for, by ``program.lateness``."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from riverlock.core.hidden_columns import GAP, TIME
from riverlock.core.times import END_US
from riverlock.operators.keyed.key_by_key import KeyByKey
from riverlock.program.lateness import closed_at_us, pane_lateness, session_lateness
from riverlock.program.windows import GlobalWindow, SessionWindows

if TYPE_CHECKING:
    from riverlock.operators.base import Work
    from riverlock.program.windows import TimeWindows

__all__ = ["WithLateness", "late_panes", "late_rows_of"]


class WithLateness(KeyByKey):
    """An operator over windows that records may be too late for."""

    window: TimeWindows | SessionWindows | GlobalWindow
    lateness_us: int

    def in_time(self, work: Work) -> tuple[Work, int]:
        """Leave out records that have no time or are too late; return how many."""
        table = work.table
        if not table:
            return work, 0
        limit = work.program.late_at(work.info)
        is_late, is_used = late_rows_of(table, self.window, self.lateness_us, limit)
        in_time = table.filter(pa.array(is_used & ~is_late))
        return replace(work, table=in_time), int(is_late.sum())


def late_rows_of(
    table: pa.Table,
    window: TimeWindows | SessionWindows | GlobalWindow,
    lateness_us: int,
    limit: int | None,
) -> tuple[np.ndarray, np.ndarray]:
    """Return which records are too late for a window, and which are in any.

    Args:
        table: The records; those without event time are too late.
        window: The windows.
        lateness_us: How long a window that is over can be corrected.
        limit: The watermark by which records are late.
    """
    if isinstance(window, GlobalWindow):
        return np.zeros(table.num_rows, bool), np.ones(table.num_rows, bool)
    known = table[TIME].is_valid().to_numpy()
    times = table[TIME].fill_null(0).to_numpy()
    closed_at = closed_at_us(limit, lateness_us)
    if isinstance(window, SessionWindows):
        is_late = session_lateness(times, _gaps(table, window), closed_at)
        return ~known | is_late, known
    return late_panes(window, window.pane_of(times), known, closed_at)


def _gaps(table: pa.Table, window: SessionWindows) -> np.ndarray:
    """Return the gap after each record; 0 where it has none."""
    if window.gap_us is not None:
        return np.full(table.num_rows, window.gap_us)
    found: np.ndarray = np.minimum(table[GAP].fill_null(0).to_numpy(), END_US)
    return found


def late_panes(
    window: TimeWindows, panes: np.ndarray, known: np.ndarray, closed_at_us: int | None
) -> tuple[np.ndarray, np.ndarray]:
    """Return which panes are too late, and which are in any window at all.

    Args:
        window: The windows.
        panes: When the panes end.
        known: Whether each is one; a record without event time is in none, and late.
        closed_at_us: Windows that end until then take no more records.
    """
    is_used, is_late = pane_lateness(window, panes, closed_at_us)
    return ~known | is_late, known & is_used
