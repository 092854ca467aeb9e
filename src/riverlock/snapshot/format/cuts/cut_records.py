"""The records of cuts that were given up, and of going back to one (format §6.4f.)."""

from __future__ import annotations

from riverlock.snapshot.format.records import InFlight, Record

__all__ = ["CutAbandoned", "Reset", "Restoring"]


class CutAbandoned(Record, frozen=True):
    """``cuts/abandoned/<n>.json``: nobody waits for a cut any more (§6.4)."""

    number: int
    why: str
    # It was complete, and its name was taken away since.
    is_dropped: bool = False


class Reset(Record, frozen=True):
    """``resets/<n>.json``: all regions go back to a snapshot (§6.5)."""

    number: int  # from 1
    name: str
    # The epoch of each region, and the tokens of the runs that decided them.
    regions: dict[str, int]
    tokens: dict[str, str]
    asked_us: int
    in_flight: tuple[InFlight, ...] = ()
    keep_output: bool = False


class Restoring(Record, frozen=True):
    """``restoring.json``: the same, as older writers have left it (§6.5)."""

    name: str
    regions: dict[str, int]
    asked_us: int
    keep_output: bool = False
