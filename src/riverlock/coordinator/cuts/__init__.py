"""Pure decisions about snapshots of several regions: consistent cuts by markers."""

from __future__ import annotations

from riverlock.coordinator.cuts.coordinator import CutCoordinator
from riverlock.coordinator.cuts.cut import (
    CompleteCut,
    Cut,
    InFlight,
    Phase,
    Protocol,
)
from riverlock.coordinator.cuts.events import Decided, Event, Proposed, TimedOut
from riverlock.coordinator.cuts.instructions import (
    Abandon,
    Complete,
    DeclareDrained,
    Instruction,
)
from riverlock.coordinator.cuts.rules import (
    ChannelView,
    Permit,
    RegionView,
    bears,
    permit,
)
from riverlock.coordinator.cuts.topology import Channel, Topology

__all__ = [
    "Abandon",
    "Channel",
    "ChannelView",
    "Complete",
    "CompleteCut",
    "Cut",
    "CutCoordinator",
    "Decided",
    "DeclareDrained",
    "Event",
    "InFlight",
    "Instruction",
    "Permit",
    "Phase",
    "Proposed",
    "Protocol",
    "RegionView",
    "TimedOut",
    "Topology",
    "bears",
    "permit",
]
