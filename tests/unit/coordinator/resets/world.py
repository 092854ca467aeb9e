"""A world of regions that go back while they run, under a seeded scheduler.

Sources deposit money, regions keep some of it and send the rest on, also round loops;
what becomes of a row depends on the row alone. So a run that went back as often as one
likes ends with the rows, region by region, of a run that never did. And at each moment
at which a region decides, it must have exactly the rows that its writers have sent on
their way to where they are, or to where they will be once they have gone back too.
Drivers know only what they have read, which may be old; they die, sleep, and race with
others of the same region.
"""

from __future__ import annotations

import random
import zlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import takewhile

from tests.unit.coordinator.cuts.ledger import ViolationError, random_topology

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
    Phase,
    Proposed,
    Protocol,
    RegionView,
    TimedOut,
    Topology,
    bears,
    permit,
)
from riverlock.coordinator.resets import (
    GoBack,
    Order,
    Reset,
    Say,
    Standing,
    Stray,
    Writer,
    held_at,
    is_ahead,
    resumed_at,
    taken_up,
)

__all__ = ["FAULTS", "ResetRules", "World"]

Span = tuple[int, int]
HOPS = 3
DEPOSITS = 6
FAULTS = ("kill", "sleep", "wake", "rival", "forget", "late")


@dataclass(frozen=True, kw_only=True)
class ResetRules:
    """The rules under test; mutants bring others."""

    taken_up: Callable[[Standing, Reset | None], Order | None] = taken_up
    is_ahead: Callable[[int, int], bool] = is_ahead
    held_at: Callable[[Reset | None, str, int], int | None] = held_at
    resumed_at: Callable[[int, int, Writer], int | None] = resumed_at
    # Which epochs of the writer lie before the cut its epoch in the cut says.
    looks_at_the_cut: bool = True
    # Cuts are given up before a region goes back, and are of one number.
    gives_up_cuts: bool = True
    tells_numbers: bool = True


@dataclass(frozen=True, kw_only=True)
class Row:
    """Money on its way; its name says where it came from."""

    name: str
    amount: int
    hops: int = HOPS


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """What a region decided in one epoch."""

    epoch: int
    reset: int = 0
    back_to: int | None = None
    timeline: tuple[Span, ...] = ()
    fed: int = 0
    balance: int = 0
    deposits: int = 0
    heard: int | None = None
    positions: dict[str, int] = field(default_factory=dict)
    received: dict[str, frozenset[str]] = field(default_factory=dict)
    markers: tuple[int, ...] = ()
    borne: frozenset[int] = frozenset()
    sent: dict[str, tuple[Row, ...]] = field(default_factory=dict)


FIRST = Manifest(epoch=-1)


def leads_to(epoch: int, timeline: tuple[Span, ...]) -> bool:
    """Tell whether an epoch is in a timeline."""
    return any(a <= epoch <= b for a, b in timeline)


@dataclass(eq=False)
class Driver:
    """One process for one region, and what it has read so far."""

    region: str
    read: dict[str, int] = field(default_factory=dict)
    resets: int = 0
    cuts: dict[int, Cut] = field(default_factory=dict)
    pending: Manifest | None = None
    is_asleep: bool = False


@dataclass(frozen=True, kw_only=True)
class Sight:
    """What a driver sees of a channel: the epochs that it may count on."""

    channel: Channel
    position: int
    counted: tuple[Manifest, ...]
    end: int
    # Epochs that were undone: no position is between them.
    passed: range = range(0)


