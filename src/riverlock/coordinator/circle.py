"""Regions that feed each other: when all of them rest, and how often rows went round.

A region that finds nothing to do may only be waiting for another one that has its rows.
All of them are at rest if each has said so, and has by then seen the newest epoch of
those that it reads: then nothing is left between them, and only a clock or a source can
begin anything new.

Nothing here is stored: after a crash the regions say again how they stand.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from riverlock.coordinator.cuts.topology import Topology

__all__ = ["Circle", "Place", "Rest"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a region stands when it plans an epoch.

    Attributes:
        epoch: Its newest epoch; -1 if it has none.
        read: By channel of the circle, the first epoch of the writer that it has not
            read.
        reset: The last reset that it has taken up (``coordinator/resets``).
    """

    epoch: int
    read: Mapping[str, int]
    reset: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Rest:
    """What a region says that has nothing to do.

    Attributes:
        seen: By channel of the circle, the first epoch of the writer that was not
            decided when it looked.
        is_final: Whether nothing more comes from outside in this run.
        has_ended: Whether nothing more ever comes from outside.
        knows_end: Whether it knew that the whole circle has ended, and still has
            nothing to do.
    """

    seen: Mapping[str, int]
    is_final: bool
    has_ended: bool
    knows_end: bool


class Circle:
    """Takes what regions say and answers; one caller at a time.

    Attributes:
        topology: The regions, and the channels between them.
        has_ended: Whether all were at rest, and nothing more comes from outside: the
            end of time may be told.
    """

    def __init__(self, topology: Topology) -> None:
        """Know of no region yet."""
        self.topology = topology
        self.has_ended = False
        self._places: dict[str, Place] = {}
        self._rests: dict[str, Rest] = {}
        self._moves = 0
        self._reset = 0
        # The newest epochs when the last move was counted.
        self._since: dict[str, int] | None = None

    @property
    def rounds(self) -> int:
        """How often rows have come round since anything else came in, or all rested.

        Exact for a region that feeds itself. Rows that pass several regions make a move
        from each to the next, and what one region says of its epochs may be old when
        another one counts: then it is at most the number of rounds.
        """
        several = len(self.topology.regions)
        return self._moves if several == 1 else self._moves // (2 * several)

    @property
    def is_final(self) -> bool:
        """Whether all regions may stop: they rest, and know of the end if it came."""
        rests = self._rests.values()
        return (
            self._is_at_rest
            and all(rest.is_final for rest in rests)
            and (not self.has_ended or all(rest.knows_end for rest in rests))
        )

    @property
    def _is_at_rest(self) -> bool:
        if any(region not in self._rests for region in self.topology.regions):
            return False
        return all(
            self._rests[c.reader].seen[c.name] > self._places[c.writer].epoch
            for c in self.topology.channels
        )

    def works(
        self, region: str, place: Place, *, is_fresh: bool, moves_rows: bool
    ) -> None:
        """Take it that a region plans an epoch, or waits to be let on.

        Args:
            region: The region.
            place: Where it stands before.
            is_fresh: Whether it reads rows from outside.
            moves_rows: Whether it reads rows of the circle.
        """
        self._rests.pop(region, None)
        if not self._is_of_now(place):
            return
        self._places[region] = place
        if is_fresh:
            self._forget_moves()
        elif moves_rows:
            self._count()

    def rests(self, region: str, place: Place, rest: Rest) -> None:
        """Take it that a region has nothing to do."""
        if not self._is_of_now(place):
            return
        self._places[region], self._rests[region] = place, rest
        if self._is_at_rest:
            self._forget_moves()
            self.has_ended |= all(r.has_ended for r in self._rests.values())

    def _is_of_now(self, place: Place) -> bool:
        """Tell whether a place counts; all that was said before a reset does not."""
        if place.reset > self._reset:
            self._reset, self.has_ended = place.reset, False
            self._places.clear()
            self._rests.clear()
            self._forget_moves()
        return place.reset == self._reset

    def _forget_moves(self) -> None:
        self._moves, self._since = 0, None

    def _count(self) -> None:
        """Count a move when all that was between the regions at the last was read."""
        epochs = {region: place.epoch for region, place in self._places.items()}
        if self._since is None:
            self._since = epochs
        elif all(
            c.reader in self._places
            and self._places[c.reader].read[c.name] > self._since.get(c.writer, -1)
            for c in self.topology.channels
        ):
            self._moves, self._since = self._moves + 1, epochs
