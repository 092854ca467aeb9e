"""What transcripts cannot say: requests, stops, and questions never asked."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.coordinator.builders import (
    REGION,
    count_vote,
    make_manifest,
    make_plan,
    read_vote,
)

from riverlock.coordinator import (
    AbortEpoch,
    AbortReason,
    NothingToDo,
    Phase,
    PlanInputs,
    PutManifest,
    Recovered,
    RegionCoordinator,
    RescaleRequested,
    Restarted,
    RunStage,
    StageFailed,
    StageVoted,
    Stop,
    StopRequested,
    Vote,
)
from riverlock.coordinator.phase import TRANSITIONS
from riverlock.core.errors import InternalError, UserCodeError
from riverlock.snapshot.format.records import (
    InputRange,
)

if TYPE_CHECKING:
    pass
from tests.unit.coordinator.steps import both, planned, planning, publish, run_epoch


def test_another_parallelism_waits_for_the_next_epoch() -> None:
    coordinator = planning()
    coordinator.handle(planned(0, 3, 1))
    assert coordinator.handle(RescaleRequested(region=REGION, parallelism=4)) == ()
    read = StageVoted(region=REGION, turn=1, stage="read", votes=(read_vote(0),))
    (count,) = coordinator.handle(read)

    assert isinstance(count, RunStage)
    assert count.parallelism == 2
    voted = StageVoted(region=REGION, turn=1, stage="count", votes=both(0))
    (put,) = coordinator.handle(voted)
    assert isinstance(put, PutManifest)
    assert put.manifest.parallelism == 2
    publish(coordinator, 1)
    four = tuple(count_vote(p, 1, parallelism=4) for p in range(4))
    assert run_epoch(coordinator, planned(3, 6, 2), four).parallelism == 4


def test_region_without_sinks_goes_on_at_once() -> None:
    coordinator = RegionCoordinator(make_plan(sinks={}))
    newest = make_manifest(3, outputs={})

    orders = coordinator.handle(Recovered(region=REGION, newest=newest))

    assert isinstance(orders[-1], PlanInputs)


def test_stage_gets_the_votes_that_count_of_the_stages_before() -> None:
    coordinator = planning()
    coordinator.handle(planned(0, 3, 1))
    first, rival = read_vote(0), read_vote(0, attempt="b")
    votes = (first, rival)

    (order,) = coordinator.handle(
        StageVoted(region=REGION, turn=1, stage="read", votes=votes)
    )

    assert isinstance(order, RunStage)
    assert order.earlier == {"read": (first,)}


def test_stop_carries_the_error_of_the_shell() -> None:
    coordinator = planning()
    coordinator.handle(planned(0, 3, 1))
    error = UserCodeError(operator="count", where="on_event", cause="KeyError('a')")
    event = StageFailed(
        region=REGION,
        turn=1,
        stage="read",
        reason=AbortReason.USER_CODE,
        cause="KeyError",
        retryable=False,
        error=error,
    )

    abort, stop = coordinator.handle(event)

    assert isinstance(abort, AbortEpoch)
    assert abort.reason is AbortReason.USER_CODE
    assert stop == Stop(region=REGION, error=error)


def _foreign_operator(vote: Vote) -> Vote:
    return replace(vote, operators={**vote.operators, "other": vote.operators["count"]})


@pytest.mark.parametrize(
    "spoil",
    [
        lambda v: replace(v, outputs={"nowhere": ("t",)}),
        lambda v: replace(v, max_times={"never": 1}),
        lambda v: replace(v, operators={}),
        _foreign_operator,
        lambda v: count_vote(v.partition, 9),
        lambda v: replace(v, partition=5),
    ],
    ids=["sink", "time", "no operator", "operator", "epoch of file", "partition"],
)
def test_votes_that_do_not_fit_abort_the_epoch_for_good(spoil: Any) -> None:
    coordinator = planning()
    coordinator.handle(planned(0, 3, 1))
    coordinator.handle(StageVoted(region=REGION, turn=1, stage="read", votes=()))
    votes = (count_vote(0, 0), spoil(count_vote(1, 0)))

    abort, stop = coordinator.handle(
        StageVoted(region=REGION, turn=1, stage="count", votes=votes)
    )

    assert isinstance(abort, AbortEpoch)
    assert abort.reason is AbortReason.VOTES
    assert isinstance(stop, Stop)
    assert isinstance(stop.error, InternalError)


@pytest.mark.parametrize(
    "event",
    [
        planned(0, 3, 1, region="other"),
        planned(0, 3, 2),
        NothingToDo(region=REGION, turn=2),
        planned(4, 6, 1),
    ],
    ids=["region", "turn to come", "answer to come", "gap"],
)
def test_answer_to_a_question_never_asked_is_refused(event: Any) -> None:
    coordinator = planning(make_manifest(0, end=3))

    with pytest.raises(InternalError):
        coordinator.handle(event)

    assert coordinator.phase is Phase.PLANNING


def test_gap_is_taken_if_the_user_has_accepted_it() -> None:
    coordinator = planning(make_manifest(0, end=3))

    (order,) = coordinator.handle(planned(4, 6, 1, gaps=frozenset({"in"})))

    assert isinstance(order, RunStage)


def test_offset_that_was_read_back_is_the_same_offset() -> None:
    newest = make_manifest(
        0, inputs={"in": InputRange(start=None, end=[1, {"a": [2]}])}
    )
    coordinator = planning(newest)
    inputs = {"in": InputRange(start=(1, {"a": (2,)}), end=(3,))}

    (order,) = coordinator.handle(planned(0, 0, 1, inputs=inputs))

    assert isinstance(order, RunStage)


def test_stage_out_of_order_is_refused() -> None:
    coordinator = planning()
    coordinator.handle(planned(0, 3, 1))

    with pytest.raises(InternalError):
        coordinator.handle(
            StageVoted(region=REGION, turn=1, stage="count", votes=both(0))
        )


@pytest.mark.parametrize(
    "event",
    [planned(0, 2, 2), NothingToDo(region=REGION, turn=2)],
    ids=["other", "none"],
)
def test_redo_must_read_the_same_inputs(event: Any) -> None:
    coordinator = planning()
    coordinator.handle(planned(0, 3, 1))
    failed = StageFailed(
        region=REGION,
        turn=1,
        stage="read",
        reason=AbortReason.TASK,
        cause="died",
        retryable=True,
    )
    coordinator.handle(failed)
    coordinator.handle(Restarted(region=REGION))

    with pytest.raises(InternalError):
        coordinator.handle(event)


@pytest.mark.parametrize("field", ["flow", "region"])
def test_manifest_of_another_flow_is_refused(field: str) -> None:
    coordinator = RegionCoordinator(make_plan())
    changes: dict[str, Any] = {field: "other"}

    with pytest.raises(InternalError):
        coordinator.handle(Recovered(region=REGION, newest=make_manifest(0, **changes)))


@pytest.mark.parametrize(
    "changes",
    [
        {"stages": ()},
        {"stages": ("count", "count")},
        {"parallelism": 0},
        {"stages": ("read",)},
    ],
    ids=["no stage", "stage twice", "no task", "operator without stage"],
)
def test_plan_that_no_epoch_could_follow_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(InternalError):
        make_plan(**changes)


def test_every_phase_may_stop_and_nothing_leaves_stopped() -> None:
    assert set(TRANSITIONS) == set(Phase)
    assert not TRANSITIONS[Phase.STOPPED]
    for phase in set(Phase) - {Phase.STOPPED}:
        assert Phase.STOPPED in TRANSITIONS[phase]


def test_stopped_coordinator_is_silent() -> None:
    coordinator = planning()
    coordinator.handle(StopRequested(region=REGION))

    assert coordinator.handle(StopRequested(region=REGION)) == ()
    assert coordinator.handle(planned(0, 3, 1)) == ()
    coordinator.validate()


def test_coordinator_loads_neither_engine_nor_store() -> None:
    code = (
        "import sys, riverlock.coordinator\n"
        "heavy = {'pyspark', 'lmdb', 'pyarrow', 'pandas', 'numpy'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
    )

    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stderr
