"""Short ways to say plans, votes and manifests in tests."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from riverlock.coordinator import (
    FixedDelay,
    OperatorPlan,
    OperatorVote,
    RegionPlan,
    Vote,
)
from riverlock.snapshot.format.records import (
    FORMAT,
    InputRange,
    Manifest,
    OperatorState,
    SinkOutput,
    StateFile,
    TimerHeads,
    Variable,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

REGION = "main"
VARIABLES = {"n": Variable(kind="value", type="bigint")}


def make_plan(**changes: Any) -> RegionPlan:
    plan = RegionPlan(
        store="store/",
        flow="flow-1",
        region=REGION,
        run=2,
        key_groups=8,
        parallelism=2,
        code="c0de",
        stages=("read", "count"),
        restart=FixedDelay(delay_us=10, attempts=2),
        operators={
            "count": OperatorPlan(stage="count", keys="k int", variables=VARIABLES)
        },
        sinks={"out": "files"},
        event_times={"at": 5},
    )
    return replace(plan, **changes)


def make_file(
    path: str, epoch: int, *, last: int | None = None, groups: tuple[int, int] = (0, 8)
) -> StateFile:
    return StateFile(
        path=path,
        first_epoch=epoch,
        last_epoch=epoch if last is None else last,
        first_group=groups[0],
        end_group=groups[1],
        rows=1,
        bytes=1,
        checksum="00",
    )


def make_manifest(
    epoch: int, *, run: int = 1, end: int = 0, **changes: Any
) -> Manifest:
    fields: dict[str, Any] = {
        "format": FORMAT,
        "flow": "flow-1",
        "region": REGION,
        "epoch": epoch,
        "parent": epoch - 1 if epoch else None,
        "run": run,
        "started_us": 0,
        "decided_us": 0,
        "now_us": 0,
        "seed": 0,
        "parallelism": 2,
        "key_groups": 8,
        "code": "c0de",
        "inputs": {"in": InputRange(start=0, end=end)},
        "operators": {"count": OperatorState(keys="k int", variables=VARIABLES)},
        "outputs": {"out": SinkOutput(kind="files")},
    }
    return Manifest(**{**fields, **changes})


def count_vote(
    partition: int,
    epoch: int,
    *,
    attempt: str = "a",
    parallelism: int = 2,
    timers: TimerHeads | None = None,
    delta: int = 1,
    max_times: Mapping[str, int | None] | None = None,
) -> Vote:
    """A task of the keyed stage that changed one file and staged one token."""
    width = 8 // parallelism
    name = f"{epoch}-{partition}{attempt}"
    file = make_file(name, epoch, groups=(partition * width, (partition + 1) * width))
    changed = OperatorVote(
        files=(file,), timers=timers or TimerHeads(), entries_delta=delta
    )
    return Vote(
        partition=partition,
        attempt=attempt,
        operators={"count": changed},
        outputs={"out": (name,)},
        output_rows={"out": 3},
        max_times=max_times or {},
        rows=2,
        metrics={"busy_us": 7},
    )


def read_vote(partition: int, *, attempt: str = "a") -> Vote:
    """A task of the stateless stage."""
    return Vote(partition=partition, attempt=attempt, rows=1)
