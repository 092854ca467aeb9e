"""With which epoch a parameter or a range changes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tests.unit.coordinator.builders import (
    REGION,
    VARIABLES,
    make_manifest,
    make_plan,
)

from riverlock.coordinator import (
    AbortReason,
    Asked,
    PlanInputs,
    Restarted,
    StageFailed,
)
from riverlock.snapshot.format.records import (
    Change,
    Manifest,
    OperatorState,
    Parameter,
)

if TYPE_CHECKING:
    from riverlock.coordinator import RegionPlan
from tests.unit.coordinator.steps import both, planned, planning, publish, run_epoch


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
