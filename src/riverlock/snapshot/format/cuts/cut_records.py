"""The records of cuts that were given up, and of going back to one (format §6.4)."""

from __future__ import annotations

from riverlock.snapshot.format.records import Record

__all__ = ["CutAbandoned", "Restoring"]


class CutAbandoned(Record, frozen=True):
    """``cuts/abandoned/<n>.json``: nobody waits for a cut any more (§6.4)."""

    number: int
    why: str
    # It was complete, and its name was taken away since.
    is_dropped: bool = False


class Restoring(Record, frozen=True):
    """``restoring.json``: all regions go back to a snapshot (§6.5)."""

    name: str
    regions: dict[str, int]
    # The newest epoch of each region when it was decided.
    last: dict[str, int]
    asked_us: int
    keep_output: bool = False
