"""Several drivers in one world under a seeded scheduler that is not their friend.

An order becomes an *effect* in flight. The scheduler picks what happens next: an effect
takes place, an answer arrives (in any order, perhaps twice), an answer is lost and the
driver told that it timed out while the effect is still on its way, a driver crashes,
freezes, wakes, or a new one starts beside it. Then faults end and all must come right.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import assert_never

from tests.unit.coordinator.world import Store, ViolationError, World, check_sinks

from riverlock.coordinator import (
    AbortEpoch,
    AbortReason,
    CleanUp,
    CommitOutcome,
    CommitSink,
    Compacted,
    Event,
    Fenced,
    GiveUpSink,
    Instruction,
    ManifestPut,
    NothingToDo,
    PlanFailed,
    PlanInputs,
    Planned,
    PlannedInputs,
    PublishStatus,
    PutFailed,
    PutManifest,
    Recovered,
    RegionCoordinator,
    Reread,
    RereadFailed,
    RestartAfter,
    Restarted,
    RetrySink,
    RunStage,
    SinkCommitted,
    SinkFailed,
    StageFailed,
    StageVoted,
    Stop,
    StopRequested,
    Wait,
)

__all__ = ["Driver", "Effect", "Simulation"]

REGION = "main"
# Errors that bad luck may end a run with; anything else is a bug.
HONEST = {"EPOCH_ABORTED", "STORAGE", "SINK", "COMMIT_UNKNOWN", "FENCED"}


@dataclass(eq=False)
class Effect:
    """Something on its way: what it does, and what is said if no answer comes."""

    driver: Driver
    perform: Callable[[], Event | None]
    timeout: Event | None
    # The driver has been told that there is no answer.
    is_mute: bool = False


@dataclass(eq=False)
class Driver:
    """One process: a coordinator, its mailbox, and whether it lives."""

    coordinator: RegionCoordinator
    mailbox: list[Event] = field(default_factory=list)
    is_alive: bool = True
    is_frozen: bool = False

    @property
    def run(self) -> int:
        return self.coordinator.plan.run


class Simulation:
    """One seed, played from start to end."""

    world_type: type[World] = World

    def __init__(
        self, seed: int, *, store: Store | None = None, is_validated: bool = True
    ) -> None:
        self.random = random.Random(seed)
        self.world = self.world_type(random=self.random, store=store or Store())
        self.drivers: list[Driver] = []
        self.effects: list[Effect] = []
        self.faults: Counter[str] = Counter()
        self.is_validated = is_validated
        self.is_calm = False

    def play(self, *, chaos: int = 200, calm: int = 1500) -> None:
        """Play with faults, then without, then compare with what was to be.

        Raises:
            ViolationError: A promise was broken.
        """
        for _ in range(chaos):
            self._stir()
        self.is_calm = True
        for driver in self.drivers:
            driver.is_frozen = False
        for _ in range(calm):
            if self.is_done() and not self.effects:
                break
            self._step()
        if not self.is_done():
            raise ViolationError("no progress after the last fault")
        self.check()

    def is_done(self) -> bool:
        """Tell whether nothing more can come."""
        return self.world.is_done()

    def check(self) -> None:
        """Compare sinks with what was to be."""
        check_sinks(self.world)

    # The scheduler.

    def _stir(self) -> None:
        """One step, perhaps with a fault before it."""
        roll = self.random.random()
        if roll < 0.06:
            source = self.random.choice(tuple(self.world.available))
            self.world.available[source] += self.random.randint(1, 5)
        elif roll < 0.14:
            self._harm(self.random.choice(self._living() or [None]))
        elif roll < 0.2:
            self._lose_answer()
        self._step()

    def _harm(self, driver: Driver | None) -> None:
        if driver is None:
            return
        kinds = ("crash", "freeze", "freeze", "wake", "wake", "rival", "stop")
        kind = self.random.choice(kinds)
        if kind == "rival" and len(self._living()) == 3:
            return
        self.faults[kind] += 1
        match kind:
            case "crash":
                self._crash(driver)
            case "freeze":
                driver.is_frozen = True
            case "wake":
                for frozen in self.drivers:
                    frozen.is_frozen = False
            case "rival":
                self._start()
            case _:
                driver.mailbox.append(StopRequested(region=REGION))

    def _crash(self, driver: Driver) -> None:
        """Kill it; some of what it has sent is lost, the rest arrives some day."""
        driver.is_alive = False
        self.effects = [
            e
            for e in self.effects
            if e.driver is not driver or self.random.random() < 0.6
        ]

    def _lose_answer(self) -> None:
        waiting = [e for e in self.effects if e.timeout and not e.is_mute]
        if not waiting:
            return
        effect = self.random.choice(waiting)
        assert effect.timeout is not None
        effect.driver.mailbox.append(effect.timeout)
        effect.is_mute = True
        fate = self.random.choice(("lost", "late", "unheard"))
        self.faults[fate] += 1
        if fate == "lost":
            self.effects.remove(effect)
        elif fate == "unheard":
            self._perform(effect)

    def _step(self) -> None:
        """Deliver an answer, or let an effect take place, or start a driver."""
        awake = [d for d in self._living() if not d.is_frozen]
        heard = [d for d in awake if d.mailbox]
        if not awake and (self.is_calm or self.random.random() < 0.3):
            self._start()
        elif heard and (not self.effects or self.random.random() < 0.6):
            self._deliver(self.random.choice(heard))
        elif self.effects:
            self._perform(self.random.choice(self.effects))

    def _living(self) -> list[Driver]:
        return [d for d in self.drivers if d.is_alive]

    def _start(self) -> None:
        driver = Driver(coordinator=self.make_coordinator())
        self.drivers.append(driver)
        newest = self.world.store.newest()
        driver.mailbox.append(Recovered(region=REGION, newest=newest))

    def make_coordinator(self) -> RegionCoordinator:
        """Return the coordinator of a new run; mutants return another one."""
        return RegionCoordinator(self.world.plan())

    def _deliver(self, driver: Driver) -> None:
        event = driver.mailbox.pop(self.random.randrange(len(driver.mailbox)))
        if not self.is_calm and self.random.random() < 0.08:
            self.faults["twice"] += 1
            driver.mailbox.append(event)
        event = self.on_event(driver, event)
        orders = driver.coordinator.handle(event)
        if self.is_validated:
            driver.coordinator.validate()
        for order in orders:
            # A crash may come between any two instructions.
            if not self.is_calm and self.random.random() < 0.01:
                self.faults["crash between orders"] += 1
                self._crash(driver)
                return
            self._send(driver, order, event)

    def on_event(self, driver: Driver, event: Event) -> Event:
        """Return the event as the driver hears it; mutants hear something else."""
        return event

    def _perform(self, effect: Effect) -> None:
        if effect in self.effects:
            self.effects.remove(effect)
        answer = effect.perform()
        if answer is not None and not effect.is_mute and effect.driver.is_alive:
            effect.driver.mailbox.append(answer)

    # The shell.

    def _send(  # noqa: C901 - one case for each kind
        self, driver: Driver, order: Instruction, cause: Event
    ) -> None:
        match order:
            case PlanInputs():
                self._plan(driver, order)
            case RunStage():
                self._run(driver, order)
            case PutManifest():
                self._put(driver, order)
            case CommitSink() | RetrySink():
                self.commit(driver, order, cause)
            case Reread():
                timeout = RereadFailed(region=REGION, cause="timeout", retryable=True)
                self._effect(driver, lambda: self._reread(driver), timeout)
            case RestartAfter():
                self._effect(driver, lambda: Restarted(region=REGION), None)
            case CleanUp():
                self._compact(driver)
            case Wait():
                self._effect(
                    driver, lambda: self._choose(driver, order.turn, None), None
                )
            case Stop():
                self._stop(driver, order)
            case PublishStatus() | AbortEpoch() | GiveUpSink():
                pass
            case _:
                assert_never(order)

    def _effect(
        self, driver: Driver, perform: Callable[[], Event | None], timeout: Event | None
    ) -> None:
        self.effects.append(Effect(driver=driver, perform=perform, timeout=timeout))

    def _plan(self, driver: Driver, order: PlanInputs) -> None:
        timeout = PlanFailed(
            region=REGION,
            turn=order.turn,
            reason=AbortReason.PLANNING,
            cause="timeout",
            retryable=True,
        )
        self._effect(
            driver, lambda: self._choose(driver, order.turn, order.retry_of), timeout
        )

    def _choose(
        self, driver: Driver, turn: int, retry_of: PlannedInputs | None
    ) -> Event:
        chosen = self.world.choose(driver.coordinator.newest)
        inputs = chosen if retry_of is None else dict(retry_of.inputs)
        if not inputs:
            return NothingToDo(region=REGION, turn=turn)
        return Planned(
            region=REGION,
            turn=turn,
            inputs=inputs,
            watermarks={},
            now_us=turn,
            seed=turn,
            started_us=turn,
        )

    def _run(self, driver: Driver, order: RunStage) -> None:
        timeout = StageFailed(
            region=REGION,
            turn=order.turn,
            stage=order.stage,
            reason=AbortReason.TASK,
            cause="timeout",
            retryable=True,
        )

        def perform() -> Event:
            votes = self.world.run_stage(order, driver.coordinator.plan)
            return StageVoted(
                region=REGION, turn=order.turn, stage=order.stage, votes=votes
            )

        self._effect(driver, perform, timeout)

    def _put(self, driver: Driver, order: PutManifest) -> None:
        timeout = PutFailed(
            region=REGION, turn=order.turn, cause="timeout", retryable=True
        )

        def perform() -> Event:
            created = self.world.put(order.manifest)
            return ManifestPut(
                region=REGION, turn=order.turn, created=created, decided_us=0
            )

        self._effect(driver, perform, timeout)

    def commit(
        self, driver: Driver, order: CommitSink | RetrySink, cause: Event
    ) -> None:
        """Send a commit on its way; mutants do not always."""
        timeout = SinkFailed(
            region=REGION,
            sink=order.sink,
            epoch=order.epoch,
            outcome=CommitOutcome.UNKNOWN,
            cause="timeout",
        )

        def perform() -> Event:
            tokens = order.output.tokens
            if self.world.commit(order.sink, order.epoch, driver.run, tokens):
                return SinkCommitted(region=REGION, sink=order.sink, epoch=order.epoch)
            return Fenced(region=REGION, owner="a newer run, says the sink")

        self._effect(driver, perform, timeout)

    def _reread(self, driver: Driver) -> Event:
        if self.world.store.claims > driver.run:
            return Fenced(region=REGION, owner=f"run {self.world.store.claims}")
        return Recovered(region=REGION, newest=self.world.store.newest())

    def _compact(self, driver: Driver) -> None:
        newest = driver.coordinator.newest
        assert newest is not None
        if self.random.random() < 0.5:
            return

        def perform() -> Event | None:
            merged = self.world.compact(newest)
            if merged is None:
                return None
            self.faults["compaction"] += 1
            return Compacted(
                region=REGION, operator="count", replaced=merged[0], by=(merged[1],)
            )

        self._effect(driver, perform, None)

    def _stop(self, driver: Driver, order: Stop) -> None:
        driver.is_alive = False
        code = "OK" if order.error is None else order.error.code
        self.faults[f"stopped: {code}"] += 1
        if order.error is not None and code not in HONEST:
            raise ViolationError(f"a run ended with {order.error}")
        late = driver.coordinator.handle(Restarted(region=REGION))
        if late:
            raise ViolationError(f"a stopped run still orders {late}")
