"""Copies a topic to another with the real driver, and without Spark: cheap to kill.

Run as ``python -m tests.chaos.kafka_copy PLAN SIGNAL`` it sends itself a signal when
the rows of its first epoch are in the log, and their transaction is open.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
from tests.chaos.bare import BareRun

import riverlock as rl
from riverlock.connectors.base.committer import Committer
from riverlock.connectors.base.stager import Stager
from riverlock.connectors.kafka.markers import Marker
from riverlock.connectors.kafka.producer import TransactionalProducer
from riverlock.connectors.kafka.ranges import RecordReader
from riverlock.connectors.kafka.reader import KafkaReader, _spans
from riverlock.coordinator.instructions import RunStage
from riverlock.coordinator.votes import Vote
from riverlock.core.types import schema_of
from riverlock.operators.shipped import MAIN
from riverlock.snapshot.format.records import InputRange, Manifest
from riverlock.snapshot.format.run_status import Status
from riverlock.worker.task import Place, StageTask, Targets, decode_outcome

SCHEMA = schema_of("key binary, value binary, partition int")


@dataclass(frozen=True, kw_only=True)
class Copy:
    """What to copy where."""

    servers: str
    source: str
    target: str
    store: str
    rows: int = 25
    attempts: int = 5
    options: Mapping[str, object] | None = None


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
            targets={MAIN: self.targets},
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


def run(
    plan: Copy,
    *,
    around: Callable[[Committer], Committer] = lambda committer: committer,
    on_status: Callable[[Status], None] = lambda _: None,
) -> None:
    """Copy records to the partitions that they came from, until all are there."""
    bare(plan, around=around, on_status=on_status).to_the_end()


def bare(
    plan: Copy,
    *,
    around: Callable[[Committer], Committer] = lambda committer: committer,
    on_status: Callable[[Status], None] = lambda _: None,
) -> BareRun:
    """Return the run that copies."""
    source = rl.sources.kafka(plan.servers, plan.source)
    reader = RecordReader(
        connection=source.connection,
        uid="in",
        isolation=source.isolation,
        allow_gap=False,
    )

    def engine(place: Place, stagers: Mapping[str, Stager]) -> CopyEngine:
        return CopyEngine(reader, place, Targets(sinks=dict(stagers)))

    sink = rl.sinks.kafka(
        plan.servers,
        plan.target,
        key="key",
        value="value",
        partition="partition",
        options=plan.options,
    )
    return BareRun(
        store=Path(plan.store),
        sinks={"out": sink},
        schemas={"out": SCHEMA},
        reader=KafkaReader(cast("Any", None), source, "in"),
        engine=engine,
        rows=plan.rows,
        attempts=plan.attempts,
        around={"out": around},
        on_status=on_status,
    )


def _interrupt(how: signal.Signals) -> None:
    commit = TransactionalProducer._commit

    def interrupted(self: TransactionalProducer, marker: Marker) -> None:
        if marker.epoch == 0:
            self._producer.flush()
            os.kill(os.getpid(), how)
        commit(self, marker)

    setattr(TransactionalProducer, "_commit", interrupted)  # noqa: B010


if __name__ == "__main__":
    _interrupt(signal.Signals[sys.argv[2]])
    run(Copy(**json.loads(sys.argv[1])))
