"""What the shell reports to the coordinator of cuts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping

    from riverlock.coordinator.cuts.cut import Protocol

__all__ = ["Decided", "Event", "Proposed", "TimedOut"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposed:
    """Somebody asked for a snapshot of all regions."""

    cut: int
    protocol: Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """A region decided an epoch; those of one region are told in order.

    Attributes:
        heard: The last cut that the region knew of when it planned the epoch.
        positions: By channel that it reads, the first epoch that is not read yet.
        markers: The cuts whose markers the epoch bears.
        rows: By channel that it writes, how many rows the epoch added.
        timeline: The epochs that led to it, first and last of each span; empty: all
            before it did.
        reset: The number of the reset that it says (``coordinator/resets``).
        flow: Whose resets these are, of several flows.
    """

    region: str
    epoch: int
    heard: int | None = None
    positions: Mapping[str, int] = field(default_factory=dict)
    markers: tuple[int, ...] = ()
    rows: Mapping[str, int] = field(default_factory=dict)
    timeline: tuple[tuple[int, int], ...] = ()
    reset: int = 0
    flow: str = ""

    def came_from(self, epoch: int) -> bool:
        """Tell whether an earlier epoch led to this one, or was undone before it."""
        return not self.timeline or any(a <= epoch <= b for a, b in self.timeline)


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedOut:
    """A cut has taken longer than it may."""

    cut: int


Event: TypeAlias = Proposed | Decided | TimedOut
