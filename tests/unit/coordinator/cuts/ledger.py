"""A world of regions that pass money on, under a seeded scheduler that is not kind.

Sources deposit money, regions keep some of it and send the rest on, also round loops.
Wherever a cut goes through this world, what its states hold and what is in flight in it
must be what had been deposited. Drivers know only what they have read, which may be
old; they die, sleep, and race with others of the same region.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from riverlock.coordinator.cuts import (
    Abandon,
    Channel,
    ChannelView,
    Complete,
    CompleteCut,
    Cut,
    CutCoordinator,
    Decided,
    DeclareDrained,
    Event,
    Permit,
    Phase,
    Proposed,
    Protocol,
    RegionView,
    TimedOut,
    Topology,
    bears,
    permit,
)

__all__ = ["FAULTS", "Ledger", "Rules", "ViolationError", "random_topology"]

Row = tuple[int, int]  # an amount, and how often it may still be passed on
HOPS = 4
FAULTS = ("kill", "sleep", "wake", "rival", "forget", "late")


class ViolationError(AssertionError):
    """A promise of the protocol was broken."""


@dataclass(frozen=True, kw_only=True)
class Rules:
    """The rules under test; mutants bring others."""

    permit: Callable[[RegionView], Permit] = permit
    bears: Callable[[RegionView, dict[str, int]], tuple[int, ...]] = bears
    # Rows that may wait in a channel before its writer reads no more; loops have none.
    most_unread: int | None = None
    bounds_loops: bool = False


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """What a region decided in one epoch."""

    epoch: int
    driver: int
    balance: int = 0
    deposits: int = 0
    heard: int | None = None
    positions: dict[str, int] = field(default_factory=dict)
    markers: tuple[int, ...] = ()
    borne: frozenset[int] = frozenset()
    sent: dict[str, tuple[Row, ...]] = field(default_factory=dict)


def random_topology(chance: random.Random) -> Topology:
    """Return up to six regions in some order, with any edges, loops included."""
    regions = [f"r{n}" for n in range(chance.randint(1, 6))]
    channels: list[Channel] = []
    for place, reader in enumerate(regions):
        writers = [w for w in regions[:place] if chance.random() < 0.5]
        channels += [
            Channel(name=f"{w}-{reader}", writer=w, reader=reader) for w in writers
        ]
        for writer in regions[place:]:
            if chance.random() < 0.2:
                name = f"{writer}~{reader}"
                channels.append(
                    Channel(name=name, writer=writer, reader=reader, is_back=True)
                )
    return Topology(regions=tuple(regions), channels=tuple(channels))


@dataclass(eq=False)
class Driver:
    """One process for one region, and what it has read so far."""

    number: int
    region: str
    # How many manifests of each region it has read, and the cuts it has heard of.
    read: dict[str, int] = field(default_factory=dict)
    cuts: dict[int, Cut] = field(default_factory=dict)
    pending: Manifest | None = None
    is_asleep: bool = False


class Ledger:
    """One seed, played from start to end."""

    def __init__(
        self,
        seed: int,
        *,
        topology: Topology | None = None,
        protocols: tuple[Protocol, ...] = tuple(Protocol),
        rules: Rules | None = None,
    ) -> None:
        self.random = random.Random(seed)
        self.topology = topology or random_topology(self.random)
        self.protocols = protocols
        self.rules = rules or Rules()
        self.store: dict[str, list[Manifest]] = {r: [] for r in self.topology.regions}
        self.proposed: dict[int, Cut] = {}
        self.taken: list[CompleteCut] = []
        self.faults: Counter[str] = Counter()
        self.deposits = True
        self.held = 0
        self._names = 0
        self.drivers = [self._driver(region) for region in self.topology.regions]
        self._coordinator = CutCoordinator(self.topology)
        self._told: dict[str, int] = Counter()
        self._told_cuts = 0

    # The scheduler.

    def play(self, *, steps: int = 250) -> None:
        """Play with faults, then take one cut by each protocol without any.

        Raises:
            ViolationError: A cut is not consistent, or none came about.
        """
        for _ in range(steps):
            self._stir()
        for driver in self.drivers:
            driver.is_asleep = False
        self._tell_proposals()
        for number, cut in list(self.proposed.items()):
            if not cut.phase.is_settled:
                self._tell(TimedOut(cut=number))
        for protocol in self.protocols:
            self._take_calmly(protocol)

    def _take_calmly(self, protocol: Protocol) -> None:
        number = self._propose(protocol)
        # Regions that wait for each other take their time.
        patience = 4_000 if self.rules.most_unread is None else 40_000
        for _ in range(patience):
            if self.proposed[number].phase is Phase.COMPLETE:
                return
            self._step()
        raise ViolationError(f"no snapshot by {protocol} after the last fault")

    def _stir(self) -> None:
        roll = self.random.random()
        if roll < 0.05:
            self._propose(self.random.choice(self.protocols))
        elif roll < 0.12:
            self._harm()
        self._step()

    def _harm(self) -> None:
        kind = self.random.choice(FAULTS)
        self.faults[kind] += 1
        driver = self.random.choice(self.drivers)
        match kind:
            case "kill":
                self.drivers[self.drivers.index(driver)] = self._driver(driver.region)
            case "sleep":
                driver.is_asleep = True
            case "wake":
                for each in self.drivers:
                    each.is_asleep = False
            case "rival" if len(self.drivers) < 2 * len(self.store):
                self.drivers.append(self._driver(driver.region))
            case "forget":
                # Another process reads all manifests from the start.
                self._coordinator = CutCoordinator(self.topology)
                self._told, self._told_cuts = Counter(), 0
            case _:
                still = [n for n, c in self.proposed.items() if not c.phase.is_settled]
                if still:
                    self._tell(TimedOut(cut=self.random.choice(still)))

    def _step(self) -> None:
        awake = [d for d in self.drivers if not d.is_asleep]
        roll = self.random.random()
        if roll < 0.3 or not awake:
            self._watch()
        elif roll < 0.5:
            self._look(self.random.choice(awake))
        else:
            self._work(self.random.choice(awake))

    def _driver(self, region: str) -> Driver:
        self._names += 1
        return Driver(number=self._names, region=region)

    # What drivers do.

    def _look(self, driver: Driver) -> None:
        """Read some of what the others have decided, and hear of some cuts."""
        for region, manifests in self.store.items():
            known = driver.read.get(region, 0)
            driver.read[region] = self.random.randint(known, len(manifests))
        known = len(driver.cuts)
        self._hear(driver, self.random.randint(known, len(self.proposed)))
        for number in driver.cuts:
            if self.random.random() < 0.7:
                driver.cuts[number] = self.proposed[number]

    def _hear(self, driver: Driver, last: int) -> None:
        """Read of cuts in the order of their numbers, as they were asked for."""
        for number in range(1, last + 1):
            driver.cuts.setdefault(number, self.proposed[number])

    def _work(self, driver: Driver) -> None:
        if driver.pending is None:
            driver.pending = self._planned(driver)
        elif self.random.random() < 0.7:
            self._put(driver, driver.pending)
            driver.pending = None

    def _put(self, driver: Driver, manifest: Manifest) -> None:
        mine = self.store[driver.region]
        if manifest.epoch == len(mine):
            mine.append(manifest)
        else:
            self.faults["race"] += 1  # somebody else decided this epoch
        driver.read[driver.region] = len(mine)

    def _view(self, driver: Driver, parent: Manifest) -> RegionView:
        inputs, cuts = [], dict(driver.cuts)
        for channel in self.topology.inputs(driver.region):
            known = self.store[channel.writer][: driver.read.get(channel.writer, 0)]
            position = parent.positions.get(channel.name, 0)
            markers = {n: m.epoch for m in known for n in m.markers}
            for number in markers:
                # A marker says which protocol it is of; whoever reads it knows it.
                cuts.setdefault(number, _as_marked(self.proposed[number]))
            inputs.append(
                ChannelView(
                    channel=channel,
                    position=position,
                    end=max(len(known), position),
                    markers=markers,
                )
            )
        return RegionView(
            region=driver.region,
            inputs=tuple(inputs),
            cuts=tuple(cuts.values()),
            borne=parent.borne,
        )

    def _planned(self, driver: Driver) -> Manifest | None:
        mine = self.store[driver.region][: driver.read.get(driver.region, 0)]
        parent = mine[-1] if mine else Manifest(epoch=-1, driver=0)
        # What its region has heard, a driver must know before it plans.
        self._hear(driver, parent.heard or 0)
        view = self._view(driver, parent)
        allowed = self.rules.permit(view)
        is_held = self._is_held(driver, mine)
        ends: dict[str, int] = {}
        received: list[Row] = []
        for each in view.inputs:
            name = each.channel.name
            end = self.random.choice(
                (allowed.ends[name], self.random.randint(0, allowed.ends[name]))
            )
            end = each.position if is_held else end
            ends[name] = end = max(end, each.position)
            for manifest in self.store[each.channel.writer][each.position : end]:
                received += manifest.sent.get(name, ())
        markers = self.rules.bears(view, ends)
        heard = max(driver.cuts, default=None)
        makes_way = heard is not None and heard > (parent.heard or 0)
        deposit = [] if is_held else self._deposit(allowed)
        moved = any(ends[i.channel.name] > i.position for i in view.inputs)
        if not (moved or markers or makes_way or deposit):
            return None
        kept, sent = self._passed_on(driver.region, [*received, *deposit])
        return Manifest(
            epoch=parent.epoch + 1,
            driver=driver.number,
            balance=parent.balance + kept,
            deposits=parent.deposits + sum(amount for amount, _ in deposit),
            heard=heard,
            positions=ends,
            markers=markers,
            borne=parent.borne | set(markers),
            sent=sent,
        )

    def _is_held(self, driver: Driver, mine: list[Manifest]) -> bool:
        """Tell whether a reader is too far behind, as far as the driver has read."""
        most = self.rules.most_unread
        for channel in self.topology.channels if most is not None else ():
            has_bound = self.rules.bounds_loops or not channel.is_back
            if channel.writer != driver.region or not has_bound:
                continue
            known = driver.read.get(channel.reader, 0)
            reader = self.store[channel.reader][:known]
            position = reader[-1].positions.get(channel.name, 0) if reader else 0
            name = channel.name
            waits = sum(len(m.sent.get(name, ())) for m in mine[position:])
            if most is not None and waits >= most:
                self.held += 1
                return True
        return False

    def _deposit(self, allowed: Permit) -> list[Row]:
        if not allowed.reads_sources or self.random.random() < 0.5:
            return []
        return [(self.random.randint(1, 9), HOPS)]

    def _passed_on(
        self, region: str, rows: list[Row]
    ) -> tuple[int, dict[str, tuple[Row, ...]]]:
        ways = [c.name for c in self.topology.channels if c.writer == region]
        kept, sent = 0, dict[str, tuple[Row, ...]]()
        for amount, hops in rows:
            part = self.random.randint(0, amount) if ways and hops else 0
            kept += amount - part
            if part:
                way = self.random.choice(ways)
                sent[way] = (*sent.get(way, ()), (part, hops - 1))
        return kept, sent

    # Cuts.

    def _propose(self, protocol: Protocol) -> int:
        number = len(self.proposed) + 1
        self.proposed[number] = Cut(number=number, protocol=protocol)
        return number

    def _watch(self) -> None:
        """Let the coordinator read some of what is new, regions in any order."""
        self._tell_proposals()
        region = self.random.choice(self.topology.regions)
        for manifest in self.store[region][self._told[region] :]:
            self._told[region] += 1
            self._tell(
                Decided(
                    region=region,
                    epoch=manifest.epoch,
                    heard=manifest.heard,
                    positions=manifest.positions,
                    markers=manifest.markers,
                    rows={name: len(rows) for name, rows in manifest.sent.items()},
                )
            )

    def _tell_proposals(self) -> None:
        while self._told_cuts < len(self.proposed):
            self._told_cuts += 1
            cut = self.proposed[self._told_cuts]
            if not cut.phase.is_settled:
                self._tell(Proposed(cut=cut.number, protocol=cut.protocol))

    def _tell(self, event: Event) -> None:
        for order in self._coordinator.handle(event):
            match order:
                case DeclareDrained(cut=number):
                    self._settle(number, Phase.DRAINED)
                case Abandon(cut=number):
                    self._settle(number, Phase.ABANDONED)
                case Complete(cut=cut):
                    if self._settle(cut.number, Phase.COMPLETE):
                        self.check(cut)
                        self.taken.append(cut)

    def _settle(self, number: int, phase: Phase) -> bool:
        """Put if absent: what was settled first stays."""
        cut = self.proposed[number]
        if cut.phase.is_settled:
            return False
        self.proposed[number] = Cut(number=number, protocol=cut.protocol, phase=phase)
        return True

    def check(self, cut: CompleteCut) -> None:
        """Compare what a cut holds with what had been deposited.

        Raises:
            ViolationError: Money is missing, or there is too much of it.
        """
        at = {region: self.store[region][epoch] for region, epoch in cut.epochs.items()}
        held = sum(manifest.balance for manifest in at.values())
        spans = {span.channel: span for span in cut.in_flight}
        on_way = 0
        for channel in self.topology.channels:
            span = spans[channel.name]
            rows = [
                row
                for manifest in self.store[channel.writer][span.first : span.end]
                for row in manifest.sent.get(channel.name, ())
            ]
            if len(rows) != span.rows:
                raise ViolationError(f"{len(rows)} rows in flight, not {span.rows}")
            waits = cut.protocol is not Protocol.UNALIGNED and not channel.is_back
            if rows and (waits or cut.protocol is Protocol.DRAIN):
                raise ViolationError(f"{cut.protocol}: rows in flight in {channel}")
            on_way += sum(amount for amount, _ in rows)
        deposited = sum(manifest.deposits for manifest in at.values())
        if held + on_way != deposited:
            raise ViolationError(f"{held} + {on_way} in flight, not {deposited}: {cut}")


def _as_marked(cut: Cut) -> Cut:
    """Return what a marker tells of its cut, whatever has become of it since."""
    is_drain = cut.protocol is Protocol.DRAIN
    phase = Phase.DRAINED if is_drain else Phase.OPEN
    return Cut(number=cut.number, protocol=cut.protocol, phase=phase)
