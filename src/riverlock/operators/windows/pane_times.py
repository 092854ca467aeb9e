"""When the windows of many panes end."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from riverlock.program.windows import TimeWindows

__all__ = ["ends_of"]


def ends_of(window: TimeWindows, panes: np.ndarray) -> np.ndarray:
    """Return when the windows end that hold any of some panes, earliest first."""
    distinct = np.unique(panes)
    firsts, lasts = window.first_end(distinct), window.last_end(distinct)
    is_used = firsts <= lasts
    firsts, lasts = firsts[is_used], lasts[is_used]
    if not len(firsts):
        return firsts
    # Windows of panes that lie together overlap: one progression for all of them.
    begins = np.flatnonzero(firsts[1:] > lasts[:-1] + window.slide_us) + 1
    runs = zip(
        firsts[[0, *begins.tolist()]].tolist(),
        lasts[[*(begins - 1).tolist(), -1]].tolist(),
        strict=True,
    )
    return np.concatenate([np.arange(a, b + 1, window.slide_us) for a, b in runs])
