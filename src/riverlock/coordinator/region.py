"""The coordinator of one region: events in, instructions out.

It does no I/O, reads no clock and draws no random numbers, so that every order of
events can be tried. Its rule: before the put of the manifest an epoch may only be
aborted and redone from the same inputs; after it, only completed, by this run or the
next. Late and repeated answers are ignored; answers to questions never asked are bugs.

The module is long because the machine is one: its handlers stand in the order of the
life of an epoch, and what can be said without them is said elsewhere.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, TypeAlias, assert_never

import msgspec

from riverlock.coordinator import events as ev
from riverlock.coordinator import instructions as do
from riverlock.coordinator import orders
from riverlock.coordinator.beside import Beside
from riverlock.coordinator.delivery import is_given_up, settled_by_now
from riverlock.coordinator.epoch import (
    PendingEpoch,
    PlannedInputs,
    PublishedEpoch,
    epoch_after,
)
from riverlock.coordinator.invariants import (
    check_planned,
    check_recovered,
    check_state,
    require,
)
from riverlock.coordinator.parameters_in_force import planned_parameters
from riverlock.coordinator.phase import (
    TRANSITIONS,
    BackingOff,
    Committing,
    Deciding,
    Phase,
    Planning,
    Recovering,
    Running,
    State,
    Stopped,
)
from riverlock.coordinator.restart import delay_us, patient_delay_us
from riverlock.coordinator.sealing import passed_over, seal
from riverlock.coordinator.trouble import (
    aborted_error,
    error_if_stopped,
    put_error,
    sink_error,
)
from riverlock.coordinator.votes import find_fault, first_votes
from riverlock.core.errors import (
    CommitRejectedError,
    FencedError,
    InternalError,
    SinkUnavailableError,
    StorageError,
)
from riverlock.core.guarantees import AT_MOST_ONCE

if TYPE_CHECKING:
    from riverlock.coordinator.plan import RegionPlan
    from riverlock.core.errors import RiverlockError
    from riverlock.snapshot.format.records import Manifest
    from riverlock.snapshot.format.stored_parameters import Parameters

__all__ = ["RegionCoordinator"]

Orders: TypeAlias = tuple[do.Instruction, ...]


class RegionCoordinator:
    """Decides what a region does next; the shell does it.

    Feed every outcome to :meth:`handle`, in any order and as often as it arrives, and
    carry out what it returns. Begin with Recovered. Not thread-safe: one caller.
    """

    def __init__(self, plan: RegionPlan) -> None:
        self.plan = plan
        self._state: State = Recovering()
        self._parent: Manifest | None = None
        self._turn = 0
        self._failures = 0
        # How often an input's system did not answer, since one last did.
        self._waits = 0
        self._stopping = False
        # Whether the next plan is to go on with the newest input.
        self._skips = plan.begins_at_newest
        self._beside = Beside(plan.parallelism)

    @property
    def phase(self) -> Phase:
        """What the region is waiting for."""
        return self._state.phase

    @property
    def newest(self) -> Manifest | None:
        """The newest manifest this coordinator knows to exist."""
        return self._parent

    def handle(self, event: ev.Event) -> Orders:
        """Take note of an event and return what to do about it.

        Raises:
            InternalError: The event answers a question that was never asked.
        """
        require(
            holds=event.region == self.plan.region,
            what=f"region {self.plan.region!r} got an event of {event.region!r}",
        )
        if isinstance(self._state, Stopped):
            return ()
        match event:
            case ev.Recovered() | ev.RereadFailed():
                return self._on_store_read(event)
            case ev.Planned() | ev.NothingToDo() | ev.PlanFailed():
                return self._on_plan(event)
            case ev.StageVoted() | ev.StageFailed():
                return self._on_stage(event)
            case ev.ManifestPut() | ev.PutFailed():
                return self._on_put(event)
            case ev.SinkCommitted() | ev.SinkFailed():
                return self._on_sink(event)
            case ev.Compacted() | ev.RescaleRequested() | ev.Asked():
                self._beside.take(event)
                return ()
            case ev.Restarted() | ev.StopRequested() | ev.Fenced():
                return self._on_control(event)
            case _:
                assert_never(event)

    def validate(self) -> None:
        """Check the invariants of the present state.

        Raises:
            InternalError: One is broken.
        """
        check_state(self._state, self._parent, self.plan, turn=self._turn)

    # Recovery, and rereading after a lost race.

    def _on_store_read(self, event: ev.Recovered | ev.RereadFailed) -> Orders:
        state = self._state
        if not isinstance(state, Recovering):
            return ()
        match event:
            case ev.Recovered():
                return self._on_recovered(state, event)
            case ev.RereadFailed():
                return self._on_unread(state, event.cause, retryable=event.retryable)
            case _:
                assert_never(event)

    def _on_recovered(self, state: Recovering, event: ev.Recovered) -> Orders:
        lost, newest = state.lost, event.newest
        if lost is not None and (newest is None or newest.epoch < lost.epoch):
            # The put has met a manifest that the listing does not show yet.
            return self._on_unread(state, "the listing is stale", retryable=True)
        if newest is None:
            return self._plan_next(retry_of=None)
        check_recovered(newest, self.plan)
        if newest.run > self.plan.run:
            return self._on_fenced(f"run {newest.run}")
        self._parent = passed_over(newest, event.settled)
        # After our own put only its answer was lost.
        is_ours = lost is not None and newest.run == self.plan.run
        # Sinks may not have committed it: its run may have died just after the put.
        settled = settled_by_now(newest, event.settled, is_undelivered=is_ours)
        commit = self._commit(self._parent, settled=settled)
        if lost is None or is_ours:
            return commit
        cause = f"run {newest.run} was faster"
        return (orders.abort(lost, ev.AbortReason.RACE, cause), *commit)

    def _on_unread(self, state: Recovering, cause: str, *, retryable: bool) -> Orders:
        what = "the newest manifest"
        error = StorageError("read", what, cause, retryable=retryable)
        return self._back_off(state, error, retryable=retryable)

    # Planning.

    def _on_plan(self, event: ev.Planned | ev.NothingToDo | ev.PlanFailed) -> Orders:
        state = self._state
        if not isinstance(state, Planning) or not self._is_current(event.turn):
            return ()
        match event:
            case ev.Planned():
                check_planned(event, state, self._parent)
                self._waits = 0 if state.retry_of is None else self._waits
                return self._begin(event, state.retry_of)
            case ev.NothingToDo():
                require(
                    holds=state.retry_of is None,
                    what="an aborted epoch was not planned again",
                )
                self._waits = 0
                return (do.Wait(region=self.plan.region, turn=self._turn),)
            case ev.PlanFailed():
                error = aborted_error(event, epoch_after(self._parent))
                if event.reason is ev.AbortReason.AWAY:
                    return self._wait_for_input(state, error)
                return self._back_off(state, error, retryable=event.retryable)
            case _:
                assert_never(event)

    def _plan_next(self, *, retry_of: PlannedInputs | None) -> Orders:
        if self._stopping:
            return self._stop(None)
        self._turn += 1
        self._enter(Planning(retry_of=retry_of))
        plan = do.PlanInputs(
            region=self.plan.region,
            epoch=epoch_after(self._parent),
            turn=self._turn,
            parent=self._parent,
            retry_of=retry_of,
            skips=self._skips,
        )
        self._skips = False
        return (plan,)

    def _begin(self, event: ev.Planned, retry_of: PlannedInputs | None) -> Orders:
        requests, parameters = self._parameters(retry_of)
        planned = PlannedInputs(
            inputs=event.inputs,
            watermarks=event.watermarks,
            now_us=event.now_us,
            seed=event.seed,
            started_us=event.started_us,
            parameters=parameters,
            requests=requests,
            markers=event.markers,
        )
        # All stages of an epoch have the same number of tasks, and so has its manifest.
        self.plan = dataclasses.replace(self.plan, parallelism=self._beside.parallelism)
        pending = PendingEpoch(
            region=self.plan.region,
            epoch=epoch_after(self._parent),
            turn=self._turn,
            planned=planned,
        )
        return self._run_next(pending)

    def _parameters(self, retry_of: PlannedInputs | None) -> tuple[int, Parameters]:
        """Return what the epoch sees, and up to which request; a redo sees the same."""
        if retry_of is not None:
            return retry_of.requests, retry_of.parameters
        before = 0 if self._parent is None else self._parent.requests
        last, changes = self._beside.requests_after(before)
        return last, planned_parameters(self._parent, self.plan, changes)

    # Running.

    def _run_next(self, pending: PendingEpoch) -> Orders:
        left = [s for s in self.plan.stages if s not in pending.votes]
        if not left:
            return self._decide(pending)
        self._enter(Running(pending=pending))
        return (orders.run_stage(pending, left[0], self.plan.parallelism),)

    def _on_stage(self, event: ev.StageVoted | ev.StageFailed) -> Orders:
        state = self._state
        if not isinstance(state, Running) or not self._is_current(event.turn):
            return ()
        pending = state.pending
        if event.stage in pending.votes:
            return ()
        expected = self.plan.stages[len(pending.votes)]
        require(
            holds=event.stage == expected,
            what=f"stage {event.stage!r} answered while {expected!r} was running",
        )
        match event:
            case ev.StageVoted():
                return self._on_votes(pending, event)
            case ev.StageFailed():
                error = aborted_error(event, epoch_after(self._parent))
                # Ranges that are no more could only fail again.
                self._skips = self.plan.guarantee == AT_MOST_ONCE
                is_gone = self._skips or event.reason is ev.AbortReason.CHANGED
                again = Planning(retry_of=None if is_gone else pending.planned)
                if event.reason is ev.AbortReason.AWAY:
                    then = self._wait_for_input(again, error)
                else:
                    then = self._back_off(again, error, retryable=event.retryable)
                return (orders.abort(pending, event.reason, event.cause), *then)
            case _:
                assert_never(event)

    def _on_votes(self, pending: PendingEpoch, event: ev.StageVoted) -> Orders:
        votes = first_votes(event.votes)
        fault = find_fault(
            votes, stage=event.stage, epoch=pending.epoch, plan=self.plan
        )
        if fault is None:
            return self._run_next(pending.with_votes(event.stage, votes))
        what = f"epoch {pending.epoch}, stage {event.stage!r}: {fault}"
        return (
            orders.abort(pending, ev.AbortReason.VOTES, fault),
            *self._stop(InternalError(what)),
        )

    # Deciding: the put of the manifest is the commit point and the fence.

    def _decide(self, pending: PendingEpoch) -> Orders:
        pending = pending.with_compactions(self._beside.compactions)
        deciding = Deciding(sealed=seal(pending, self._parent, self.plan))
        self._enter(deciding)
        return (orders.put_manifest(deciding.sealed),)

    def _on_put(self, event: ev.ManifestPut | ev.PutFailed) -> Orders:
        # Situations: created; found, put by another run; found, put by ourselves while
        # the answer was lost; no answer, so that the manifest may exist or appear
        # later. The epoch is not aborted in the last two: only the store can tell.
        state = self._state
        if not isinstance(state, Deciding) or not self._is_current(event.turn):
            return ()
        match event:
            case ev.ManifestPut(created=True):
                return self._publish(state, event.decided_us)
            case ev.ManifestPut():
                self._enter(Recovering(lost=state.sealed))
                return (do.Reread(region=self.plan.region),)
            case ev.PutFailed():
                error = put_error(event, state.sealed.epoch)
                return self._back_off(state, error, retryable=event.retryable)
            case _:
                assert_never(event)

    def _publish(self, state: Deciding, decided_us: int) -> Orders:
        sealed = state.sealed
        self._parent = msgspec.structs.replace(sealed.manifest, decided_us=decided_us)
        self._beside.settle(sealed.compactions)
        return self._commit(self._parent)

    # Committing: what is decided is never aborted.

    def _commit(
        self, manifest: Manifest, *, settled: frozenset[str] = frozenset()
    ) -> Orders:
        known = self.plan.sinks
        sinks = [s for s in manifest.outputs if s in known and s not in settled]
        published = PublishedEpoch(
            region=self.plan.region, manifest=manifest, waiting=frozenset(sinks)
        )
        self._enter(Committing(published=published))
        if not sinks:
            return self._complete(manifest.epoch)
        return orders.commit_sinks(published)

    def _on_sink(self, event: ev.SinkCommitted | ev.SinkFailed) -> Orders:
        state = self._state
        if not isinstance(state, Committing):
            return ()
        published = state.published
        if not published.awaits(event.sink, event.epoch):
            return ()
        if isinstance(event, ev.SinkFailed):
            return self._on_sink_failed(published, event)
        return self._on_sink_done(published, event.sink)

    def _on_sink_done(self, published: PublishedEpoch, sink: str) -> Orders:
        published = published.with_committed(sink)
        self._enter(Committing(published=published))
        return () if published.waiting else self._complete(published.manifest.epoch)

    def _complete(self, epoch: int) -> Orders:
        self._failures = self._waits = 0
        return (
            do.PublishStatus(region=self.plan.region, epoch=epoch),
            do.CleanUp(region=self.plan.region, epoch=epoch),
            *self._plan_next(retry_of=None),
        )

    def _on_sink_failed(
        self, published: PublishedEpoch, event: ev.SinkFailed
    ) -> Orders:
        error = sink_error(event)
        if is_given_up(published.manifest, error):
            note = orders.give_up_sink(published, event.sink)
            return (note, *self._on_sink_done(published, event.sink))
        published = published.with_trouble(event.sink, error)
        self._enter(Committing(published=published))
        # An outage ends, whenever that is; other trouble may be there for good.
        is_away = isinstance(error, SinkUnavailableError)
        wait_us = patient_delay_us if is_away else delay_us
        delay = wait_us(self.plan.restart, published.tries[event.sink])
        if delay is None or self._stopping or isinstance(error, CommitRejectedError):
            return self._stop(error)
        return (orders.retry_sink(published, event.sink, delay),)

    # Backing off and stopping.

    def _on_control(self, event: ev.Restarted | ev.StopRequested | ev.Fenced) -> Orders:
        if isinstance(event, ev.Fenced):
            return self._on_fenced(event.owner)
        if isinstance(event, ev.StopRequested):
            return self._on_stop_requested()
        return self._on_restarted()

    def _back_off(
        self,
        then: Recovering | Planning | Deciding,
        error: RiverlockError,
        *,
        retryable: bool,
    ) -> Orders:
        self._failures += 1
        delay = delay_us(self.plan.restart, self._failures) if retryable else None
        return self._restart(then, error, delay, attempt=self._failures)

    def _wait_for_input(self, then: Planning, error: RiverlockError) -> Orders:
        """Wait for what will answer again, whenever that is; no failure of an epoch."""
        self._waits += 1
        delay = patient_delay_us(self.plan.restart, self._waits)
        return self._restart(then, error, delay, attempt=self._waits)

    def _restart(
        self,
        then: Recovering | Planning | Deciding,
        error: RiverlockError,
        delay: int | None,
        *,
        attempt: int,
    ) -> Orders:
        if delay is None:
            return self._stop(error)
        state = BackingOff(then=then, error=error)
        if self._stopping:
            return self._stop(error_if_stopped(state))
        self._enter(state)
        again = do.RestartAfter(
            region=self.plan.region, delay_us=delay, attempt=attempt
        )
        return (again,)

    def _on_restarted(self) -> Orders:
        if not isinstance(self._state, BackingOff):
            return ()
        match self._state.then:
            case Planning(retry_of=retry_of):
                return self._plan_next(retry_of=retry_of)
            case Deciding() as deciding:
                self._enter(deciding)
                return (orders.put_manifest(deciding.sealed),)
            case Recovering() as recovering:
                self._enter(recovering)
                return (do.Reread(region=self.plan.region),)
            case _:
                assert_never(self._state.then)

    def _on_stop_requested(self) -> Orders:
        """Stop at once if nothing is in progress or all wait; else after this epoch."""
        self._stopping = True
        match self._state:
            case Planning():
                return self._stop(None)
            case BackingOff() as state:
                return self._stop(error_if_stopped(state))
            case Committing(published=published) if published.troubles:
                return self._stop(next(iter(published.troubles.values())))
            case Recovering() | Running() | Deciding() | Committing() | Stopped():
                return ()
            case _:
                assert_never(self._state)

    def _on_fenced(self, owner: str) -> Orders:
        aborted: Orders = ()
        if isinstance(self._state, Running):
            pending = self._state.pending
            aborted = (orders.abort(pending, ev.AbortReason.FENCED, owner),)
        error = FencedError(store=self.plan.store, run=self.plan.run, owner=owner)
        return (*aborted, *self._stop(error))

    def _stop(self, error: RiverlockError | None) -> Orders:
        self._enter(Stopped(error=error))
        return (do.Stop(region=self.plan.region, error=error),)

    def _enter(self, state: State) -> None:
        require(
            holds=state.phase in TRANSITIONS[self.phase],
            what=f"no way leads from {self.phase.name} to {state.phase.name}",
        )
        self._state = state

    def _is_current(self, turn: int) -> bool:
        require(
            holds=turn <= self._turn,
            what=f"an answer to turn {turn}, while turn {self._turn} is in progress",
        )
        return turn == self._turn
