"""What cuts mean for the next epoch of a region: how far it reads, what it bears.

The rules are in ``coordinator/cuts``; here is where their answers come from: the
manifests that this region's channel readers have seen, and the cuts in the store.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from riverlock.connectors.channel.joined_reader import JoinedReader
from riverlock.connectors.channel.reader import ChannelReader
from riverlock.coordinator.cuts.cut import Cut, Phase, Protocol
from riverlock.coordinator.cuts.rules import ChannelView, RegionView, bears, permit
from riverlock.coordinator.cuts.topology import Channel
from riverlock.coordinator.markers import Markers

if TYPE_CHECKING:
    from collections.abc import Mapping

    from riverlock.connectors.base.source_reader import Reader
    from riverlock.coordinator.cuts.rules import Permit
    from riverlock.snapshot.format.cut_log import CutLog
    from riverlock.snapshot.format.records import CutProposal, InputRange, Manifest

__all__ = ["Intake", "RegionCuts"]


@dataclass
class RegionCuts:
    """The cuts that a region knows of.

    Attributes:
        region: The region.
        log: The cuts of the store.
        readers: Its sources, by uid.
        back: Channels that close a loop.
    """

    region: str
    log: CutLog
    readers: Mapping[str, Reader]
    back: frozenset[str] = frozenset()
    _known: int | None = None
    _open: dict[int, CutProposal] = field(default_factory=dict)

    def look(self, parent: Manifest | None, starts: Mapping[str, Any]) -> Intake:
        """Return what may be read from these offsets on.

        Channel readers must have looked at their writers just before.
        """
        self._look_for_cuts()
        borne = frozenset(() if parent is None else parent.borne)
        view = RegionView(
            region=self.region,
            inputs=tuple(
                self._channel(reader, starts[uid])
                for uid, reader in self.readers.items()
                if isinstance(reader, ChannelReader)
            ),
            cuts=tuple(map(self._cut, self._open.values())),
            borne=borne,
        )
        heard = None if parent is None else parent.heard
        return Intake(view, permit(view), self._known or None, heard)

    def _look_for_cuts(self) -> None:
        if self._known is None:
            found = self.log.found()
            self._known = found.last
            self._open = {proposal.number: proposal for proposal in found.still}
        for proposal in self.log.after(self._known):
            self._known = proposal.number
            self._open[proposal.number] = proposal
        for number, proposal in [*self._open.items()]:
            if self.log.is_settled(proposal):
                del self._open[number]

    def _cut(self, proposal: CutProposal) -> Cut:
        number, protocol = proposal.number, Protocol(proposal.protocol)
        phase = Phase.OPEN
        if protocol is Protocol.DRAIN and self.log.is_drained(number):
            phase = Phase.DRAINED
        elif proposal.joint is not None and self.log.begun(number) is None:
            phase = Phase.PROPOSED
        return Cut(number=number, protocol=protocol, phase=phase)

    def _channel(self, reader: ChannelReader, start: Any) -> ChannelView:
        cuts, markers = None, reader.markers
        if isinstance(reader, JoinedReader):
            joint = {
                p.joint.id: p.number
                for p in self._open.values()
                if p.joint is not None and reader.flow in p.joint.flows
            }
            cuts, markers = frozenset(joint.values()), reader.joint_markers(joint)
        return ChannelView(
            channel=Channel(
                name=reader.key,
                writer=reader.writer,
                reader=self.region,
                is_back=reader.channel in self.back,
            ),
            position=reader.position(start),
            end=reader.end,
            markers=markers,
            cuts=cuts,
        )


@dataclass(frozen=True)
class Intake:
    """What cuts mean for one epoch."""

    view: RegionView
    permit: Permit
    known: int | None
    heard: int | None

    def limit(self, reader: Reader, start: Any, latest: Any) -> Any:
        """Return how far a source may be read, at most to ``latest``."""
        if isinstance(reader, ChannelReader):
            return reader.until(latest, self.permit.ends[reader.key])
        return latest if self.permit.reads_sources else start

    def past_gaps(
        self,
        readers: Mapping[str, Reader],
        inputs: Mapping[str, InputRange],
        latest: Mapping[str, Any],
    ) -> dict[str, InputRange]:
        """Return the ranges of an epoch that is due, with epochs that have no rows.

        Retention then need not keep these for us.
        """
        found = dict(inputs)
        for uid, span in inputs.items():
            reader = readers[uid]
            if isinstance(reader, ChannelReader) and span.end == latest[uid]:
                end = reader.past_gaps(span.end, self.permit.ends[reader.key])
                found[uid] = msgspec.structs.replace(span, end=end)
        return found

    def pauses(
        self,
        readers: Mapping[str, Reader],
        starts: Mapping[str, Any],
        latest: Mapping[str, Any],
    ) -> bool:
        """Tell whether a source that has rows waits for a snapshot."""
        return not self.permit.reads_sources and any(
            latest[uid] != starts[uid]
            for uid, reader in readers.items()
            if not isinstance(reader, ChannelReader)
        )

    def markers(
        self, readers: Mapping[str, Reader], inputs: Mapping[str, InputRange]
    ) -> Markers:
        """Return what an epoch with these ranges says of cuts."""
        ends = {
            reader.key: reader.position(inputs[uid].end)
            for uid, reader in readers.items()
            if isinstance(reader, ChannelReader)
        }
        found = bears(self.view, ends)
        still = {cut.number for cut in self.view.cuts}
        borne = (self.view.borne & still) | set(found)
        return Markers(bears=found, borne=tuple(sorted(borne)), heard=self.known)

    @property
    def is_unheard(self) -> bool:
        """Whether an epoch is due that says that the sources wait."""
        drains = [
            cut.number for cut in self.view.cuts if cut.protocol is Protocol.DRAIN
        ]
        return bool(drains) and max(drains) > (self.heard or 0)
