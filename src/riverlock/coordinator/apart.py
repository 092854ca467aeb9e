"""A circle whose regions run in processes of their own, as one of them sees it.

Each region says how it stands, and hears what the others have last said, which may be
old. Still, if all of them rest by what they have said, they do: the first of them that
went on after its word must have got rows of an epoch that another one decided after its
own. What may have changed since is the input from outside, where a region was begun
anew. So a word counts only between stints that have met: regions that were begun
together, or while the other one ran. A run that follows one that died belongs to its
stint.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from riverlock.coordinator.circle import Circle, Place, Rest
from riverlock.snapshot.stands import Resting, Stand

if TYPE_CHECKING:
    from collections.abc import Mapping

    from riverlock.coordinator.cuts.topology import Topology

__all__ = ["Apart"]


class Apart:
    """Takes what others have said, and what this region does; one caller at a time.

    Attributes:
        said: How this region stands, for the others to hear.
    """

    def __init__(self, topology: Topology, region: str, stint: str) -> None:
        """Have said nothing but that it is there."""
        self._region, self._circle = region, Circle(topology)
        self._others = [each for each in topology.regions if each != region]
        self._heard: dict[str, Stand] = {}
        self.said = Stand(stint=stint, epoch=-1, read={}, met={})

    @property
    def rounds(self) -> int:
        """How often rows have come round, at most: see ``Circle``."""
        return self._circle.rounds

    @property
    def has_ended(self) -> bool:
        """Whether all rested, and nothing more comes from outside."""
        return self._circle.has_ended

    @property
    def is_final(self) -> bool:
        """Whether all regions may stop."""
        return self._circle.is_final

    @property
    def awaited(self) -> tuple[str, ...]:
        """The regions that have said nothing since this one was begun."""
        mine = self.said.stint
        return tuple(
            each
            for each in self._others
            if each not in self._heard
            or self._heard[each].met.get(self._region) != mine
        )

    def hear(self, stands: Mapping[str, Stand]) -> Stand:
        """Take what others have last said; return what to say now."""
        before, self._heard = self._heard, dict(stands)
        met = {region: stand.stint for region, stand in stands.items()}
        self.said = msgspec.structs.replace(self.said, met=met)
        have_met = self._have_met
        for region, stand in stands.items():
            self._take(region, stand, before.get(region), counts=have_met)
        return self.said

    @property
    def _have_met(self) -> bool:
        all_said = {**self._heard, self._region: self.said}
        return len(all_said) == len(self._others) + 1 and all(
            stand.met.get(other) == all_said[other].stint
            for region, stand in all_said.items()
            for other in all_said
            if other != region
        )

    def _take(
        self, region: str, stand: Stand, before: Stand | None, *, counts: bool
    ) -> None:
        inputs = self._circle.topology.inputs(region)
        read = {c.name: stand.read.get(c.name, 0) for c in inputs}
        place = Place(epoch=stand.epoch, read=read, reset=stand.reset)
        if stand.rests is not None and counts:
            self._circle.rests(region, place, _rest(stand.rests))
            return
        is_known = before is not None and before.stint == stand.stint
        is_fresh = is_known and before is not None and before.fresh != stand.fresh
        moves = is_known and before is not None and before.read != stand.read
        self._circle.works(region, place, is_fresh=is_fresh, moves_rows=moves)

    def works(self, place: Place, *, is_fresh: bool, moves_rows: bool) -> Stand:
        """Take it that this region plans an epoch; return what to say."""
        self._circle.works(
            self._region, place, is_fresh=is_fresh, moves_rows=moves_rows
        )
        self.said = msgspec.structs.replace(
            self.said,
            epoch=place.epoch,
            read=dict(place.read),
            reset=place.reset,
            fresh=self.said.fresh + is_fresh,
            rests=None,
        )
        return self.said

    def rests(self, place: Place, rest: Rest) -> Stand:
        """Take it that this region has nothing to do; return what to say."""
        self._circle.rests(self._region, place, rest)
        self.said = msgspec.structs.replace(
            self.said,
            epoch=place.epoch,
            read=dict(place.read),
            reset=place.reset,
            rests=Resting(
                seen=dict(rest.seen),
                is_final=rest.is_final,
                has_ended=rest.has_ended,
                knows_end=rest.knows_end,
            ),
        )
        return self.said


def _rest(resting: Resting) -> Rest:
    return Rest(
        seen=resting.seen,
        is_final=resting.is_final,
        has_ended=resting.has_ended,
        knows_end=resting.knows_end,
    )
