"""Takes snapshots over several flows: what ``cut_keeper`` does, beyond one store.

Every flow that takes part has one. That of the head follows the regions of all flows
and decides; the others do what was decided. All of them see to it that a cut for which
nobody answers is given up.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from riverlock.coordinator.cuts.coordinator import CutCoordinator
from riverlock.coordinator.cuts.cut import Protocol
from riverlock.coordinator.cuts.events import Proposed, TimedOut
from riverlock.coordinator.cuts.instructions import Abandon, Complete, DeclareDrained
from riverlock.core import faults
from riverlock.core.errors import SnapshotNotFoundError
from riverlock.driver.snapshots.decided_epochs import DecidedEpochs
from riverlock.driver.snapshots.joint_regions import (
    JointRegions,
    Place,
    started_regions,
)
from riverlock.snapshot.catalog import Catalog
from riverlock.snapshot.format.cut_log import CutLog
from riverlock.snapshot.joint.joint_cut import (
    hold_parts,
    let_go_settled,
    settle,
    stores_of,
)
from riverlock.snapshot.joint.joint_records import CutDecided

if TYPE_CHECKING:
    from collections.abc import Iterator

    from riverlock.coordinator.cuts.instructions import Instruction
    from riverlock.core.clock import Clock
    from riverlock.snapshot.format.records import CutProposal, JointCut
    from riverlock.snapshot.joint.joint_records import CutPart
    from riverlock.storage.base import Storage

__all__ = ["JointKeeper"]

log = logging.getLogger(__name__)
# The head has so much longer than the cut before another flow gives up for it.
_PATIENCE_US = 5 * 1_000_000


@dataclass
class _Following:
    """What the head knows of the regions of all flows."""

    regions: JointRegions
    coordinator: CutCoordinator
    epochs: dict[Place, DecidedEpochs]

    def orders(self) -> Iterator[Instruction]:
        """Yield what is to be done about what was decided since."""
        for place, epochs in self.epochs.items():
            for manifest in epochs.new():
                event = self.regions.event(place, manifest)
                yield from self.coordinator.handle(event)


@dataclass
class JointKeeper:
    """Follows one cut over several flows, for one of them.

    Attributes:
        storage: The store of that flow.
        proposal: The cut, as that store has it.
        joint: Who takes part.
        clock: What says that the cut takes too long.
    """

    storage: Storage
    proposal: CutProposal
    joint: JointCut
    clock: Clock
    _stores: dict[str, Storage] = field(default_factory=dict)
    _following: _Following | None = None

    def __post_init__(self) -> None:
        """Open the stores; nothing is read yet."""
        self._stores = stores_of(self.joint)
        self._head = CutLog(self._stores[self.joint.head])

    def look(self) -> bool:
        """Do what is due; return whether the cut is settled here.

        Raises:
            RiverlockError: A store does not answer; the next look goes on.
        """
        decision = self._head.decision(self.joint.id)
        if decision is None:
            is_head = Catalog(self.storage).flow().id == self.joint.head
            decision = self._as_head() if is_head else self._as_other()
        if decision is None:
            return False
        settle(Catalog(self.storage), self.proposal, decision)
        return True

    def _is_late(self, patience_us: int = 0) -> bool:
        due_us = self.proposal.asked_us + self.proposal.timeout_us
        return self.clock.now_us() > due_us + patience_us

    def _as_other(self) -> CutDecided | None:
        if not self._is_late(_PATIENCE_US):
            return None
        return self._give_up(f"no answer from flow {self.joint.head}, which decides")

    def _as_head(self) -> CutDecided | None:
        """Read what all regions have decided since; decide once the cut is whole."""
        following = self._following = self._following or self._begun()
        if following is None:
            why = "a flow has not begun, or a region has no epoch"
            return self._give_up(why) if self._is_late() else None
        for order in following.orders():
            decision = self._carry_out(order, following.regions)
            if decision is not None:
                return decision
        if self._is_late():
            late = TimedOut(cut=self.proposal.number)
            for order in following.coordinator.handle(late):
                return self._carry_out(order, following.regions)
        return None

    def _begun(self) -> _Following | None:
        """Return what there is to follow; None: not all regions have an epoch yet."""
        begun = self._head.begun(self.proposal.number)
        if begun is None:
            return None
        newest = {}
        for flow, storage in self._stores.items():
            for region in started_regions(storage):
                found = Catalog(storage, region).newest()
                if found is None:
                    return None
                newest[Place(flow, region)] = found
        number = self.proposal.number
        regions = JointRegions.found(number, begun.numbers, newest)
        coordinator = CutCoordinator(regions.topology)
        protocol = Protocol(self.proposal.protocol)
        coordinator.handle(Proposed(cut=number, protocol=protocol))
        epochs = {
            place: DecidedEpochs(Catalog(self._stores[place.flow], place.region))
            for place in newest
        }
        return _Following(regions, coordinator, epochs)

    def _carry_out(
        self, order: Instruction, regions: JointRegions
    ) -> CutDecided | None:
        match order:
            case DeclareDrained():
                for flow, number in regions.numbers.items():
                    CutLog(self._stores[flow]).declare_drained(number)
                return None
            case Abandon(waiting=waiting):
                return self._give_up(
                    f"no answer from {', '.join(map(self._told, waiting))}"
                )
            case Complete(cut=cut):
                return self._complete(regions, regions.parts(cut))

    def _told(self, name: str) -> str:
        place = Place.of(name)
        return f"region {place.region!r} of {self._stores[place.flow].uri}"

    def _complete(self, regions: JointRegions, parts: dict[str, CutPart]) -> CutDecided:
        for storage in self._stores.values():
            if any(n.name == self.proposal.name for n in Catalog(storage).snapshots()):
                return self._give_up(f"its name was taken meanwhile in {storage.uri}")
        try:
            hold_parts(self.joint, parts)
        except SnapshotNotFoundError as error:
            return self._give_up(str(error))
        now_us = self.clock.now_us()
        decided = CutDecided(id=self.joint.id, decided_us=now_us, parts=parts)
        decision = self._head.decide(decided)
        faults.hit("V3")
        let_go_settled(self.joint, regions.numbers)
        return decision

    def _give_up(self, why: str) -> CutDecided:
        log.warning("snapshot %r of several flows: %s", self.proposal.name, why)
        now_us = self.clock.now_us()
        return self._head.decide(
            CutDecided(id=self.joint.id, decided_us=now_us, parts={}, why=why)
        )
