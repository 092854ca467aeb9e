"""An engine for tests: Spark only analyses; tasks read and compute their shares here.

It does what long-lived tasks do with ``engines.tables.task_inputs``, one task after the
other in this thread. Whatever a task gets has been pickled.
"""

from __future__ import annotations

import dataclasses
import io
import pickle
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark import cloudpickle

from riverlock.connectors.base.source_reader import check_read
from riverlock.core.types import schema_of
from riverlock.driver import runner
from riverlock.driver.run_options import chosen
from riverlock.engines.jobs.compiled.analysis import CompiledAnalysis
from riverlock.engines.jobs.engine import JobsEngine
from riverlock.engines.jobs.frames.initial_state import initial_frame
from riverlock.engines.tables.nodes import Tables
from riverlock.engines.tables.reading import shares
from riverlock.engines.tables.rows import ArrowRows
from riverlock.engines.tables.task_inputs import TaskInputs
from riverlock.stages.compiled import KeyedStage
from riverlock.stages.stage_tasks import StageTasks, needs_initial

if TYPE_CHECKING:
    from collections.abc import Mapping

    from riverlock.connectors.base.source_reader import Reader
    from riverlock.coordinator.instructions import RunStage
    from riverlock.coordinator.votes import Vote
    from riverlock.program.program import Program
    from riverlock.snapshot.format.records import InputRange, Manifest

__all__ = ["run_by_shares"]

_pickle: Any = cloudpickle  # it ships no types


def run_by_shares(flow: Any, store: str, **options: Any) -> Any:
    """Run a flow as ``flow.run`` does, on this engine."""
    wanted = chosen(options)  # type: ignore[arg-type]
    return runner.run(flow._program, store, SharesEngine(wanted), wanted)


class SharesEngine(JobsEngine):
    """Spark for readers and analysis, nothing else."""

    def analysis(self, flow: Program, readers: Mapping[str, Reader]) -> Any:
        self._analysis = CompiledAnalysis(self._spark, flow, readers)
        return self._analysis

    def deploy(self, tasks: StageTasks, readers: Mapping[str, Reader]) -> Any:
        computed = self._analysis.computed(tasks.compiled)
        inputs = TaskInputs.of(tasks.compiled, readers, computed)
        blob = _pickle.dumps(inputs)
        return SharesDeployment(self._spark, tasks, readers, blob)


class SharesDeployment:
    """Keeps the tables of each task for one epoch."""

    def __init__(
        self, spark: Any, tasks: StageTasks, readers: Mapping[str, Reader], blob: bytes
    ) -> None:
        self._spark, self._tasks, self._readers = spark, tasks, readers
        self._blob = blob
        self._inputs: list[TaskInputs] = []
        self._tables: list[Tables] = []

    def run_stage(
        self,
        order: RunStage,
        parent: Manifest | None,
        following: Mapping[str, InputRange] | None,
    ) -> tuple[Vote, ...]:
        tasks = dataclasses.replace(self._tasks, parallelism=order.parallelism)
        self._begin(order, tasks.parallelism)
        for uid, late in tasks.late(order, parent).items():
            for tables in self._tables:
                tables.take_late(uid, late)
        stage = tasks.stage(order)
        if isinstance(stage, KeyedStage):
            return self._keyed(stage, tasks, order, parent)
        writing, votes = tasks.write(stage, order), []
        pairs = zip(self._inputs, self._tables, strict=True)
        for part, (inputs, tables) in enumerate(pairs):
            found, read = inputs.outputs(stage.id, tables)
            votes.append(writing.staged(found, read, part))
        return tuple(votes)

    def _begin(self, order: RunStage, parallelism: int) -> None:
        if order.earlier:
            return  # tables are those of all stages of an epoch
        planned = order.planned
        parts = shares(self._readers, planned.inputs, parallelism)
        self._inputs = [pickle.loads(self._blob) for _ in parts]
        self._tables = [
            inputs.tables(pickle.loads(_pickle.dumps(pieces)), now_us=planned.now_us)
            for inputs, pieces in zip(self._inputs, parts, strict=True)
        ]

    def _keyed(
        self,
        stage: KeyedStage,
        tasks: StageTasks,
        order: RunStage,
        parent: Manifest | None,
    ) -> tuple[Vote, ...]:
        initial = self._initial(stage) if needs_initial(stage, parent) else None
        number = tasks.parallelism
        arrived: dict[int, list[pa.Table]] = {p: [] for p in range(number)}
        pairs = zip(self._inputs, self._tables, strict=True)
        for part, (inputs, tables) in enumerate(pairs):
            mine = initial if part == 0 else None
            sent = inputs.sent(stage.id, tables, number, mine)
            for owner, table in sent.items():
                arrived[owner].append(table)
        check_read(self._readers, order.planned.inputs)
        task, begun = tasks.keyed(stage), tasks.begun(stage, order, parent)
        votes = []
        for part, found in arrived.items():
            batches: list[pa.RecordBatch] = []
            if found:
                whole = pa.concat_tables(found, promote_options="default")
                batches = whole.to_batches()
            vote = task.vote(batches, part, begun)
            self._take(stage, part, vote)
            votes.append(vote)
        return tuple(votes)

    def _take(self, stage: KeyedStage, part: int, vote: Vote) -> None:
        for name, paths in vote.staged.items():
            files = [io.BytesIO(self._tasks.storage.get(path)) for path in paths]
            table = pa.concat_tables([pq.read_table(file) for file in files])
            made = self._inputs[part].made(stage.id, name, table)
            self._tables[part].take_output(stage.id, name, made)

    def _initial(self, stage: KeyedStage) -> ArrowRows:
        frame = initial_frame(self._spark, stage.node)
        schema = schema_of(frame.schema)
        return ArrowRows(schema, frame.toArrow().cast(schema.to_arrow()))

    def cancel(self) -> None:
        pass

    def close(self) -> None:
        pass
