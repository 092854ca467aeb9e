"""The steps of an epoch, as a shell would take them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tests.unit.coordinator.builders import (
    REGION,
    count_vote,
    make_plan,
    read_vote,
)

from riverlock.coordinator import (
    CommitSink,
    Instruction,
    ManifestPut,
    Phase,
    Planned,
    PutManifest,
    Recovered,
    RegionCoordinator,
    SinkCommitted,
    StageVoted,
    Vote,
)
from riverlock.snapshot.format.records import (
    InputRange,
    Manifest,
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
