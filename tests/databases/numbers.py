"""A flow of numbers with two sinks of one database, driven without Spark.

Driver, coordinator, store and sinks are the real ones. Only the engine is our own: it
runs two tasks in this thread, whose rows follow from the numbers they read, so that
anybody can say what the tables must hold.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

import riverlock as rl
from riverlock.coordinator.instructions import RunStage
from riverlock.coordinator.plan import RegionPlan
from riverlock.coordinator.restart import ExponentialDelay
from riverlock.coordinator.votes import Vote
from riverlock.core.clock import SystemClock
from riverlock.core.types import Schema, schema_of
from riverlock.runtime.admission import Admission
from riverlock.runtime.cleaner import Cleaner
from riverlock.runtime.driver import RegionDriver
from riverlock.runtime.ownership import Heartbeat
from riverlock.runtime.planner import Planner
from riverlock.runtime.task import Place, Staging, Targets
from riverlock.sinks.base import SinkUse, TwoPhaseSink
from riverlock.sinks.committer import Owner
from riverlock.sinks.stager import Stager
from riverlock.snapshot.catalog import MAIN_REGION, Catalog
from riverlock.snapshot.claims import claim
from riverlock.snapshot.records import InputRange, Manifest
from riverlock.snapshot.retention import Retention
from riverlock.snapshot.status import Status
from riverlock.storage import LocalStorage

KEYS = 7
TASKS = 2
EPOCH_ROWS = 20
SCHEMAS = {
    "numbers": schema_of("n bigint, name string, epoch int"),
    "totals": schema_of("k int, total bigint, epoch int"),
}


def totals(end: int) -> dict[int, int]:
    """Return the sum of each key's numbers below ``end``."""
    return {k: sum(range(k, end, KEYS)) for k in range(min(KEYS, end))}


@dataclass
class Counter:
    """A source of all numbers below a limit."""

    limit: int
    gives_positions = False
    can_read_ahead = False

    def initial(self) -> int:
        return 0

    def latest(self, start: int) -> int:
        return self.limit

    def advance(self, start: int, latest: int, max_rows: int) -> int:
        return min(latest, start + max_rows)

    def has_ended(self, start: int, latest: int) -> bool:
        return False

    def rows_between(self, start: int, end: int) -> int:
        return end - start

    def read(self, start: int, end: int) -> range:
        return range(start, end)

    def observed(self, rows: int) -> dict[str, float]:
        return {}

    def close(self) -> None:
        """Nothing is open."""


@dataclass
class TwoTasks:
    """Stages the rows of an epoch as two tasks would."""

    place: Place
    stagers: Mapping[str, Stager]

    def run_stage(
        self,
        order: RunStage,
        parent: Manifest | None,
        following: Mapping[str, InputRange] | None,
    ) -> tuple[Vote, ...]:
        span = order.planned.inputs["in"]
        return tuple(
            self._task(order.epoch, task, range(span.start, span.end))
            for task in range(TASKS)
        )

    def _task(self, epoch: int, task: int, numbers: range) -> Vote:
        attempt = self.place.attempt(task)
        staging = Staging(self.place.point(epoch, attempt))
        mine = [n for n in numbers if n % KEYS % TASKS == task]
        sums = totals(numbers.stop)
        # The last one of a key counts: those before are wrong.
        rows: dict[str, list[Any]] = {
            "numbers": [(n, f"number {n}", epoch) for n in mine],
            "totals": [(n % KEYS, -1, epoch) for n in mine]
            + [(k, sums[k], epoch) for k in sorted({n % KEYS for n in mine})],
        }
        for name, stager in self.stagers.items():
            table = _table(rows[name], SCHEMAS[name])
            staging.output(name, table, Targets(sinks={name: stager}))
        return Vote(
            partition=task,
            attempt=attempt,
            outputs=staging.outputs,
            output_rows=staging.rows,
            rows=len(mine),
        )


def _table(rows: list[Any], schema: Schema) -> pa.Table:
    columns = [list(c) for c in zip(*rows, strict=True)] or [[] for _ in schema.names]
    return pa.table(columns, schema=schema.to_arrow())


def sinks_of(url: str, schema: str | None = None) -> dict[str, TwoPhaseSink]:
    """Return the sinks: one that adds, one that replaces by key."""
    before = "" if schema is None else f"{schema}."
    return {
        "numbers": rl.sinks.sql(url, table=f"{before}numbers", create=True),
        "totals": rl.sinks.sql(
            url, table=f"{before}totals", mode="upsert", key="k", create=True
        ),
    }


def run(
    store: Path,
    sinks: Mapping[str, TwoPhaseSink],
    *,
    limit: int,
    on_status: Callable[[Status], None] = lambda _: None,
) -> None:
    """Run from where the store says until the numbers end."""
    clock, storage = SystemClock(), LocalStorage(store)
    catalog = Catalog(storage)
    flow = catalog.open_flow("numbers", key_groups=8, now_us=clock.now_us()).id
    owner = claim(catalog, now_us=clock.now_us())
    uses = {
        name: SinkUse(uid=name, schema=SCHEMAS[name], replaces=False) for name in sinks
    }
    stagers = {name: sink.stager(uses[name]) for name, sink in sinks.items()}
    committers = {n: sink.committer(uses[n], storage) for n, sink in sinks.items()}
    heartbeat = Heartbeat(catalog, owner, lambda: None)
    heartbeat.start()
    cleaner = Cleaner(catalog, Retention())
    try:
        for name, committer in committers.items():
            committer.open(Owner(flow=flow, sink=name, run=owner.run))
        place = Place(
            storage=storage,
            region=MAIN_REGION,
            stage="write",
            run=owner.run,
            token=owner.token,
            flow=flow,
        )
        RegionDriver(
            plan=RegionPlan(
                store=str(store),
                flow=flow,
                region=MAIN_REGION,
                run=owner.run,
                token=owner.token,
                key_groups=8,
                parallelism=TASKS,
                code="",
                stages=("write",),
                restart=ExponentialDelay(initial_us=20_000, max_us=200_000, attempts=5),
                sinks={name: sink.kind for name, sink in sinks.items()},
            ),
            catalog=catalog,
            engine=TwoTasks(place, stagers),
            planner=Planner(
                readers={"in": Counter(limit)},
                clock=clock,
                admission=Admission(target_us=None, max_rows=EPOCH_ROWS),
                operators={},
                sources={},
                stops_at_end=True,
            ),
            committers=committers,
            heartbeat=heartbeat,
            cleaner=cleaner,
            clock=clock,
            on_status=on_status,
        ).run()
    finally:
        cleaner.stop()
        heartbeat.stop()