class World:
    """One seed, played from start to end."""

    def __init__(
        self,
        seed: int,
        *,
        rules: ResetRules | None = None,
        topology: Topology | None = None,
    ) -> None:
        self.random = random.Random(seed)
        self.topology = topology or random_topology(self.random)
        self.rules = rules or ResetRules()
        self.store: dict[str, list[Manifest]] = {r: [] for r in self.topology.regions}
        self.resets: list[Reset] = []
        self.proposed: dict[int, Cut] = {}
        self.taken: list[CompleteCut] = []
        self.counts: Counter[str] = Counter()
        self.drivers = [Driver(region=region) for region in self.topology.regions]
        self._forget()

    # The scheduler.

    def play(self, *, steps: int = 400) -> None:
        """Play with faults, then let all regions come to their end and compare.

        Raises:
            ViolationError: A row is lost, or there that was not sent.
        """
        for _ in range(steps):
            self._stir()
        for driver in self.drivers:
            driver.is_asleep = False
        for number in self.proposed:
            self._settle(number, Phase.ABANDONED)
        for _ in range(60_000):
            if self._is_over():
                self._check_end()
                return
            self._step()
        raise ViolationError("the regions have not come to their end")

    def play_without(self, region: str, *, steps: int = 4_000) -> None:
        """Go back while a region never comes back."""
        for _ in range(200):
            self._stir()
        for driver in self.drivers:
            driver.is_asleep = False
        self.drivers = [d for d in self.drivers if d.region != region]
        if self.taken:
            self._ask()
        for _ in range(steps):
            self._step()

    def _stir(self) -> None:
        roll = self.random.random()
        if roll < 0.04:
            self._propose()
        elif roll < 0.055 and self.taken:
            self._ask()
        elif roll < 0.12:
            self._harm()
        self._step()

    def _ask(self) -> None:
        cut = self.random.choice(self.taken)
        self.resets.append(Reset(number=len(self.resets) + 1, epochs=cut.epochs))
        self.counts["resets"] += 1

    def _harm(self) -> None:
        kind = self.random.choice(FAULTS)
        self.counts[kind] += 1
        driver = self.random.choice(self.drivers)
        match kind:
            case "kill":
                self.drivers[self.drivers.index(driver)] = Driver(region=driver.region)
            case "sleep":
                driver.is_asleep = True
            case "wake":
                for each in self.drivers:
                    each.is_asleep = False
            case "rival" if len(self.drivers) < 2 * len(self.store):
                self.drivers.append(Driver(region=driver.region))
            case "forget":
                self._forget()
            case _:
                still = [n for n, c in self.proposed.items() if not c.phase.is_settled]
                if still:
                    self._tell(TimedOut(cut=self.random.choice(still)))

    def _step(self) -> None:
        awake = [d for d in self.drivers if not d.is_asleep]
        roll = self.random.random()
        if roll < 0.25 or not awake:
            self._watch()
        elif roll < 0.5:
            self._look(self.random.choice(awake))
        else:
            self._work(self.random.choice(awake))

    # What drivers do.

    def _look(self, driver: Driver) -> None:
        """Read some of what is new: of regions, resets and cuts, each by itself."""
        for region, manifests in self.store.items():
            known = driver.read.get(region, 0)
            driver.read[region] = self.random.randint(known, len(manifests))
        driver.resets = self.random.randint(driver.resets, len(self.resets))
        last = self.random.randint(len(driver.cuts), len(self.proposed))
        self._hear(driver, last)
        for number in driver.cuts:
            if self.random.random() < 0.7:
                driver.cuts[number] = self.proposed[number]

    def _hear(self, driver: Driver, last: int) -> None:
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
            self._check(driver.region, manifest)
        else:
            self.counts["race"] += 1
        driver.read[driver.region] = len(mine)

    def _planned(self, driver: Driver) -> Manifest | None:
        mine = self.store[driver.region][: driver.read.get(driver.region, 0)]
        parent = mine[-1] if mine else FIRST
        last = self.resets[driver.resets - 1] if driver.resets else None
        same = () if not mine else (parent.epoch, parent.back_to)
        standing = Standing(
            region=driver.region,
            reset=parent.reset,
            same_as=tuple(e for e in same if e is not None),
        )
        match self.rules.taken_up(standing, last):
            case GoBack(reset=number, epoch=epoch):
                self._give_up_cuts()
                self.counts["back"] += 1
                target = self.store[driver.region][epoch]
                return _restored(target, len(mine), number)
            case Say(reset=number):
                self._give_up_cuts()
                self.counts["said"] += 1
                return self._epoch(driver, parent, number)
            case Stray():
                raise ViolationError("a region without a place in the cut")
            case None:
                return self._epoch(driver, parent, parent.reset)

    def _give_up_cuts(self) -> None:
        if self.rules.gives_up_cuts:
            for number in self.proposed:
                self._settle(number, Phase.ABANDONED)

    def _sight(self, driver: Driver, channel: Channel, at: int, own: int) -> Sight:
        known = self.store[channel.writer][: driver.read.get(channel.writer, 0)]
        allowed = list(
            takewhile(lambda m: not self.rules.is_ahead(own, m.reset), known)
        )
        taken = self.resets[own - 1] if own else None
        held = self.rules.held_at(taken, channel.writer, at)
        resumed = None
        if held is not None and known:
            newest = known[-1]
            resumed = self.rules.resumed_at(
                own,
                held,
                Writer(
                    epoch=newest.epoch, reset=newest.reset, timeline=newest.timeline
                ),
            )
        if held is not None and resumed is None:
            before, allowed = allowed, allowed[:held]
            newest_seen = allowed if self.rules.looks_at_the_cut else before
        else:
            newest_seen = allowed
        timeline = newest_seen[-1].timeline if newest_seen else ()
        passed = range(held, resumed) if held is not None and resumed else range(0)
        return Sight(
            channel=channel,
            position=at,
            counted=tuple(
                m
                for m in allowed
                if m.epoch not in passed and leads_to(m.epoch, timeline)
            ),
            end=max(len(allowed), at),
            passed=passed,
        )

    def _epoch(self, driver: Driver, parent: Manifest, own: int) -> Manifest | None:
        # What its region has heard, a driver must know before it plans.
        self._hear(driver, parent.heard or 0)
        sights = [
            self._sight(driver, c, parent.positions.get(c.name, 0), own)
            for c in self.topology.inputs(driver.region)
        ]
        view = self._view(driver, parent, sights)
        allowed = permit(view)
        ends: dict[str, int] = {}
        received = dict(parent.received)
        rows: list[Row] = []
        for each in sights:
            name = each.channel.name
            end = self.random.choice(
                (allowed.ends[name], self.random.randint(0, allowed.ends[name]))
            )
            if each.passed and end in each.passed:
                end = each.passed.start
            ends[name] = end = max(end, each.position)
            mine = [
                row
                for m in each.counted
                if each.position <= m.epoch < end
                for row in m.sent.get(name, ())
            ]
            received[name] = received.get(name, frozenset()) | {r.name for r in mine}
            rows += mine
        markers = bears(view, ends)
        heard = max(driver.cuts, default=None)
        deposit = self._deposit(driver.region, parent) if allowed.reads_sources else []
        is_due = (
            any(ends[s.channel.name] > s.position for s in sights)
            or markers
            or deposit
            or own > parent.reset
            or (heard is not None and heard > (parent.heard or 0))
        )
        if not is_due:
            return None
        kept, sent = self._passed_on(driver.region, [*rows, *deposit])
        epoch = parent.epoch + 1
        return Manifest(
            epoch=epoch,
            reset=own,
            timeline=_with(parent.timeline, epoch),
            fed=parent.fed + len(deposit),
            balance=parent.balance + kept,
            deposits=parent.deposits + sum(row.amount for row in deposit),
            heard=heard,
            positions=ends,
            received=received,
            markers=markers,
            borne=parent.borne | set(markers),
            sent=sent,
        )

    def _view(
        self, driver: Driver, parent: Manifest, sights: list[Sight]
    ) -> RegionView:
        inputs, cuts = [], dict(driver.cuts)
        for each in sights:
            markers = {n: m.epoch for m in each.counted for n in m.markers}
            for number in markers:
                cuts.setdefault(number, self.proposed[number])
            inputs.append(
                ChannelView(
                    channel=each.channel,
                    position=each.position,
                    end=each.end,
                    markers=markers,
                )
            )
        return RegionView(
            region=driver.region,
            inputs=tuple(inputs),
            cuts=tuple(cuts.values()),
            borne=parent.borne,
        )

    def _deposit(self, region: str, parent: Manifest) -> list[Row]:
        if parent.fed >= DEPOSITS or self.random.random() < 0.5:
            return []
        return [_fed(region, parent.fed)]

    def _passed_on(
        self, region: str, rows: list[Row]
    ) -> tuple[int, dict[str, tuple[Row, ...]]]:
        ways = [c.name for c in self.topology.channels if c.writer == region]
        kept, sent = 0, dict[str, tuple[Row, ...]]()
        for row in rows:
            lot = zlib.crc32(f"{region} {row.name}".encode())
            part = lot % (row.amount + 1) if ways and row.hops else 0
            kept += row.amount - part
            if part:
                way = ways[lot // 16 % len(ways)]
                on = Row(name=f"{row.name}>{way}", amount=part, hops=row.hops - 1)
                sent[way] = (*sent.get(way, ()), on)
        return kept, sent

    # Cuts.

    def _propose(self) -> None:
        number = len(self.proposed) + 1
        protocol = self.random.choice(tuple(Protocol))
        self.proposed[number] = Cut(number=number, protocol=protocol)

    def _forget(self) -> None:
        self._coordinator = CutCoordinator(self.topology)
        self._told: Counter[str] = Counter()
        self._told_cuts = 0

    def _watch(self) -> None:
        while self._told_cuts < len(self.proposed):
            self._told_cuts += 1
            cut = self.proposed[self._told_cuts]
            if not cut.phase.is_settled:
                self._tell(Proposed(cut=cut.number, protocol=cut.protocol))
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
                    timeline=manifest.timeline,
                    reset=manifest.reset if self.rules.tells_numbers else 0,
                )
            )

    def _tell(self, event: Event) -> None:
        for order in self._coordinator.handle(event):
            match order:
                case DeclareDrained(cut=number):
                    self._settle(number, Phase.DRAINED)
                case Abandon(cut=number):
                    self._settle(number, Phase.ABANDONED)
                case Complete(cut=cut):
                    if self._settle(cut.number, Phase.COMPLETE):
                        self._check_cut(cut)
                        self.taken.append(cut)

    def _settle(self, number: int, phase: Phase) -> bool:
        cut = self.proposed[number]
        if cut.phase.is_settled:
            return False
        self.proposed[number] = replace(cut, phase=phase)
        return True

    # What must hold.

    def _way_of(self, writer: str, reset: int) -> tuple[Span, ...]:
        """Return the epochs of a writer that count for one that says a number."""
        same = [m for m in self.store[writer] if m.reset == reset]
        if same:
            return same[-1].timeline
        if reset == 0:
            return ()
        return self.store[writer][self.resets[reset - 1].epochs[writer]].timeline

    def _check(self, region: str, manifest: Manifest) -> None:
        for channel in self.topology.inputs(region):
            way = self._way_of(channel.writer, manifest.reset)
            self._compare(region, manifest, channel, way)

    def _compare(
        self, region: str, manifest: Manifest, channel: Channel, way: tuple[Span, ...]
    ) -> None:
        sent = {
            row.name
            for each in self.store[channel.writer][
                : manifest.positions.get(channel.name, 0)
            ]
            if leads_to(each.epoch, way)
            for row in each.sent.get(channel.name, ())
        }
        found = manifest.received.get(channel.name, frozenset())
        if found != sent:
            raise ViolationError(
                f"epoch {manifest.epoch} of {region} has {sorted(found - sent)} of"
                f" {channel.name} too much and lacks {sorted(sent - found)}"
            )

    def _check_cut(self, cut: CompleteCut) -> None:
        at = {region: self.store[region][epoch] for region, epoch in cut.epochs.items()}
        for channel in self.topology.channels:
            reader, writer = at[channel.reader], at[channel.writer]
            if reader.positions.get(channel.name, 0) > writer.epoch + 1:
                raise ViolationError(f"{channel.name} was read beyond the cut")
            self._compare(channel.reader, reader, channel, writer.timeline)

    def _is_over(self) -> bool:
        """Tell whether all have read everything and gone back as often as asked."""
        newest = {region: (m[-1] if m else FIRST) for region, m in self.store.items()}
        if any(m.fed < DEPOSITS for m in newest.values()):
            return False
        if any(m.reset != len(self.resets) for m in newest.values()):
            return False
        return all(
            not each.sent.get(channel.name)
            for channel in self.topology.channels
            for each in self.store[channel.writer][
                newest[channel.reader].positions.get(channel.name, 0) :
            ]
            if leads_to(each.epoch, newest[channel.writer].timeline)
        )

    def _check_end(self) -> None:
        """Compare with a run in which nothing ever happened."""
        wanted = dict.fromkeys(self.topology.regions, 0)
        rows = [
            (region, _fed(region, number))
            for region in self.topology.regions
            for number in range(DEPOSITS)
        ]
        readers = {c.name: c.reader for c in self.topology.channels}
        while rows:
            region, row = rows.pop()
            kept, sent = self._passed_on(region, [row])
            wanted[region] += kept
            rows += [(readers[way], on) for way, ons in sent.items() for on in ons]
        found = {region: m[-1].balance for region, m in self.store.items()}
        if found != wanted:
            raise ViolationError(f"found {found} in the end, expected {wanted}")


def _fed(region: str, number: int) -> Row:
    lot = zlib.crc32(f"{region} {number}".encode())
    return Row(name=f"{region}.{number}", amount=1 + lot % 9)


def _with(timeline: tuple[Span, ...], epoch: int) -> tuple[Span, ...]:
    if timeline and timeline[-1][1] == epoch - 1:
        return (*timeline[:-1], (timeline[-1][0], epoch))
    return (*timeline, (epoch, epoch))


def _restored(target: Manifest, epoch: int, reset: int) -> Manifest:
    return replace(
        target,
        epoch=epoch,
        reset=reset,
        back_to=target.epoch,
        timeline=_with(target.timeline, epoch),
        markers=(),
        borne=frozenset(),
        sent={},
    )
