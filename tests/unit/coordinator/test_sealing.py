"""What a manifest says of its epoch, and what it carries on from the one before."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from msgspec import structs
from tests.unit.coordinator.builders import (
    REGION,
    VARIABLES,
    count_vote,
    make_file,
    make_manifest,
    make_plan,
)

from riverlock.coordinator import (
    CommitSink,
    Compacted,
    PlanInputs,
    Recovered,
    RegionCoordinator,
    SinkCommitted,
)
from riverlock.snapshot.format.records import (
    InputRange,
    Manifest,
    OperatorState,
    SinkOutput,
    TimerHeads,
    Watermark,
)

if TYPE_CHECKING:
    pass
from tests.unit.coordinator.steps import both, planned, planning, publish, run_epoch


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
