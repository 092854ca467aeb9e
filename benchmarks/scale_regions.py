"""Fifty regions and five hundred channels under one snapshot, in virtual time.

Each region has the real coordinator, planner and channel readers, and the real keeper
of cuts looks after all of them; what they put and read goes through a store that
counts. Only time is not real: an epoch takes as long as we say, by its rows, and a
region looks for input as often as a real one does.
"""

from __future__ import annotations

import heapq
import random
from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from benchmarks.counted_storage import CountedStorage
from riverlock.connectors.channel.ends import ChannelSource
from riverlock.connectors.channel.reader import ChannelReader
from riverlock.coordinator import events as ev
from riverlock.coordinator import instructions as do
from riverlock.coordinator.cuts.topology import Channel, Topology
from riverlock.coordinator.plan import ChannelPlan, RegionPlan
from riverlock.coordinator.region import RegionCoordinator
from riverlock.coordinator.restart import NoRestart
from riverlock.coordinator.votes import Vote
from riverlock.core.clock import ManualClock
from riverlock.driver.intake.admission import Admission
from riverlock.driver.intake.planner import Planner, planned_event
from riverlock.driver.intake.region_cuts import RegionCuts
from riverlock.driver.snapshots.cut_keeper import CutKeeper
from riverlock.snapshot.catalog import Catalog
from riverlock.snapshot.format.cut_log import CutLog
from riverlock.snapshot.format.records import CHANNEL, REGIONS_FEATURE
from riverlock.snapshot.format.store_layout import RegionPaths

if TYPE_CHECKING:
    from collections.abc import Callable

    from riverlock.connectors.base.source_reader import Reader
    from riverlock.snapshot.format.records import Manifest

# As often as regions and the keeper look (driver/region_loop, driver/cut_keeper).
LOOK_US = 100_000
SECOND_US = 1_000_000
# What an epoch takes beside its rows, and how many rows a second a region handles.
FIXED_US, ROWS_PER_SECOND = 150_000, 100_000
# Rows per second of each source, and the most rows of an epoch.
SOURCE_ROWS, EPOCH_ROWS = 20_000, 10_000
TASKS = 4


@dataclass(frozen=True)
class Skew:
    """How uneven regions are.

    Attributes:
        name: For people.
        factor: How many times longer one region in the middle takes for a row.
    """

    name: str
    factor: float


SKEWS = (Skew("all alike", 1), Skew("one region 10 times slower", 10))
# None: no snapshot is taken.
PROTOCOLS = (None, "aligned", "unaligned", "drain", "epochs")


def layered(regions: int, channels: int, layers: int = 5, seed: int = 14) -> Topology:
    """Return regions in layers, each reading all of the layer before.

    Channels that are left over skip a layer.
    """
    chance, width = random.Random(seed), regions // layers
    names = [[f"r{layer}-{n}" for n in range(width)] for layer in range(layers)]
    pairs = [(a, b) for above, below in pairwise(names) for a in above for b in below]
    skips = [
        (a, b)
        for above, below in zip(names, names[2:], strict=False)
        for a in above
        for b in below
    ]
    pairs += chance.sample(skips, max(0, min(len(skips), channels - len(pairs))))
    return Topology(
        regions=tuple(name for layer in names for name in layer),
        channels=tuple(
            Channel(name=f"{a}-to-{b}", writer=a, reader=b)
            for a, b in sorted(pairs[:channels])
        ),
    )


class Steady:
    """A source that has so many rows a second."""

    gives_positions = can_read_ahead = is_repeatable = True

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock

    def initial(self) -> Any:
        return 0

    def latest(self, start: Any) -> Any:
        return self._clock.now_us() * SOURCE_ROWS // SECOND_US

    def advance(self, start: Any, latest: Any, max_rows: int) -> Any:
        return min(latest, start + max_rows)

    def has_ended(self, start: Any, latest: Any) -> bool:
        return False

    def rows_between(self, start: Any, end: Any) -> int:
        return int(end - start)

    def read(self, start: Any, end: Any) -> Any:
        raise NotImplementedError

    def observed(self, rows: int) -> dict[str, float]:
        return {}

    def close(self) -> None:
        pass


