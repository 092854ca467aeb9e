"""A flow of numbers, whose output anybody can compute, for any sink.

Two tasks run in this thread. ``numbers`` are rows that are added, ``totals`` rows that
take the place of those before with their key. Run as ``python -m tests.chaos.numbers
STORE URL SCHEMA LIMIT`` it writes tables of a database, or keys of Redis.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from tests.chaos.bare import BareRun

import riverlock as rl
from riverlock.connectors.base.committer import Committer
from riverlock.connectors.base.sink import TwoPhaseSink
from riverlock.connectors.base.stager import Stager
from riverlock.coordinator.instructions import RunStage
from riverlock.coordinator.votes import Vote
from riverlock.core.types import Schema, schema_of
from riverlock.snapshot.format.records import InputRange, Manifest
from riverlock.snapshot.format.run_status import Status
from riverlock.worker.task import Place, Staging, Targets

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
    is_repeatable = True

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
    """Return two tables of a database: one that grows, one that replaces by key."""
    before = f"{schema}." if schema else ""
    return {
        "numbers": rl.sinks.sql(url, table=f"{before}numbers", create=True),
        "totals": rl.sinks.sql(
            url, table=f"{before}totals", how="upsert", key="k", create=True
        ),
    }


def sinks_of_two(
    one: str, schema: str, other: str, other_schema: str
) -> dict[str, TwoPhaseSink]:
    """Return a table that grows, and in another database one that replaces by key."""
    return {
        "numbers": sinks_of(one, schema)["numbers"],
        "totals": sinks_of(other, other_schema)["totals"],
    }


def redis_sinks(url: str, prefix: str) -> dict[str, TwoPhaseSink]:
    """Return a stream and hashes of Redis."""
    return {
        "numbers": rl.sinks.redis(url, key=f"{prefix}:numbers", shape="stream"),
        "totals": rl.sinks.redis(url, key=f"{prefix}:total:{{k}}"),
    }


def kafka_sinks(servers: str, topic: str) -> dict[str, TwoPhaseSink]:
    """Return a topic."""
    return {"numbers": rl.sinks.kafka(servers, topic)}


def kafka_and_redis_sinks(
    servers: str, topic: str, url: str, prefix: str
) -> dict[str, TwoPhaseSink]:
    """Return a topic, and hashes of Redis."""
    return {
        **kafka_sinks(servers, topic),
        "totals": redis_sinks(url, prefix)["totals"],
    }


def delta_sinks(path: str) -> dict[str, TwoPhaseSink]:
    """Return a Delta table."""
    return {"numbers": rl.sinks.delta(path)}


def file_sinks(path: str) -> dict[str, TwoPhaseSink]:
    """Return files."""
    return {"numbers": rl.sinks.files(path, format="json")}


def run(
    store: Path | str,
    sinks: Mapping[str, TwoPhaseSink],
    *,
    limit: int,
    on_status: Callable[[Status], None] = lambda _: None,
    around: Mapping[str, Callable[[Committer], Committer]] | None = None,
) -> None:
    """Run from where the store says until the numbers end."""
    BareRun(
        store=store,
        sinks=sinks,
        schemas=SCHEMAS,
        reader=Counter(limit),
        engine=TwoTasks,
        rows=EPOCH_ROWS,
        tasks=TASKS,
        on_status=on_status,
        around=around or {},
    ).to_the_end()


if __name__ == "__main__":
    make = redis_sinks if sys.argv[2].startswith("unix") else sinks_of
    run(Path(sys.argv[1]), make(*sys.argv[2:4]), limit=int(sys.argv[4]))
