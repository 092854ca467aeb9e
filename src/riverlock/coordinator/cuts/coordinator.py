"""The coordinator of cuts: reads what regions decided, says when a snapshot is whole.

It holds nothing that is not in the store: whoever reads the manifests of all regions
comes to the same answers, so that it may die, and may run in several places at once.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, assert_never

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

if TYPE_CHECKING:
    from riverlock.coordinator.cuts.topology import Channel, Topology

__all__ = ["CutCoordinator"]


@dataclass
class _Taking:
    """A cut, and the epochs that bear its marker so far."""

    cut: Cut
    borne: dict[str, Decided] = field(default_factory=dict)

    def lacking(self, topology: Topology) -> tuple[str, ...]:
        """Return the regions that have not borne it, or not since a reset."""
        last: dict[str, int] = defaultdict(int)
        for each in self.borne.values():
            last[each.flow] = max(last[each.flow], each.reset)

        def is_old(each: Decided) -> bool:
            return each.reset < last[each.flow]

        return tuple(
            region
            for region in topology.regions
            if region not in self.borne or is_old(self.borne[region])
        )


class CutCoordinator:
    """Decides when cuts are drained, complete or abandoned; the shell does it.

    Not thread-safe: one caller. Events of one region come in order; otherwise any order
    will do, and any event may come again.
    """

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self._newest: dict[str, Decided] = {}
        self._open: dict[int, _Taking] = {}
        # Rows of each epoch of a channel, from its reader's oldest position in use on.
        self._rows: dict[str, dict[int, int]] = defaultdict(dict)

    @property
    def open_cuts(self) -> tuple[Cut, ...]:
        """The cuts that are being taken."""
        return tuple(taking.cut for taking in self._open.values())

    def handle(self, event: Event) -> tuple[Instruction, ...]:
        """Take note of an event and return what to do about it.

        Raises:
            InternalError: The epochs that bear a marker are not a consistent cut.
        """
        match event:
            case Proposed():
                return self._on_proposed(event)
            case Decided():
                return self._on_decided(event)
            case TimedOut():
                return self._on_timed_out(event.cut)
            case _:
                assert_never(event)

    def _on_proposed(self, event: Proposed) -> tuple[Instruction, ...]:
        if event.cut not in self._open:
            cut = Cut(number=event.cut, protocol=event.protocol)
            self._open[event.cut] = _Taking(cut)
        return ()

    def _on_decided(self, event: Decided) -> tuple[Instruction, ...]:
        known = self._newest.get(event.region)
        if known is not None and event.epoch <= known.epoch:
            return ()
        self._newest[event.region] = event
        for channel, rows in event.rows.items():
            self._rows[channel][event.epoch] = rows
        for number in event.markers:
            if number in self._open:
                self._open[number].borne[event.region] = event
        found = self._drained() + self._complete()
        self._forget_rows()
        return found

    def _on_timed_out(self, number: int) -> tuple[Instruction, ...]:
        taking = self._open.pop(number, None)
        if taking is None:
            return ()
        return (Abandon(cut=number, waiting=taking.lacking(self.topology)),)

    def _drained(self) -> tuple[Instruction, ...]:
        found: list[Instruction] = []
        for number, taking in self._open.items():
            cut = taking.cut
            is_draining = cut.protocol is Protocol.DRAIN and cut.phase is Phase.OPEN
            if is_draining and self._is_empty(number):
                taking.cut = dataclasses.replace(cut, phase=Phase.DRAINED)
                found.append(DeclareDrained(cut=number))
        return tuple(found)

    def _is_empty(self, cut: int) -> bool:
        """Whether sources wait everywhere and no channel has unread rows."""
        newest = [self._newest.get(region) for region in self.topology.regions]
        if any(n is None or n.heard is None or n.heard < cut for n in newest):
            return False
        # Rows that were in flight come back where a region goes back.
        resets = {(n.flow, n.reset) for n in newest if n is not None}
        if len(resets) > len({flow for flow, _ in resets}):
            return False
        return not any(self._unread(c).rows for c in self.topology.channels)

    def _unread(self, channel: Channel) -> InFlight:
        """Return what of a channel is unread, at the newest epochs."""
        return self._between(
            channel, self._newest[channel.writer], self._newest[channel.reader]
        )

    def _between(self, channel: Channel, writer: Decided, reader: Decided) -> InFlight:
        first, end = reader.positions.get(channel.name, 0), writer.epoch + 1
        rows = self._rows[channel.name]
        return InFlight(
            channel=channel.name,
            first=first,
            end=end,
            rows=sum(
                rows.get(epoch, 0)
                for epoch in range(first, end)
                if writer.came_from(epoch)
            ),
        )

    def _complete(self) -> tuple[Instruction, ...]:
        found: list[Instruction] = []
        for number, taking in list(self._open.items()):
            if not taking.lacking(self.topology):
                del self._open[number]
                found.append(Complete(cut=self._whole(taking)))
        return tuple(found)

    def _whole(self, taking: _Taking) -> CompleteCut:
        borne = taking.borne
        whole = CompleteCut(
            number=taking.cut.number,
            protocol=taking.cut.protocol,
            epochs={region: borne[region].epoch for region in self.topology.regions},
            in_flight=tuple(
                self._between(c, borne[c.writer], borne[c.reader])
                for c in self.topology.channels
            ),
        )
        whole.check(self.topology)
        return whole

    def _forget_rows(self) -> None:
        """Forget rows of epochs that every reader, and every open cut, is past."""
        for channel in self.topology.channels:
            reader = self._newest.get(channel.reader)
            if reader is None:
                continue
            kept = min(
                d.positions.get(channel.name, 0)
                for d in (reader, *self._borne_by(channel.reader))
            )
            rows = self._rows[channel.name]
            for epoch in [e for e in rows if e < kept]:
                del rows[epoch]

    def _borne_by(self, region: str) -> list[Decided]:
        return [t.borne[region] for t in self._open.values() if region in t.borne]
