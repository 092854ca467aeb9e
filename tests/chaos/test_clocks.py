"""Clocks that jump, and inputs that stall (faults 47, 48), without Spark or sleeps."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import riverlock as rl
from riverlock.cli import text
from riverlock.coordinator import OperatorPlan, OperatorVote, RegionPlan, Vote
from riverlock.coordinator.restart import FixedDelay
from riverlock.coordinator.watermarks import operator_watermark
from riverlock.core.clock import ManualClock
from riverlock.core.times import duration_us, from_micros, micros
from riverlock.driver.cleaner import Cleaner
from riverlock.driver.intake.admission import Admission
from riverlock.driver.intake.planner import Planner
from riverlock.driver.ownership import Heartbeat
from riverlock.driver.region_loop import RegionDriver
from riverlock.program.graph import EventTime, Read
from riverlock.snapshot.catalog import Catalog
from riverlock.snapshot.claims import claim
from riverlock.snapshot.format.records import TimerHeads
from riverlock.snapshot.format.run_status import Status
from riverlock.snapshot.retention.policy import Retention
from riverlock.state.store import EVENT, PROCESSING
from riverlock.storage import LocalStorage
from riverlock.testing import harness
from riverlock.testing.harness import Harness

START = datetime(2026, 1, 1, 12, tzinfo=UTC)
HOUR = 3_600_000_000
INPUTS = ("a", "b")


class Alarm(rl.Process):
    """Says when records and timers come; each record sets one timer of each kind."""

    output = "what string, at timestamp, now timestamp"

    def on_event(self, record: Any, ctx: Any) -> Any:
        ctx.set_timer(ctx.time)
        ctx.set_timer(ctx.now + timedelta(minutes=30), processing=True)
        yield "record", ctx.time, ctx.now

    def on_timer(self, at: Any, ctx: Any) -> Any:
        yield "clock" if ctx.time is None else "event", at, ctx.now


@dataclass
class Rows:
    """A source of event times, each a row."""

    times: list[int] = field(default_factory=list)
    gives_positions = False
    can_read_ahead = False
    is_repeatable = True

    def initial(self) -> Any:
        return 0

    def latest(self, start: Any) -> Any:
        return len(self.times)

    def advance(self, start: Any, latest: Any, max_rows: int) -> Any:
        return min(latest, start + max_rows)

    def has_ended(self, start: Any, latest: Any) -> bool:
        return False

    def rows_between(self, start: Any, end: Any) -> int:
        return int(end - start)

    def read(self, start: Any, end: Any) -> Any:
        return self.times[start:end]

    def observed(self, rows: int) -> dict[str, float]:
        return {}

    def close(self) -> None:
        pass


@dataclass
class OneThread:
    """Runs the only stage in a harness; the clock may jump meanwhile."""

    sources: dict[str, Rows]
    clock: ManualClock
    operator: Harness
    jump_us: int = 0

    def run_stage(self, order: Any, parent: Any, following: Any) -> tuple[Vote, ...]:
        planned, h = order.planned, self.operator
        h.clock.set_us(planned.now_us)
        mark = operator_watermark(INPUTS, planned.watermarks)
        if mark is not None:
            h.watermark = from_micros(mark)
        seen = {
            uid: self.sources[uid].read(span.start, span.end)
            for uid, span in planned.inputs.items()
        }
        with h.epoch():
            for times in seen.values():
                h.send(*(("k", from_micros(t)) for t in times))
        self.clock.advance("2 seconds")  # the epoch took so long
        self.clock.set_us(self.clock.now_us() + self.jump_us)
        heads = {
            kind: next((t for t, _, _ in h._store.due_timers(kind, 1 << 62)), None)
            for kind in (EVENT, PROCESSING)
        }
        timers = TimerHeads(event_us=heads[EVENT], processing_us=heads[PROCESSING])
        return (
            Vote(
                partition=0,
                attempt="a",
                operators={"op": OperatorVote(timers=timers)},
                max_times={uid: max(times) for uid, times in seen.items() if times},
            ),
        )


@dataclass
class World:
    """A flow over two inputs that is started again and again."""

    store: LocalStorage
    idle: str | None = None
    clock: ManualClock = field(default_factory=lambda: ManualClock(micros(START)))
    sources: dict[str, Rows] = field(
        default_factory=lambda: {uid: Rows() for uid in INPUTS}
    )
    operator: Harness = field(
        default_factory=lambda: harness(
            Alarm(), key="k", input="k string, at timestamp", event_time="at"
        )
    )
    statuses: list[Status] = field(default_factory=list)

    def send(self, uid: str, *minutes: float) -> None:
        self.sources[uid].times += [micros(at(m)) for m in minutes]

    def run(self, jump_us: int = 0) -> list[tuple[str, float]]:
        """Start, take what is there, stop; returns what came of it."""
        catalog = Catalog(self.store)
        self.operator.clear_output()
        owner = claim(catalog, now_us=self.clock.now_us())
        heartbeat = Heartbeat(catalog, owner, lambda: None)
        cleaner = Cleaner(catalog, Retention())
        driver = RegionDriver(
            plan=self._plan(owner.run),
            catalog=catalog,
            engine=OneThread(self.sources, self.clock, self.operator, jump_us),
            planner=self._planner(),
            committers={},
            heartbeat=heartbeat,
            cleaner=cleaner,
            clock=self.clock,
            on_status=self.statuses.append,
        )
        heartbeat.start()
        try:
            driver.run()
        finally:
            cleaner.stop()
            heartbeat.stop()
        return [(what, minutes(time)) for what, time, _ in self.operator.output]

    def _plan(self, run: int) -> RegionPlan:
        operator = OperatorPlan(stage="op", keys="k string", event_times=INPUTS)
        return RegionPlan(
            store="store/",
            flow="f",
            region="main",
            run=run,
            key_groups=128,
            parallelism=1,
            code="",
            stages=("op",),
            restart=FixedDelay(delay_us=0, attempts=0),
            operators={"op": operator},
            event_times=dict.fromkeys(INPUTS, 0),
        )

    def _planner(self) -> Planner:
        idle_us = None if self.idle is None else duration_us(self.idle)
        node: Any = Read(uid="in", source=rl.sources.rate(1))
        declared = tuple(
            EventTime(uid=u, input=node, column="at", delay_us=0, idle_us=idle_us)
            for u in INPUTS
        )
        return Planner(
            readers=dict(self.sources),
            clock=self.clock,
            admission=Admission(target_us=None, max_rows=100),
            operators={"op": declared},
            sources={uid: (uid,) for uid in INPUTS},
            stops_at_end=True,
        )


def at(after: float) -> datetime:
    return START + timedelta(minutes=after)


def minutes(time: datetime) -> float:
    return (time - START) / timedelta(minutes=1)


def events(rows: list[tuple[str, float]]) -> list[float]:
    """Return the event timers that fired."""
    return [time for what, time in rows if what == "event"]


@pytest.fixture
def world(store: LocalStorage) -> World:
    return World(store)


@pytest.mark.parametrize("jump_us", [-HOUR, HOUR])
def test_a_clock_that_jumps_moves_neither_event_time_nor_durations(
    world: World, jump_us: int
) -> None:
    steady = World(LocalStorage(world.store.root / "steady"))
    found = {}
    for name, each, by in (("jumps", world, jump_us), ("steady", steady, 0)):
        each.send("a", 1, 2)
        each.send("b", 2, 3)
        rows = each.run(jump_us=by)
        each.send("a", 5)
        each.send("b", 4)
        rows += each.run(jump_us=by)
        found[name] = [row for row in rows if row[0] != "clock"]
        catalog = Catalog(each.store)
        manifests = [catalog.manifest(e) for e in catalog.epochs()]
        now = [m.now_us for m in manifests]
        assert now == sorted(now)
        assert {m.decided_us - m.started_us for m in manifests} == {2_000_000}
        assert {s.epoch_seconds for s in each.statuses if s.epoch_seconds} == {2.0}
    # The watermark reached 4, right before the slower input's newest record.
    assert found["jumps"] == found["steady"]
    assert events(found["jumps"]) == [1, 2, 3]


@pytest.fixture
def zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    def change(name: str) -> None:
        monkeypatch.setenv("TZ", name)
        time.tzset()

    yield change
    monkeypatch.undo()
    time.tzset()


def test_a_change_of_the_time_zone_moves_nothing(
    world: World, zone: Callable[[str], None]
) -> None:
    steady = World(LocalStorage(world.store.root / "steady"))
    found, times = [], []
    for each, zones in (
        (world, ("Asia/Tokyo", "America/New_York", "Asia/Kolkata")),
        (steady, ("UTC", "UTC", "UTC")),
    ):
        rows = []
        for n, name in enumerate(zones):
            zone(name)
            each.send("a", n + 1)
            each.send("b", n + 2)
            rows += each.run()
        catalog = Catalog(each.store)
        manifests = [catalog.manifest(e) for e in catalog.epochs()]
        found.append(rows)
        times.append([(m.now_us, m.watermarks) for m in manifests])

    assert found[0] == found[1]
    assert times[0] == times[1]
    assert events(found[0]) == [1, 2]


def test_timers_that_were_due_while_the_flow_was_down_fire_once(world: World) -> None:
    world.send("a", 1)
    assert world.run() == [("record", 1)]
    assert world.run() == []

    world.clock.set_us(world.clock.now_us() + 24 * HOUR)
    assert world.run() == [("clock", 30)]
    # And not again, also if the clock is put back before they were due.
    world.clock.set_us(micros(START) - HOUR)
    assert world.run() == []
    world.clock.set_us(micros(START) + HOUR)
    assert world.run() == []


def test_processing_time_stands_still_until_a_clock_that_was_ahead_is_reached(
    world: World,
) -> None:
    world.clock.set_us(micros(START) + HOUR)
    world.send("a", 1)
    world.run()
    world.clock.set_us(micros(START))
    world.send("a", 2)

    world.run()

    ((_, _, now),) = [row for row in world.operator.output if row[0] == "record"]
    assert now == START + timedelta(hours=1)


def test_a_stalled_input_holds_time_back_until_it_is_idle(world: World) -> None:
    world.idle = "10 minutes"
    world.send("a", 1, 2)
    world.send("b", 3)
    assert events(world.run()) == [1]
    world.send("a", 9)

    assert events(world.run()) == [2]
    by_uid = {i.uid: i for i in world.statuses[-2].inputs}
    assert by_uid["b"].holds_back
    assert by_uid["b"].idle_since_us is None

    world.clock.advance("9 minutes")
    world.send("a", 10)
    world.run()
    world.clock.advance("2 minutes")

    # b is left behind: time is that of a, whose newest instant may come again.
    assert events(world.run()) == [3, 9]
    by_uid = {i.uid: i for i in world.statuses[-2].inputs}
    assert by_uid["b"].idle_since_us is not None
    assert not by_uid["b"].holds_back
    policy = "at its newest record; not waited for after 10 min of silence"
    assert text.policy(by_uid["b"]) == policy
    # When b wakes up, time does not turn back.
    world.send("b", 5, 12)
    assert world.run() == [("record", 5), ("record", 12), ("event", 5)]


def test_without_a_policy_a_stalled_input_holds_time_back_for_ever(
    world: World,
) -> None:
    world.send("a", 1, 2)
    world.send("b", 1.5)
    assert events(world.run()) == [1]
    world.clock.advance("7 days")
    world.send("a", 60)

    assert events(world.run()) == []
    (stalled,) = [i for i in world.statuses[-2].inputs if i.holds_back]
    assert stalled.uid == "b"
    assert text.policy(stalled).endswith("waited for, however long it is silent")
