"""The region loop: carries out the coordinator's instructions, one after the other.

Everything that decides anything is in ``coordinator``; everything that touches the
world is here. Broad handlers stand at this boundary only: whatever a step raises
becomes an event, and the coordinator says what follows.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, assert_never

import msgspec

from riverlock.coordinator import events as ev
from riverlock.coordinator import instructions as do
from riverlock.coordinator.region import RegionCoordinator
from riverlock.coordinator.restart import patient_delay_us
from riverlock.core import faults
from riverlock.core.errors import (
    FencedError,
    RiverlockError,
    SinkUnavailableError,
    SourceUnavailableError,
    StorageError,
    StoreChangedError,
)
from riverlock.driver.intake.pauses import pauses
from riverlock.driver.intake.planner import planned_event
from riverlock.driver.status.epoch_report import Report
from riverlock.driver.status.status_board import Board
from riverlock.driver.steps.decision import decided
from riverlock.driver.steps.failures import (
    as_ours,
    is_retryable,
    plan_failed,
    stage_failed,
)
from riverlock.driver.steps.sink_commits import committed
from riverlock.snapshot.claims import describe
from riverlock.snapshot.format.records import Change, Rescale
from riverlock.snapshot.format.run_status import Status, input_rows
from riverlock.snapshot.format.stored_parameters import misfits

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from riverlock.connectors.base.committer import Committer
    from riverlock.coordinator.epoch import PlannedInputs
    from riverlock.coordinator.plan import RegionPlan
    from riverlock.core.clock import Clock
    from riverlock.driver.cleaner import Cleaner
    from riverlock.driver.engine import StageRunner
    from riverlock.driver.intake.autoscale import Autoscale
    from riverlock.driver.intake.planner import Planner
    from riverlock.driver.ownership import Heartbeat
    from riverlock.driver.starting.sink_wait import Openings
    from riverlock.snapshot.catalog import Catalog
    from riverlock.snapshot.format.records import InputRange, Manifest, Request

__all__ = ["RegionDriver"]

log = logging.getLogger(__name__)
_NAP_US = 500_000
_FAILED = (ev.PlanFailed, ev.StageFailed, ev.SinkFailed)


@dataclass
class RegionDriver:
    """Drives one region from its claim to its end."""

    plan: RegionPlan
    catalog: Catalog
    engine: StageRunner
    planner: Planner
    committers: Mapping[str, Committer]
    heartbeat: Heartbeat
    cleaner: Cleaner
    clock: Clock
    on_status: Callable[[Status], object] = lambda _: None
    max_epochs: int | None = None
    autoscale: Autoscale | None = None
    # Sinks that did not answer when the run began.
    openings: Openings | None = None
    # Shows a snapshot of earlier code as this code sees it.
    adopt: Callable[[Manifest], Manifest] = lambda manifest: manifest
    # Sees to output of an epoch for sinks as they were; returns those it is not for.
    settle: Callable[[Manifest], frozenset[str]] = lambda _: frozenset()
    # Asked when a step has failed: why none can go well any more, if so.
    lost: Callable[[], RiverlockError | None] = lambda: None
    _stop: threading.Event = field(default_factory=threading.Event)
    _stop_sent: bool = False
    _requests: queue.SimpleQueue[ev.RescaleRequested | ev.Asked] = field(
        default_factory=queue.SimpleQueue
    )
    # The last request that changes parameters: an epoch is due until one has it.
    _asked: int = 0
    _progress: threading.Condition = field(default_factory=threading.Condition)
    _epochs: int = 0
    _ended: bool = False
    _error: RiverlockError | None = None
    _parent: Manifest | None = None
    # When the epoch in progress was planned, by a clock that does not jump.
    _began_us: int = 0
    # The source that an epoch was aborted for, and which has not answered since.
    _awaited: str | None = None

    def __post_init__(self) -> None:
        """Show nothing yet."""
        self._board = Board(self.plan, self.catalog, self.clock, self.on_status)
        self._report = Report(self.plan.name, self.planner, self.clock)

    @property
    def status(self) -> Status:
        """What was shown last; before that, what is known of the run."""
        return self._board.status(self._parent)

    @property
    def epochs(self) -> int:
        """How many epochs it has decided."""
        return self._epochs

    def stop(self) -> None:
        """Finish the epoch in progress, then end; callable from anywhere."""
        self._stop.set()

    def rescale(self, parallelism: int) -> None:
        """Set the tasks per keyed stage from the next epoch; callable from anywhere."""
        tasks = max(1, min(parallelism, self.plan.key_groups))
        self._requests.put(
            ev.RescaleRequested(region=self.plan.region, parallelism=tasks)
        )

    def ask(self, request: Request) -> None:
        """Take up a request of the store in the next epoch; callable from anywhere.

        Stopping is up to the caller.
        """
        what = request.what
        if isinstance(what, Rescale) and what.run == self.plan.run:
            self.rescale(what.parallelism)
        change = what if isinstance(what, Change) else None
        self._requests.put(
            ev.Asked(region=self.plan.region, number=request.number, change=change)
        )

    def wait_for(self, request: int) -> bool:
        """Wait until an epoch has taken up a request; False: the run ended before."""
        with self._progress:
            self._progress.wait_for(lambda: self._ended or self._has_taken(request))
        return self._has_taken(request)

    def _has_taken(self, request: int) -> bool:
        return self._parent is not None and self._parent.requests >= request

    def run(self) -> None:
        """Run until the input ends, a stop is asked for, or an error ends it.

        Raises:
            RiverlockError: What ended the run.
        """
        try:
            if self._await_sinks():
                self.heartbeat.is_well = False
                self._loop(RegionCoordinator(self.plan))
        finally:
            self._tell_progress(has_ended=True)
        if self._error is not None:
            raise self._error

    def _loop(self, coordinator: RegionCoordinator) -> None:
        pending: deque[do.Instruction] = deque(coordinator.handle(self._recovered()))
        while not self._ended:
            for event in self._from_outside():
                pending.extend(coordinator.handle(event))
            if not pending:
                message = "the coordinator has nothing to do and has not stopped"
                raise AssertionError(message)
            event_or_none = self._carry_out(pending.popleft())
            if isinstance(event_or_none, _FAILED) and (lost := self.lost()):
                self._end(lost)
            elif event_or_none is not None:
                pending.extend(coordinator.handle(event_or_none))

    def _tell_progress(self, *, has_ended: bool = False) -> None:
        with self._progress:
            self._ended |= has_ended
            self._progress.notify_all()

    def _await_sinks(self) -> bool:
        """Wait until all sinks are open; False if the run has ended before."""
        tries = 0
        try:
            while self.openings and (away := self.openings.attempt()):
                tries += 1
                delay_us = patient_delay_us(self.plan.restart, tries)
                if delay_us is None:
                    raise away[1]
                with suppress(RiverlockError):
                    self._parent = self.catalog.newest()
                self._board.await_sink(*away, self._parent)
                self._sleep(delay_us)
                if (fenced := self._fenced()) is not None:
                    store, run = self.plan.store, self.plan.run
                    raise FencedError(store=store, run=run, owner=fenced.owner)
                if self._stop.is_set():
                    # What an earlier run has decided is left as it is.
                    self._end(None)
                    return False
        except RiverlockError as error:
            self._end(error)
            return False
        return True

    def _from_outside(self) -> list[ev.Event]:
        """Return what happened beside the loop since we last looked."""
        found: list[ev.Event] = []
        while not self.cleaner.results.empty():
            found.append(self.cleaner.results.get())
        while not self._requests.empty():
            event = self._requests.get()
            if isinstance(event, ev.Asked) and event.change is not None:
                for what in misfits(self.plan.parameters, event.change):
                    log.warning("the code has no parameter for %s; passed over", what)
                self._asked = event.number
            found.append(event)
        if self._stop.is_set() and not self._stop_sent:
            self._stop_sent = True
            found.append(ev.StopRequested(region=self.plan.region))
        return found

    def _carry_out(  # noqa: C901 - one arm per instruction
        self, order: do.Instruction
    ) -> ev.Event | None:
        match order:
            case do.PlanInputs():
                return self._plan(order)
            case do.RunStage():
                return self._run_stage(order)
            case do.PutManifest():
                return self._put(order)
            case do.CommitSink():
                return self._commit(order)
            case do.RetrySink():
                self._sleep(order.delay_us)
                return self._commit(order)
            case do.GiveUpSink():
                self._report.gave_up(order)
            case do.PublishStatus():
                return self._publish(order.epoch)
            case do.CleanUp():
                if self._parent is not None and self._fenced() is None:
                    self.cleaner.offer(self._parent)
            case do.AbortEpoch():
                self._board.tell_abort(order.epoch, order.cause, self._parent)
            case do.Wait():
                return self._wait(order.turn)
            case do.RestartAfter():
                return self._back_off(order.delay_us)
            case do.Reread():
                return self._reread()
            case do.Stop():
                self._end(order.error)
            case _:
                assert_never(order)
        return None

    def _recovered(self) -> ev.Recovered:
        faults.hit("R1")
        newest, settled = self.catalog.newest(), frozenset[str]()
        if newest is not None:
            # Seen is not durable: a crash may have come between link and sync.
            self.catalog.storage.make_durable(self.catalog.paths.manifest(newest.epoch))
            settled = self.settle(newest)
            newest = self.adopt(newest)
        self._parent = newest
        self._tell_progress()
        faults.hit("R3")
        return ev.Recovered(region=self.plan.region, newest=newest, settled=settled)

    def _reread(self) -> ev.Event:
        fenced = self._fenced()
        if fenced is not None:
            return fenced
        try:
            return self._recovered()
        except RiverlockError as error:
            return ev.RereadFailed(
                region=self.plan.region, cause=str(error), retryable=is_retryable(error)
            )

    def _fenced(self) -> ev.Fenced | None:
        try:
            owner = self.heartbeat.check()
        except StorageError as error:
            # Looking is a courtesy, the put of the manifest is the fence: what is to
            # be done next meets the same trouble, or goes well.
            log.warning("could not look for a newer run: %s", error)
            return None
        if owner is None:
            return None
        return ev.Fenced(region=self.plan.region, owner=describe(owner))

    def _plan(self, order: do.PlanInputs) -> ev.Event:
        if order.parent is not None and self._epochs == 0:
            faults.hit("R4")
        fenced = self._fenced()
        if fenced is not None:
            return fenced
        if self.max_epochs is not None and self._epochs >= self.max_epochs:
            return ev.StopRequested(region=self.plan.region)
        self.planner.skipping.is_due |= order.skips
        try:
            planned = self._again(order.retry_of) or self._next(order.parent)
        except Exception as error:  # noqa: BLE001 - readers run user code and drivers
            return self._plan_failed(order.turn, error)
        self._board.show_plan(self.planner.holds, self._parent)
        if planned is None:
            return self._nothing(order.turn)
        if order.retry_of is None:
            self._began_us = self.clock.elapsed_us()
        faults.hit("P1")
        return planned_event(self.plan.region, order.turn, planned)

    def _again(self, planned: PlannedInputs | None) -> PlannedInputs | None:
        """Return the plan of an aborted epoch, once a source that was away answers."""
        if planned is not None and self.planner.must_go_back(self._parent):
            return None
        if planned is not None and self._awaited is not None:
            self.planner.reach(self._awaited, planned)
        self._awaited = None
        return planned

    def _next(self, parent: Manifest | None) -> PlannedInputs | None:
        is_asked = self._asked > (0 if parent is None else parent.requests)
        return self.planner.plan(parent, is_asked=is_asked)

    def _plan_failed(self, turn: int, cause: Exception) -> ev.PlanFailed:
        error = as_ours(cause, where="planning the epoch", epoch=None)
        self._look_for_outage(error)
        return plan_failed(self.plan.region, turn, error)

    def _look_for_outage(self, error: RiverlockError) -> None:
        if isinstance(error, SourceUnavailableError):
            self._awaited = error.source
            self._board.await_source(error, self._parent)
        if isinstance(error, SinkUnavailableError):
            self._board.await_delivery(error, self._parent)

    def _nothing(self, turn: int) -> ev.Event:
        if self.planner.is_at_end:
            return ev.StopRequested(region=self.plan.region)
        return ev.NothingToDo(region=self.plan.region, turn=turn)

    def _wait(self, turn: int) -> ev.Event | None:
        """Poll for input or a due timer; a stop or a fence ends the wait."""
        naps = pauses()
        while not self._stop.wait(next(naps)):
            if not self._requests.empty():
                # The next epoch is to know of it.
                return ev.NothingToDo(region=self.plan.region, turn=turn)
            fenced = self._fenced()
            if fenced is not None:
                return fenced
            try:
                planned = self._next(self._parent)
            except Exception as error:  # noqa: BLE001 - as in _plan
                return self._plan_failed(turn, error)
            self._board.show_plan(self.planner.holds, self._parent)
            if planned is not None:
                self._began_us = self.clock.elapsed_us()
                faults.hit("P1")
                return planned_event(self.plan.region, turn, planned)
            if self.planner.is_at_end:
                break
        self._stop_sent = True
        return ev.StopRequested(region=self.plan.region)

    def _run_stage(self, order: do.RunStage) -> ev.Event:
        try:
            votes = self.engine.run_stage(order, self._parent, self._following(order))
        except Exception as cause:  # noqa: BLE001 - transform() and readers run here
            fenced = self._fenced()
            if fenced is not None:
                return fenced
            where = f"stage {order.stage!r}"
            error = as_ours(cause, where=where, epoch=order.epoch)
            self._look_for_outage(error)
            return stage_failed(order, error)
        return ev.StageVoted(
            region=self.plan.region, turn=order.turn, stage=order.stage, votes=votes
        )

    def _following(self, order: do.RunStage) -> Mapping[str, InputRange] | None:
        """Return what the next epoch reads, once this one has nothing else to run."""
        is_last = self.max_epochs is not None and self._epochs + 1 >= self.max_epochs
        if order.stage != self.plan.stages[-1] or is_last or self._stop.is_set():
            return None
        try:
            return self.planner.ahead(order.planned)
        except Exception as error:  # noqa: BLE001 - as in _plan, which will tell
            log.debug("nothing to read ahead: %s", error)
            return None

    def _put(self, order: do.PutManifest) -> ev.Event | None:
        faults.hit("P6")
        decided_us = order.manifest.started_us + self._took_us()
        manifest = msgspec.structs.replace(order.manifest, decided_us=decided_us)
        try:
            found = decided(self.catalog, self.heartbeat, order, manifest)
        except StoreChangedError as error:
            self._end(error)
            return None
        if not isinstance(found, ev.ManifestPut):
            return found
        if found.created:
            self._parent = manifest
            self._epochs += 1
            self._tell_progress()
        faults.hit("P8")
        return found

    def _commit(self, order: do.CommitSink | do.RetrySink) -> ev.Event:
        fenced = self._fenced()
        if fenced is not None:
            return fenced  # the epoch is decided: the other run completes it
        found = committed(self.committers[order.sink], order)
        match found:
            case ev.Fenced():
                # By a run of another copy of this store, perhaps: ours would not tell.
                return self._fenced() or found
            case ev.SinkFailed(outcome=ev.CommitOutcome.REJECTED):
                # A sink that a newer run writes by now refuses this one, and rightly.
                return self._fenced() or found
            case ev.SinkFailed():
                cause = found.cause
                self._board.await_commit(order.sink, order.epoch, cause, self._parent)
            case _:
                faults.hit("P9")
        return found

    def _publish(self, epoch: int) -> ev.Event | None:
        faults.hit("P10")
        fenced = self._fenced()
        if fenced is not None:
            return fenced  # we slept; the status belongs to the other run now
        assert self._parent is not None
        manifest, took_us = self._parent, self._took_us()
        if self.autoscale is not None and self._epochs:
            lag = sum(n or 0 for n in self.planner.lag_rows.values())
            wanted = self.autoscale.wanted(
                manifest.parallelism,
                rows=input_rows(manifest),
                lag_rows=lag,
                took_us=took_us,
            )
            if wanted != manifest.parallelism:
                log.info("parallelism %s -> %s", manifest.parallelism, wanted)
                self.rescale(wanted)
        # Of what an earlier run has decided nothing is learnt.
        is_ours = self._epochs > 0
        status = self._report.after(manifest, took_us if is_ours else None)
        self._board.show(msgspec.structs.replace(status, committed=epoch))
        faults.hit("P11")
        return None

    def _took_us(self) -> int:
        """Return how long the epoch has taken so far, whatever the clock does."""
        return self.clock.elapsed_us() - self._began_us

    def _back_off(self, delay_us: int) -> ev.Event:
        self._sleep(delay_us)
        fenced = self._fenced()
        if fenced is not None:
            return fenced
        if self._stop.is_set():
            self._stop_sent = True
            return ev.StopRequested(region=self.plan.region)
        return ev.Restarted(region=self.plan.region)

    def _sleep(self, delay_us: int) -> None:
        """Wait; a stop or a newer run ends it."""
        for _ in range(-(-delay_us // _NAP_US)):
            nap_us = min(delay_us, _NAP_US)
            if self._stop.wait(nap_us / 1_000_000) or self._fenced() is not None:
                return

    def _end(self, error: RiverlockError | None) -> None:
        self._ended, self._error = True, error
        self.heartbeat.is_well |= error is None
        if self._fenced() is not None:
            return  # the status belongs to the other run now
        state = "stopped" if error is None else "failed"
        told = None if error is None else str(error)
        self._board.show_state(state, told, self._parent)
