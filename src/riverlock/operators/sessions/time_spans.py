"""Spans of time of many keys, as columns: which of them are one, and what changed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

__all__ = ["Instants", "Runs", "runs_of"]


@dataclass(frozen=True)
class Runs:
    """Neighbours that overlap or touch: where each run begins, and when it ends."""

    starts: np.ndarray
    lengths: np.ndarray
    ends: np.ndarray


def runs_of(places: np.ndarray, begins: np.ndarray, ends: np.ndarray) -> Runs:
    """Put spans together that overlap or touch.

    Args:
        places: Of their keys; spans are in the order of these, then of starts.
        begins: When they start.
        ends: When they end; none before its start.
    """
    reach = _furthest(places, ends)
    is_first = np.ones(len(places), dtype=bool)
    is_first[1:] = (places[1:] != places[:-1]) | (begins[1:] > reach[:-1])
    starts = np.flatnonzero(is_first)
    lengths = np.diff(starts, append=len(places))
    return Runs(starts, lengths, reach[starts + lengths - 1])


def _furthest(places: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Return the greatest end, so far, of each key."""
    if np.all((ends[1:] >= ends[:-1]) | (places[1:] != places[:-1])):
        return ends
    # Ranks grow from key to key: the greatest so far is always one of the same key.
    order = np.lexsort((ends, places))
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order))
    found: np.ndarray = ends[order[np.maximum.accumulate(rank)]]
    return found


@dataclass(frozen=True)
class Instants:
    """Instants of keys, such as those of timers."""

    places: np.ndarray
    at_us: np.ndarray

    def and_also(self, other: Instants) -> Instants:
        """Return these and others."""
        return Instants(
            np.concatenate([self.places, other.places]),
            np.concatenate([self.at_us, other.at_us]),
        )

    def changed_to(self, after: Instants) -> tuple[Instants, np.ndarray]:
        """Return what is only here or only there, each once, and which is there."""
        places = np.concatenate([self.places, after.places])
        at_us = np.concatenate([self.at_us, after.at_us])
        is_after = np.repeat([False, True], [len(self.places), len(after.places)])
        order = np.lexsort((at_us, places))
        places, at_us, is_after = places[order], at_us[order], is_after[order]
        is_first = np.ones(len(places), dtype=bool)
        is_first[1:] = (places[1:] != places[:-1]) | (at_us[1:] != at_us[:-1])
        starts = np.flatnonzero(is_first)
        if not len(starts):
            return self, is_after
        is_there = np.logical_or.reduceat(is_after, starts)
        is_here = np.logical_or.reduceat(~is_after, starts)
        only = starts[is_here != is_there]
        return Instants(places[only], at_us[only]), is_there[is_here != is_there]
