"""Copies a topic to another with the real driver, and without Spark: cheap to kill.

Planning, epochs, manifests, sinks and recovery are those of every run; only the engine
reads its ranges and stages rows in this process.
"""

from __future__ import annotations

import os
import random
import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import pyarrow as pa

import riverlock as rl
from riverlock.coordinator.instructions import RunStage
from riverlock.coordinator.plan import RegionPlan
from riverlock.coordinator.restart import ExponentialDelay
from riverlock.coordinator.votes import Vote
from riverlock.core import faults
from riverlock.core.clock import SystemClock
from riverlock.core.types import schema_of
from riverlock.kafka.producer import TransactionalProducer
from riverlock.kafka.records import RecordReader
from riverlock.runtime.admission import Admission
from riverlock.runtime.cleaner import Cleaner
from riverlock.runtime.driver import RegionDriver
from riverlock.runtime.ownership import Heartbeat
from riverlock.runtime.planner import Planner
from riverlock.runtime.task import Place, StageTask, Targets, decode_outcome
from riverlock.sinks.base import SinkUse
from riverlock.sinks.committer import Committer, Owner
from riverlock.sinks.kafka_sink import KafkaSink
from riverlock.snapshot.catalog import MAIN_REGION, Catalog
from riverlock.snapshot.claims import claim
from riverlock.snapshot.records import InputRange, Manifest
from riverlock.snapshot.retention import Retention
from riverlock.spark.readers.kafka import KafkaReader, _spans
from riverlock.storage.local import LocalStorage

SCHEMA = schema_of("key binary, value binary, partition int")
USE = SinkUse(uid="out", schema=SCHEMA, replaces=False)
# The fault points of the driver, and what the sink does, make the steps of a run.
_LONGEST_MS = 150


@dataclass(frozen=True, kw_only=True)
class Options:
    """What to copy, and when to die: after so many steps, or milliseconds."""

    servers: str
    source: str
    target: str
    store: str
    rows: int = 25
    steps: int | None = None
    after_ms: int | None = None
    attempts: int = 5


@dataclass(frozen=True)
class CopyEngine:
    """Reads ranges and stages their records, here."""

    reader: RecordReader
    place: Place
    targets: Targets

    def run_stage(
        self,
        order: RunStage,
        parent: Manifest | None,
        following: Mapping[str, InputRange] | None,
    ) -> tuple[Vote, ...]:
        span = order.planned.inputs["in"]
        task = StageTask(
            place=self.place,
            epoch=order.epoch,
            seed=order.planned.seed,
            targets=self.targets,
            schema=SCHEMA,
        )
        votes = []
        for number, each in enumerate(_spans(span.start, span.end)):
            batches = [b.select(list(SCHEMA.names)) for b in self.reader.read(each)]
            vote = decode_outcome(task(_clean(batches), number)).vote
            assert vote is not None
            votes.append(vote)
        return tuple(votes)


def _clean(batches: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return (b for b in batches if b.num_rows)


def copy(options: Options, committer: Committer | None = None) -> None:
    """Run until the input is used up."""
    with ExitStack() as stack:
        _driver(options, stack, committer).run()


def sink(options: Options) -> KafkaSink:
    """Return where records go: to the partitions that they came from."""
    return rl.sinks.kafka(
        options.servers, options.target, key="key", value="value", partition="partition"
    )


def _driver(
    options: Options, stack: ExitStack, committer: Committer | None
) -> RegionDriver:
    storage, clock = LocalStorage(Path(options.store)), SystemClock()
    catalog = Catalog(storage)
    source = rl.sources.kafka(options.servers, options.source)
    target = sink(options)
    record = catalog.open_flow("copy", key_groups=8, now_us=clock.now_us())
    owner = claim(catalog, now_us=clock.now_us())
    heartbeat = Heartbeat(catalog, owner, lambda: None)
    heartbeat.start()
    stack.callback(heartbeat.stop)
    cleaner = Cleaner(catalog, Retention(epochs=5))
    stack.callback(cleaner.stop)
    committer = committer or target.committer(USE, storage)
    committer.open(Owner(flow=record.id, sink="out", run=owner.run))
    reader = RecordReader(
        connection=source.connection,
        uid="in",
        isolation=source.isolation,
        allow_gap=False,
    )
    place = Place(
        storage=storage,
        region=MAIN_REGION,
        stage="out",
        run=owner.run,
        token=owner.token,
    )
    return RegionDriver(
        plan=RegionPlan(
            store=storage.uri,
            flow=record.id,
            region=MAIN_REGION,
            run=owner.run,
            token=owner.token,
            key_groups=8,
            parallelism=1,
            code="copy",
            stages=("out",),
            restart=ExponentialDelay(
                initial_us=50_000, max_us=1_000_000, attempts=options.attempts
            ),
            sinks={"out": target.kind},
        ),
        catalog=catalog,
        engine=CopyEngine(reader, place, Targets(sinks={"out": target.stager(USE)})),
        planner=Planner(
            readers={"in": KafkaReader(cast("Any", None), source, "in")},
            clock=clock,
            admission=Admission(target_us=None, max_rows=options.rows),
            operators={},
            sources={},
            stops_at_end=True,
        ),
        committers={"out": committer},
        heartbeat=heartbeat,
        cleaner=cleaner,
        clock=clock,
    )


def main(options: Options) -> None:
    """Copy in a process of its own, which may kill itself."""
    if options.steps is not None:
        _die_after(options.steps)
    if options.after_ms is not None:
        _die_in(options.after_ms)
    copy(options)


def with_death(options: Options, chance: random.Random) -> Options:
    """Choose when the process dies: half of them by step, half by the clock."""
    if chance.random() < 0.5:
        return replace(options, steps=chance.randrange(1, 30))
    return replace(options, after_ms=chance.randrange(_LONGEST_MS))


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _die_after(steps: int) -> None:
    left = [steps]

    def step(name: str) -> None:
        left[0] -= 1
        if left[0] <= 0:
            _die()

    commit = TransactionalProducer._commit

    def commit_between_steps(self: Any, marker: Any) -> None:
        step("rows are sent, not committed")
        commit(self, marker)
        step("committed, not known")

    cast("Any", faults).hit = step
    cast("Any", TransactionalProducer)._commit = commit_between_steps


def _die_in(after_ms: int) -> None:
    """Start the clock when the first epoch is planned."""

    def begin(name: str) -> None:
        if name == "P1" and not started:
            started.append(name)
            timer = threading.Timer(after_ms / 1000, _die)
            timer.daemon = True
            timer.start()

    started: list[str] = []
    cast("Any", faults).hit = begin
