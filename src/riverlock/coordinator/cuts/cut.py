"""A cut while it is taken, and when it is complete."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, StrEnum, auto
from typing import TYPE_CHECKING

from riverlock.coordinator.invariants import require

if TYPE_CHECKING:
    from collections.abc import Mapping

    from riverlock.coordinator.cuts.topology import Topology

__all__ = ["CompleteCut", "Cut", "InFlight", "Phase", "Protocol"]


class Protocol(StrEnum):
    """How regions agree on a cut; the value is its public name."""

    ALIGNED = "aligned"  # wait for the marker of every input
    UNALIGNED = "unaligned"  # go on; unread rows before the markers are in flight
    DRAIN = "drain"  # pause the sources, read all channels to their end, then mark
    EPOCHS = "epochs"  # aligned, and nobody goes on before all are there


#   over several flows, PROPOSED until all know of it:
#           PROPOSED ──begun──► OPEN
#   drain:  OPEN ──drained──► DRAINED ──┐
#   others: OPEN ───────────────────────┴─► COMPLETE
#           each of them ─────────────────► ABANDONED
class Phase(Enum):
    """How far a cut has come."""

    PROPOSED = auto()
    OPEN = auto()
    DRAINED = auto()
    COMPLETE = auto()
    ABANDONED = auto()

    @property
    def is_settled(self) -> bool:
        """Whether no region waits for the cut any more."""
        return self in (Phase.COMPLETE, Phase.ABANDONED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """A snapshot that was asked for. Numbers grow and are never used again."""

    number: int
    protocol: Protocol
    phase: Phase = Phase.OPEN

    @property
    def is_marking(self) -> bool:
        """Whether heads may bear its marker."""
        if self.protocol is Protocol.DRAIN:
            return self.phase is Phase.DRAINED
        return self.phase is Phase.OPEN


@dataclass(frozen=True, slots=True, kw_only=True)
class InFlight:
    """Epochs of a channel's writer that are in the cut, and not yet read in it."""

    channel: str
    first: int
    end: int
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CompleteCut:
    """One epoch of each region, and what was in flight between them."""

    number: int
    protocol: Protocol
    epochs: Mapping[str, int]
    in_flight: tuple[InFlight, ...]

    def check(self, topology: Topology) -> None:
        """Check that no reader has rows that its writer has not sent.

        Raises:
            InternalError: It is not a consistent cut.
        """
        require(
            holds=set(self.epochs) == set(topology.regions),
            what=f"cut {self.number} has regions {sorted(self.epochs)}",
        )
        for span in self.in_flight:
            require(
                holds=span.first <= span.end,
                what=(
                    f"cut {self.number}: channel {span.channel!r} was read up to epoch"
                    f" {span.first}, written up to {span.end}"
                ),
            )