@dataclass
class Region:
    """One region: its coordinator and its planner."""

    name: str
    coordinator: RegionCoordinator
    planner: Planner
    outs: tuple[str, ...]
    factor: float = 1.0
    rows: int = 0
    parent: Manifest | None = None


@dataclass
class World:
    """All regions, and what is to happen when."""

    topology: Topology
    skew: Skew
    storage: CountedStorage = field(default_factory=CountedStorage)
    clock: ManualClock = field(default_factory=ManualClock)
    polls: int = 0
    task_puts: int = 0
    epochs: int = 0
    manifest_bytes: list[int] = field(default_factory=list)
    read: Counter[str] = field(default_factory=Counter)
    _due: list[tuple[int, int, Callable[[], None]]] = field(default_factory=list)
    _number: int = 0

    def __post_init__(self) -> None:
        """Make the store and the regions."""
        Catalog(self.storage).open_flow(
            "m", key_groups=128, now_us=0, features=(REGIONS_FEATURE,)
        )
        self.log = CutLog(self.storage)
        self.keeper = CutKeeper(self.storage, self.topology, self.clock)
        middle = self.topology.regions[len(self.topology.regions) // 2]
        self.regions = {
            name: self._region(name, self.skew.factor if name == middle else 1.0)
            for name in self.topology.regions
        }
        for region in self.regions.values():
            orders = region.coordinator.handle(
                ev.Recovered(region=region.name, newest=None)
            )
            self._carry_out(region, orders)
        self._at(LOOK_US, self._keep)

    def _region(self, name: str, factor: float) -> Region:
        inputs = self.topology.inputs(name)
        outs = tuple(c.name for c in self.topology.channels if c.writer == name)
        readers: dict[str, Reader] = {
            c.name: ChannelReader(
                ChannelSource(name=c.name, writer=c.writer), c.name, self.storage
            )
            for c in inputs
        }
        if not inputs:
            readers = {"source": Steady(self.clock)}
        plans = {uid: ChannelPlan() for uid in outs}
        planner = Planner(
            readers=readers,
            clock=self.clock,
            admission=Admission(target_us=None, max_rows=EPOCH_ROWS),
            operators={},
            sources={},
            stops_at_end=False,
            channels=plans,
            cuts=RegionCuts(name, self.log, readers),
        )
        plan = RegionPlan(
            store="memory:",
            flow="m",
            region=name,
            run=1,
            token=f"token-{name}",
            key_groups=128,
            parallelism=TASKS,
            code="c0de",
            stages=("write",),
            restart=NoRestart(),
            sinks=dict.fromkeys(outs, CHANNEL),
            channels=plans,
        )
        return Region(name, RegionCoordinator(plan), planner, outs, factor)

    def _at(self, delay_us: int, what: Callable[[], None]) -> None:
        self._number += 1
        heapq.heappush(self._due, (self.clock.now_us() + delay_us, self._number, what))

    def until(self, is_over: Callable[[], bool], most_us: int) -> None:
        """Let time pass until something holds."""
        limit = self.clock.now_us() + most_us
        while not is_over() and self._due[0][0] <= limit:
            at, _, what = heapq.heappop(self._due)
            self.clock.set_us(at)
            what()
        if not is_over():
            self.clock.set_us(limit)

    def _keep(self) -> None:
        self.keeper.look()
        self._at(LOOK_US, self._keep)

    def _carry_out(self, region: Region, orders: tuple[do.Instruction, ...]) -> None:
        for order in orders:
            match order:
                case do.PlanInputs():
                    self._plan(region, order.turn)
                case do.RunStage():
                    self._run_stage(region, order)
                case do.PutManifest():
                    self._put(region, order)
                case do.CommitSink():
                    self._carry_out(
                        region,
                        region.coordinator.handle(
                            ev.SinkCommitted(
                                region=region.name, sink=order.sink, epoch=order.epoch
                            )
                        ),
                    )
                case _:
                    pass

    def _plan(self, region: Region, turn: int) -> None:
        self.polls += 1
        planned = region.planner.plan(region.parent)
        if planned is None:
            self._at(LOOK_US, lambda: self._plan(region, turn))
            return
        event = planned_event(region.name, turn, planned)
        self._carry_out(region, region.coordinator.handle(event))

    def _run_stage(self, region: Region, order: do.RunStage) -> None:
        rows = sum(r.rows or 0 for r in order.planned.inputs.values())
        took = FIXED_US + round(rows * region.factor * SECOND_US / ROWS_PER_SECOND)
        voted = ev.StageVoted(
            region=region.name,
            turn=order.turn,
            stage=order.stage,
            votes=self._votes(region, order.epoch, rows),
        )
        region.rows = rows
        self._at(
            took, lambda: self._carry_out(region, region.coordinator.handle(voted))
        )

    def _votes(self, region: Region, epoch: int, rows: int) -> tuple[Vote, ...]:
        """Pass all rows on: each channel gets its share."""
        share = rows // (len(region.outs) * TASKS) if region.outs else 0
        return tuple(
            Vote(
                partition=task,
                attempt=f"a{epoch}-{task}",
                outputs={
                    out: (self._token(region.name, out, epoch, task, share),)
                    for out in region.outs
                    if share
                },
                output_rows=dict.fromkeys(region.outs, share),
                rows=rows // TASKS,
            )
            for task in range(TASKS)
        )

    def _token(
        self, region: str, out: str, epoch: int, task: int, rows: int
    ) -> dict[str, Any]:
        """Return what names a file of a channel, which is there, and empty."""
        attempt = f"000001-write-{task:05d}-0123456789ab"
        path = RegionPaths(region).channel_file(out, epoch, attempt)
        self.storage.place(path)
        self.task_puts += 1
        return {"path": path, "rows": rows, "bytes": rows * 20, "checksum": "0" * 32}

    def _put(self, region: Region, order: do.PutManifest) -> None:
        catalog = Catalog(self.storage, region.name)
        assert catalog.decide(order.manifest)
        entry = self.storage.head(catalog.paths.manifest(order.epoch))
        assert entry is not None
        self.manifest_bytes.append(entry.size)
        self.epochs += 1
        self.read[region.name] += region.rows
        region.parent = order.manifest
        orders = region.coordinator.handle(
            ev.ManifestPut(
                region=region.name,
                turn=order.turn,
                created=True,
                decided_us=self.clock.now_us(),
            )
        )
        self._carry_out(region, orders)

    @property
    def source_rows(self) -> int:
        """How many rows sources have given."""
        return sum(
            rows for name, rows in self.read.items() if not self.topology.inputs(name)
        )


def snapshot(
    topology: Topology,
    skew: Skew,
    protocol: str | None,
    *,
    before: int = 10,
    most: int = 900,
) -> dict[str, Any]:
    """Run for some seconds, take a snapshot, and return what it took; None: take none.

    Args:
        topology: The regions.
        skew: How uneven they are.
        protocol: Of the snapshot.
        before: Seconds that pass before it is asked for.
        most: Seconds after which it is given up.
    """
    world = World(topology, skew)
    world.until(lambda: False, before * SECOND_US)
    world.storage.take()
    begun, polls, epochs = world.source_rows, world.polls, world.epochs
    staged = world.task_puts
    at = world.clock.now_us()
    if protocol is None:
        world.until(lambda: False, before * SECOND_US)
        named = None
    else:
        proposal = world.log.propose(
            "v", protocol=protocol, asked_us=at, timeout_us=most * SECOND_US, note=""
        )
        world.until(lambda: world.log.is_settled(proposal), most * SECOND_US)
        named = world.log.taken(proposal)
        assert named is not None, world.log.given_up(proposal)
    seconds = (world.clock.now_us() - at) / SECOND_US
    counted = world.storage.take()
    return {
        "skew": skew.name,
        "protocol": protocol or "none",
        "seconds": None if named is None else seconds,
        "source rows per second": (world.source_rows - begun) / seconds,
        "rows in flight": 0 if named is None else sum(s.rows for s in named.in_flight),
        "plans per second": (world.polls - polls) / seconds,
        "epochs per second": (world.epochs - epochs) / seconds,
        "gets per second": counted["gets"] / seconds,
        "bytes read per second": counted["gets bytes"] / seconds,
        "puts per second": counted["puts"] / seconds,
        "task puts per second": (world.task_puts - staged) / seconds,
        "listings per second": counted["listings"] / seconds,
        "manifest bytes": max(world.manifest_bytes),
    }
