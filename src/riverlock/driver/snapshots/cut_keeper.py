"""Takes snapshots of all regions: reads what they decide, and says when one is whole.

It holds nothing that is not in the store. Every process that runs a region has one;
whoever sees first that a cut is drained, whole or too late writes that down.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from riverlock.coordinator.cuts.coordinator import CutCoordinator
from riverlock.coordinator.cuts.cut import Protocol
from riverlock.coordinator.cuts.events import Decided, Proposed, TimedOut
from riverlock.coordinator.cuts.instructions import Abandon, Complete, DeclareDrained
from riverlock.core.errors import RiverlockError
from riverlock.driver.snapshots.decided_epochs import DecidedEpochs
from riverlock.driver.snapshots.joint_keeper import JointKeeper
from riverlock.snapshot.catalog import Catalog
from riverlock.snapshot.format.channels import channel_ends
from riverlock.snapshot.format.cut_log import CutLog
from riverlock.snapshot.format.records import CHANNEL, Named
from riverlock.snapshot.in_flight import alignment_us, between
from riverlock.snapshot.timeline import spans

if TYPE_CHECKING:
    from riverlock.coordinator.cuts.instructions import Instruction
    from riverlock.coordinator.cuts.topology import Topology
    from riverlock.core.clock import Clock
    from riverlock.snapshot.format.records import CutProposal, Manifest
    from riverlock.storage.base import Storage

__all__ = ["CutKeeper"]

log = logging.getLogger(__name__)
_POLL_SECONDS = 0.1


@dataclass
class CutKeeper:
    """Follows the regions of a flow, in a thread of its own.

    Attributes:
        storage: The store.
        topology: Its regions and channels.
        clock: What says that a cut takes too long.
    """

    storage: Storage
    topology: Topology
    clock: Clock
    _open: dict[int, CutProposal] = field(default_factory=dict)
    _known: int | None = None
    # Of snapshots over several flows.
    _joint: dict[int, JointKeeper] = field(default_factory=dict)
    _over: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def __post_init__(self) -> None:
        """Know of nothing yet."""
        self._log = CutLog(self.storage)
        self._coordinator = CutCoordinator(self.topology)
        self._decided = self._from_the_first()

    def _from_the_first(self) -> dict[str, DecidedEpochs]:
        return {
            region: DecidedEpochs(Catalog(self.storage, region))
            for region in self.topology.regions
        }

    def start(self) -> None:
        """Follow the regions until it is stopped."""
        self._thread = threading.Thread(
            target=self._work, name="riverlock-cuts", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """Look once more, then end."""
        self._over.set()
        if self._thread is not None:
            self._thread.join()

    def _work(self) -> None:
        while True:
            is_last = self._over.wait(_POLL_SECONDS)
            try:
                self.look()
            except Exception as error:  # noqa: BLE001 - regions go on without it
                log.warning("could not look after snapshots: %s", error)
            if is_last:
                return

    def look(self) -> None:
        """Take up what is new.

        Raises:
            RiverlockError: The store does not answer; the next look goes on.
        """
        found = self._new()
        for proposal in found:
            if self._log.is_settled(proposal):
                continue
            if proposal.joint is None:
                self._open[proposal.number] = proposal
            else:
                joint = JointKeeper(self.storage, proposal, proposal.joint, self.clock)
                self._joint[proposal.number] = joint
        self._look_after_joint()
        if found:
            # Epochs that bear its marker may have been read before the cut was known.
            self._begin_again()
        if not self._open:
            return
        for region in self.topology.regions:
            for manifest in self._decided[region].new():
                for order in self._coordinator.handle(_event(manifest)):
                    self._carry_out(order)
        self._look_at_clock()

    def _look_after_joint(self) -> None:
        """Do what is due for snapshots over several flows, whoever else is away."""
        for number, keeper in [*self._joint.items()]:
            try:
                if keeper.look():
                    del self._joint[number]
            except RiverlockError as error:
                log.warning("could not look after snapshot %s: %s", number, error)

    def _new(self) -> list[CutProposal]:
        """Return the cuts that were asked for since; at first, all that are open."""
        if self._known is None:
            at_first = self._log.found()
            self._known = at_first.last
            found = list(at_first.still)
        else:
            found = list(self._log.after(self._known))
        self._known = max([self._known, *(p.number for p in found)])
        return found

    def _begin_again(self) -> None:
        self._coordinator = CutCoordinator(self.topology)
        self._decided = self._from_the_first()
        for number, proposal in self._open.items():
            protocol = Protocol(proposal.protocol)
            self._coordinator.handle(Proposed(cut=number, protocol=protocol))

    def _carry_out(self, order: Instruction) -> None:
        match order:
            case DeclareDrained(cut=number):
                self._log.declare_drained(number)
            case Abandon(cut=number, waiting=waiting):
                regions = ", ".join(map(repr, waiting))
                self._give_up(number, f"no answer from region {regions}")
            case Complete(cut=cut):
                proposal = self._open.pop(cut.number, None)
                if proposal is not None:
                    self._name(proposal, order)

    def _name(self, proposal: CutProposal, order: Complete) -> None:
        cut, catalog = order.cut, Catalog(self.storage)
        if self._log.given_up(proposal) is not None:
            return  # somebody was faster, also with taking the name away again
        try:
            manifests = [catalog.of(r).manifest(e) for r, e in cut.epochs.items()]
            named = Named(
                name=proposal.name,
                regions=dict(cut.epochs),
                created_us=self.clock.now_us(),
                note=proposal.note,
                protocol=proposal.protocol,
                cut=proposal.number,
                asked_us=proposal.asked_us,
                in_flight=tuple(b.span for b in between(catalog, manifests)),
                alignment_us=alignment_us(manifests, proposal.asked_us),
            )
            catalog.pin_all(named)
        except RiverlockError as error:
            # Unless another process has just written the same.
            if self._log.taken(proposal) is None:
                self._give_up(proposal.number, str(error))

    def _give_up(self, number: int, why: str) -> None:
        self._open.pop(number, None)
        self._log.give_up(number, why)
        log.warning("snapshot %s was abandoned: %s", number, why)

    def _look_at_clock(self) -> None:
        for number, proposal in [*self._open.items()]:
            if self._log.is_settled(proposal):
                del self._open[number]
            elif self.clock.now_us() > proposal.asked_us + proposal.timeout_us:
                for order in self._coordinator.handle(TimedOut(cut=number)):
                    self._carry_out(order)


def _event(manifest: Manifest) -> Decided:
    """Return what an epoch says of cuts and channels."""
    return Decided(
        region=manifest.region,
        epoch=manifest.epoch,
        heard=manifest.heard,
        positions={name: end for _, _, name, end in channel_ends(manifest)},
        markers=manifest.markers,
        rows={
            uid: output.rows
            for uid, output in manifest.outputs.items()
            if output.kind == CHANNEL
        },
        timeline=tuple(spans(manifest)),
        reset=manifest.reset,
    )
