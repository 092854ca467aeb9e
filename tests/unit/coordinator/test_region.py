"""What transcripts cannot say: contents of manifests, and questions never asked."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from msgspec import structs
from tests.unit.coordinator.builders import (
    REGION,
    VARIABLES,
    count_vote,
    make_file,
    make_manifest,
    make_plan,
    read_vote,
)

from riverlock.coordinator import (
    AbortEpoch,
    AbortReason,
    Asked,
    CommitSink,
    Compacted,
    Instruction,
    ManifestPut,
    NothingToDo,
    Phase,
    PlanInputs,
    Planned,
    PutManifest,
    Recovered,
    RegionCoordinator,
    RescaleRequested,
    Restarted,
    RunStage,
    SinkCommitted,
    StageFailed,
    StageVoted,
    Stop,
    StopRequested,
    Vote,
)
from riverlock.coordinator.phase import TRANSITIONS
from riverlock.core.errors import InternalError, UserCodeError
from riverlock.snapshot.format.records import (
    Change,
    InputRange,
    Manifest,
    OperatorState,
    Parameter,
    SinkOutput,
    TimerHeads,
    Watermark,
)

if TYPE_CHECKING:
    from riverlock.coordinator import RegionPlan


def planned(start: int, end: int, turn: int, **changes: Any) -> Planned:
    event = Planned(
        region=REGION,
        turn=turn,
        inputs={"in": InputRange(start=start, end=end)},
        watermarks={},
        now_us=100,
        seed=1,
        started_us=90,
    )
    return replace(event, **changes)


def planning(
    newest: Manifest | None = None, plan: RegionPlan | None = None
) -> RegionCoordinator:
    """A coordinator that waits for its first plan."""
    coordinator = RegionCoordinator(plan or make_plan())
    orders = coordinator.handle(Recovered(region=REGION, newest=newest))
    for order in orders:
        if isinstance(order, CommitSink):
            done = SinkCommitted(region=REGION, sink=order.sink, epoch=order.epoch)
            coordinator.handle(done)
    assert coordinator.phase is Phase.PLANNING
    return coordinator


def run_epoch(
    coordinator: RegionCoordinator, event: Planned, votes: tuple[Vote, ...]
) -> Manifest:
    """Run both stages and return the manifest that is to be put."""
    coordinator.handle(event)
    read = StageVoted(
        region=REGION, turn=event.turn, stage="read", votes=(read_vote(0),)
    )
    coordinator.handle(read)
    count = StageVoted(region=REGION, turn=event.turn, stage="count", votes=votes)
    (put,) = coordinator.handle(count)
    coordinator.validate()
    assert isinstance(put, PutManifest)
    return put.manifest


def both(epoch: int, **changes: Any) -> tuple[Vote, ...]:
    return tuple(count_vote(p, epoch, **changes) for p in range(2))


def publish(coordinator: RegionCoordinator, turn: int) -> tuple[Instruction, ...]:
    put = ManifestPut(region=REGION, turn=turn, created=True, decided_us=500)
    orders = coordinator.handle(put)
    done = [o for o in orders if isinstance(o, CommitSink)]
    for order in done:
        event = SinkCommitted(region=REGION, sink=order.sink, epoch=order.epoch)
        orders = coordinator.handle(event)
    return orders


def test_manifest_tells_everything_about_its_epoch() -> None:
    coordinator = planning()
    votes = (
        count_vote(1, 0, timers=TimerHeads(event_us=7), max_times={"at": 40}),
        count_vote(0, 0, timers=TimerHeads(event_us=9, processing_us=3)),
    )

    manifest = run_epoch(coordinator, planned(0, 3, 1), votes)

    assert (manifest.epoch, manifest.parent, manifest.run) == (0, None, 2)
    assert (manifest.now_us, manifest.seed, manifest.started_us) == (100, 1, 90)
    assert (manifest.parallelism, manifest.key_groups, manifest.code) == (2, 8, "c0de")
    assert manifest.inputs == {"in": InputRange(start=0, end=3)}
    assert manifest.operators["count"] == OperatorState(
        keys="k int",
        variables=VARIABLES,
        files=(
            make_file("0-0a", 0, groups=(0, 4)),
            make_file("0-1a", 0, groups=(4, 8)),
        ),
        timers=TimerHeads(event_us=7, processing_us=3),
        entries=2,
    )
    assert manifest.outputs == {
        "out": SinkOutput(kind="files", tokens=("0-0a", "0-1a"), rows=6)
    }
    assert manifest.watermarks == {
        "at": Watermark(max_time_us=40, watermark_us=34, active_us=100)
    }
    assert manifest.metrics["stages"] == {
        "read": {"tasks": 1, "rows": 1},
        "count": {"tasks": 2, "rows": 4, "busy_us": 14},
    }


def test_published_manifest_keeps_the_time_of_its_decision() -> None:
    coordinator = planning()
    run_epoch(coordinator, planned(0, 3, 1), both(0))

    *_, plan = publish(coordinator, 1)

    assert isinstance(plan, PlanInputs)
    assert plan.parent is not None
    assert plan.parent.decided_us == 500
    assert coordinator.newest == plan.parent


def test_what_the_flow_no_longer_has_is_carried_on() -> None:
    old = OperatorState(
        keys="k int", variables={}, files=(make_file("x", 1),), entries=4
    )
    newest = make_manifest(
        1,
        inputs={"in": InputRange(start=0, end=5), "gone": InputRange(start=2, end=8)},
        operators={"gone": old},
        watermarks={"gone": Watermark(watermark_us=3)},
        outputs={"gone": SinkOutput(kind="files", tokens=("t",))},
    )
    coordinator = planning(newest)

    manifest = run_epoch(coordinator, planned(5, 6, 1), both(2))

    assert manifest.operators["gone"] == old
    assert manifest.inputs["gone"] == InputRange(start=8, end=8, rows=0)
    assert manifest.watermarks["gone"] == Watermark(watermark_us=3)
    assert set(manifest.outputs) == {"out"}


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


def limit_of(manifest: Manifest) -> tuple[Any, int | None, int]:
    found = manifest.operators["count"].parameters["limit"]
    return found.in_force, found.since, manifest.requests


def asked(number: int, limit: int | None) -> Asked:
    change = Change(defaults={"count": ("limit",)})
    if limit is not None:
        change = Change(values={"count": {"limit": limit}})
    return Asked(region=REGION, number=number, change=change)


def with_limit() -> RegionPlan:
    plan = make_plan()
    limit = Parameter(type="int", default=10)
    count = replace(plan.operators["count"], parameters={"limit": limit})
    return replace(plan, operators={"count": count})


def test_parameters_change_with_the_next_epoch_and_a_redo_keeps_its_own() -> None:
    coordinator = planning(plan=with_limit())
    coordinator.handle(asked(1, 20))
    coordinator.handle(planned(0, 3, 1))
    coordinator.handle(asked(2, 30))
    failed = StageFailed(
        region=REGION,
        turn=1,
        stage="read",
        reason=AbortReason.TASK,
        cause="lost",
        retryable=True,
    )
    coordinator.handle(failed)
    coordinator.handle(asked(3, 40))
    (plan,) = coordinator.handle(Restarted(region=REGION))

    assert isinstance(plan, PlanInputs)
    assert limit_of(run_epoch(coordinator, planned(0, 3, 2), both(0))) == (20, 0, 1)
    publish(coordinator, 2)
    assert limit_of(run_epoch(coordinator, planned(3, 6, 3), both(1))) == (40, 1, 3)
    publish(coordinator, 3)
    coordinator.handle(asked(3, 50))  # told twice
    coordinator.handle(asked(4, 40))  # what it is
    assert limit_of(run_epoch(coordinator, planned(6, 9, 4), both(2))) == (40, 1, 4)
    publish(coordinator, 4)
    coordinator.handle(asked(5, None))
    last = run_epoch(coordinator, planned(9, 9, 5), both(3))
    assert limit_of(last) == (10, None, 5)


def test_ranges_that_have_changed_are_chosen_anew() -> None:
    coordinator = planning()
    coordinator.handle(planned(0, 3, 1))
    failed = StageFailed(
        region=REGION,
        turn=1,
        stage="read",
        reason=AbortReason.CHANGED,
        cause="3 rows are 2 now",
        retryable=True,
    )
    coordinator.handle(failed)
    (plan,) = coordinator.handle(Restarted(region=REGION))

    assert isinstance(plan, PlanInputs)
    assert plan.retry_of is None
    run_epoch(coordinator, planned(0, 2, 2), both(0))
    publish(coordinator, 2)


def test_requests_that_an_epoch_has_taken_up_are_not_taken_up_again() -> None:
    set_before = Parameter(type="int", default=10, value=20, since=4)
    state = OperatorState(
        keys="k int", variables=VARIABLES, parameters={"limit": set_before}
    )
    newest = make_manifest(5, operators={"count": state}, requests=7)
    coordinator = planning(newest, with_limit())
    for number, limit in ((6, 60), (7, 70)):
        coordinator.handle(asked(number, limit))

    manifest = run_epoch(coordinator, planned(0, 3, 1), both(6))

    assert limit_of(manifest) == (20, 4, 7)


def test_requests_of_other_kinds_only_count() -> None:
    coordinator = planning(plan=with_limit())
    coordinator.handle(Asked(region=REGION, number=1, change=None))

    assert limit_of(run_epoch(coordinator, planned(0, 3, 1), both(0))) == (10, None, 1)


def test_watermark_never_goes_back_nor_behind_what_was_used() -> None:
    mark = Watermark(max_time_us=50, watermark_us=45, active_us=60)
    coordinator = planning(make_manifest(0, watermarks={"at": mark}))
    used = {"at": Watermark(max_time_us=50, watermark_us=48)}
    event = planned(0, 1, 1, watermarks=used)

    manifest = run_epoch(coordinator, event, both(1))

    assert manifest.watermarks["at"] == Watermark(
        max_time_us=50, watermark_us=48, active_us=60
    )


def test_compaction_takes_effect_in_the_next_manifest() -> None:
    coordinator = planning()
    run_epoch(coordinator, planned(0, 3, 1), both(0))
    publish(coordinator, 1)
    merged = make_file("merged", 0)
    event = Compacted(
        region=REGION, operator="count", replaced=("0-0a", "0-1a"), by=(merged,)
    )

    assert coordinator.handle(event) == ()
    assert coordinator.handle(event) == ()
    second = run_epoch(coordinator, planned(3, 4, 2), both(1))
    publish(coordinator, 2)
    third = run_epoch(coordinator, planned(4, 5, 3), both(2))

    names = [f.path for f in second.operators["count"].files]
    assert names == ["merged", "1-0a", "1-1a"]
    assert second.operators["count"].entries == 4
    assert third.operators["count"].files[:3] == second.operators["count"].files


def test_compaction_that_comes_while_deciding_waits_for_the_next_epoch() -> None:
    coordinator = planning()
    run_epoch(coordinator, planned(0, 3, 1), both(0))
    publish(coordinator, 1)
    run_epoch(coordinator, planned(3, 4, 2), both(1))
    event = Compacted(
        region=REGION,
        operator="count",
        replaced=("0-0a", "0-1a"),
        by=(make_file("merged", 0),),
    )
    coordinator.handle(event)
    publish(coordinator, 2)

    manifest = run_epoch(coordinator, planned(4, 5, 3), both(2))

    assert manifest.operators["count"].files[0].path == "merged"


@pytest.mark.parametrize("replaced", [("0-0a", "unknown"), ()])
def test_compaction_of_files_that_are_not_live_is_ignored(
    replaced: tuple[str, ...],
) -> None:
    coordinator = planning()
    run_epoch(coordinator, planned(0, 3, 1), both(0))
    publish(coordinator, 1)
    by = (make_file("merged", 0),)
    coordinator.handle(
        Compacted(region=REGION, operator="count", replaced=replaced, by=by)
    )

    manifest = run_epoch(coordinator, planned(3, 4, 2), both(1))

    names = [f.path for f in manifest.operators["count"].files]
    assert names == ["0-0a", "0-1a", "1-0a", "1-1a"]


def test_sink_that_the_flow_no_longer_has_is_not_committed_again() -> None:
    outputs = {"gone": SinkOutput(kind="files"), "out": SinkOutput(kind="files")}
    coordinator = RegionCoordinator(make_plan())
    newest = make_manifest(3, outputs=outputs)

    orders = coordinator.handle(Recovered(region=REGION, newest=newest))

    assert [o.sink for o in orders if isinstance(o, CommitSink)] == ["out"]


GIVEN = SinkOutput(kind="files", tokens=("t",), place="here", before=1)


@pytest.mark.parametrize(
    ("newest", "settled", "before"),
    [
        pytest.param(make_manifest(3, outputs={"out": GIVEN}), [], 3, id="rows"),
        pytest.param(
            make_manifest(3, outputs={"out": structs.replace(GIVEN, tokens=())}),
            [],
            1,
            id="none",
        ),
        pytest.param(
            make_manifest(3, outputs={"out": structs.replace(GIVEN, place="there")}),
            [],
            None,
            id="elsewhere",
        ),
        pytest.param(make_manifest(3, outputs={}), [], None, id="new"),
        pytest.param(
            make_manifest(3, parent=1, outputs={"out": GIVEN}), [], 1, id="restored"
        ),
        pytest.param(
            make_manifest(3, outputs={"out": GIVEN}), ["out"], 1, id="given-up"
        ),
    ],
)
def test_manifest_says_which_epoch_a_sink_was_given_last(
    newest: Manifest, settled: list[str], before: int | None
) -> None:
    coordinator = RegionCoordinator(make_plan(places={"out": "here"}))
    event = Recovered(region=REGION, newest=newest, settled=frozenset(settled))
    for order in coordinator.handle(event):
        if isinstance(order, CommitSink):
            coordinator.handle(
                SinkCommitted(region=REGION, sink=order.sink, epoch=order.epoch)
            )

    manifest = run_epoch(coordinator, planned(0, 3, 1), both(4))

    assert manifest.outputs["out"].before == before


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
