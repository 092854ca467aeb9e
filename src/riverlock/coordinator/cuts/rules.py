"""What a region may read, and which markers its next epoch bears.

Two rules make every cut consistent, whichever protocol took it:

1. no epoch reads past a marker unless an earlier epoch of its region has borne it;
2. a region bears a marker once, in a manifest that it decides.

A marker is a field of the writer's manifest, so a region learns of it no later than of
the rows behind it. All that is asked here is in manifests: a region that died, or one
that has not heard of the cut otherwise, decides the same.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from riverlock.coordinator.cuts.cut import Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from riverlock.coordinator.cuts.cut import Cut
    from riverlock.coordinator.cuts.topology import Channel

__all__ = ["ChannelView", "Permit", "RegionView", "bears", "permit"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelView:
    """What the reader of a channel knows about it.

    Attributes:
        position: The first epoch of the writer that is not read yet.
        end: The first epoch of the writer that is not known to be decided.
        markers: The epoch of the writer that bears the marker, by number of the cut.
        cuts: The cuts that the writer takes part in; None: all. For the others it is
            like any source.
    """

    channel: Channel
    position: int
    end: int
    markers: Mapping[int, int] = field(default_factory=dict)
    cuts: frozenset[int] | None = None

    def carries(self, cut: int) -> bool:
        """Tell whether the marker of a cut comes through this channel."""
        return self.cuts is None or cut in self.cuts

    def place(self, cut: int) -> int | None:
        """Return where the marker of a cut is: after all rows of the cut."""
        epoch = self.markers.get(cut) if self.carries(cut) else None
        return None if epoch is None else epoch + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionView:
    """What a region knows when it plans its next epoch.

    Attributes:
        cuts: The cuts it has heard of, from markers or from who asked for them; those
            that are settled may be left out.
        borne: The cuts whose markers earlier epochs of the region bear.
    """

    region: str
    inputs: tuple[ChannelView, ...]
    cuts: tuple[Cut, ...] = ()
    borne: frozenset[int] = frozenset()

    def is_head(self, cut: int) -> bool:
        """Tell whether the markers of a cut begin here."""
        return not self.forward(cut)

    def forward(self, cut: int) -> list[ChannelView]:
        """Return the channels whose markers this region waits for."""
        return [v for v in self.inputs if v.carries(cut) and not v.channel.is_back]

    @property
    def unborne(self) -> tuple[Cut, ...]:
        """The cuts that this region still has to bear."""
        return tuple(
            cut
            for cut in self.cuts
            if cut.number not in self.borne and not cut.phase.is_settled
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Permit:
    """How far the next epoch may read.

    Attributes:
        ends: By channel, the first epoch of the writer that it must not read.
        reads_sources: False while a cut has the sources wait.
        held_by: By channel, the cut for which its rows wait.
    """

    ends: Mapping[str, int]
    reads_sources: bool
    held_by: Mapping[str, int]


def permit(view: RegionView) -> Permit:
    """Return what the next epoch of a region may read."""
    ends, held_by = {}, {}
    for each in view.inputs:
        end, cut = _end(each, view)
        ends[each.channel.name] = end
        if cut is not None:
            held_by[each.channel.name] = cut
    return Permit(ends=ends, reads_sources=_reads_sources(view), held_by=held_by)


def _end(view: ChannelView, region: RegionView) -> tuple[int, int | None]:
    """Return how far a channel may be read, and the cut that says so."""
    for cut in _pausing(region):
        if not view.carries(cut.number):
            return view.position, cut.number
    end, held_by = view.end, None
    for cut in region.unborne:
        place = view.place(cut.number)
        # Whoever is behind a marker already has read on because the cut was abandoned.
        if place is not None and view.position <= place < end:
            end, held_by = place, cut.number
    return end, held_by


def _reads_sources(view: RegionView) -> bool:
    return not _pausing(view)


def _pausing(view: RegionView) -> list[Cut]:
    """Return the cuts that have sources wait."""
    return [
        cut
        for cut in view.cuts
        if not cut.phase.is_settled
        and (
            cut.protocol is Protocol.DRAIN
            or (cut.protocol is Protocol.EPOCHS and cut.number in view.borne)
        )
    ]


def bears(view: RegionView, ends: Mapping[str, int]) -> tuple[int, ...]:
    """Return the cuts whose markers an epoch bears that reads up to these ends.

    If it is not empty, an epoch is due even where there is nothing to read.
    """
    return tuple(c.number for c in view.unborne if _bears(view, c, ends))


def _bears(view: RegionView, cut: Cut, ends: Mapping[str, int]) -> bool:
    places = {
        each.channel.name: place
        for each in view.inputs
        if (place := each.place(cut.number)) is not None
    }
    if any(ends[name] > place for name, place in places.items()):
        return False  # it has read on: the cut was abandoned
    if view.is_head(cut.number):
        return cut.is_marking or bool(places)
    if cut.protocol is Protocol.UNALIGNED:
        return bool(places)
    forward = [v.channel.name for v in view.forward(cut.number)]
    return all(ends[name] == places.get(name) for name in forward)
