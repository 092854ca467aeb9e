"""The records of what several flows share, one to one with ``docs/format.md``."""

from __future__ import annotations

from riverlock.snapshot.format.records import InFlight, Record

__all__ = ["CutBegun", "CutDecided", "CutPart", "ReaderRecord"]


class CutBegun(Record, frozen=True):
    """``cuts/begun/<n>.json``: all flows of a cut know of it (§6.6)."""

    number: int
    # The number that the cut has in each flow, by the flow's id.
    numbers: dict[str, int]


class CutPart(Record, frozen=True):
    """What of a cut is in one flow."""

    regions: dict[str, int]
    in_flight: tuple[InFlight, ...] = ()


class CutDecided(Record, frozen=True):
    """``cuts/decided/<id>.json``: what became of a cut over several flows (§6.6)."""

    id: str
    decided_us: int
    # By the flow's id; empty: it was given up.
    parts: dict[str, CutPart]
    why: str = ""


class ReaderRecord(Record, frozen=True):
    """``readers/<flow>/<uid>.json``: another flow reads a channel of ours (§7.2)."""

    flow: str  # the id of the flow that reads
    name: str  # its name, for people
    store: str
    region: str  # of that flow
    uid: str  # its source
    writer: str  # our region
    channel: str
    # It may still read epochs of the writer from this one on.
    first: int
    seen_us: int
