"""Runs the stages of an epoch as Spark jobs and brings back their votes."""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import pickle
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark import TaskContext
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql.types import BinaryType, IntegerType, StructField, StructType

from riverlock.connectors.base.source_reader import check_read
from riverlock.core.errors import (
    EpochAbortedError,
    RiverlockError,
)
from riverlock.engines.jobs.frames.unaccepted import unaccepted
from riverlock.engines.jobs.rows_read import with_rows_read
from riverlock.engines.jobs.stage_rows import StageRows
from riverlock.spark.remote import explained, unlogged
from riverlock.stages.compiled import KeyedStage, WriteStage
from riverlock.stages.stage_tasks import needs_initial
from riverlock.worker.task import (
    KeyedEpoch,
    KeyedTask,
    StageTask,
    decode_outcome,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from pyspark.sql import DataFrame, SparkSession

    from riverlock.connectors.base.source_reader import Reader
    from riverlock.coordinator.instructions import RunStage
    from riverlock.coordinator.votes import Vote
    from riverlock.driver.attendance import Attendance
    from riverlock.engines.jobs.ahead import ReadAhead
    from riverlock.engines.jobs.frames.nodes import Frames
    from riverlock.snapshot.format.records import InputRange, Manifest
    from riverlock.stages.stage_tasks import StageTasks

__all__ = ["JobsDeployment"]

# As a type, not as text: Spark's parser would be asked in every epoch.
_OUTCOME = StructType([StructField("outcome", BinaryType())])
_PACKED = StructType(
    [StructField("partition", IntegerType()), StructField("batch", BinaryType())]
)
# Spark hands the local properties of a job to its tasks.
_BEGUN = "riverlock.epoch"


@dataclass(frozen=True, kw_only=True)
class JobsDeployment:
    """One run of a flow on one Spark session; see ``driver.engine``."""

    spark: SparkSession
    tasks: StageTasks
    readers: Mapping[str, Reader]
    ahead: ReadAhead
    # None: the driver runs the tasks itself, or may wait for ever.
    attendance: Attendance | None = None

    def run_stage(
        self,
        order: RunStage,
        parent: Manifest | None,
        following: Mapping[str, InputRange] | None,
    ) -> tuple[Vote, ...]:
        """Run one stage; return one vote per task.

        Raises:
            RiverlockError: What a task or Spark says went wrong.
        """
        if order.parallelism != self.tasks.parallelism:
            tasks = dataclasses.replace(self.tasks, parallelism=order.parallelism)
            scaled = dataclasses.replace(self, tasks=tasks)
            return scaled.run_stage(order, parent, following)
        stage = self.tasks.stage(order)
        with self._job(order):
            frame = self._frame(stage, order, parent)
            if frame is None:
                return ()
            begun = (
                self.tasks.begun(stage, order, parent)
                if isinstance(stage, KeyedStage)
                else None
            )
            number = self.tasks.parallelism
            with self.ahead.reading(following, self._frames_ahead, number):
                rows = self._collect(frame, begun)
        check_read(self.readers, order.planned.inputs)
        votes = self._votes(rows, order.epoch, order.planned.seed)
        return with_rows_read(votes, self.readers)

    def delivered(
        self, order: RunStage, parent: Manifest | None
    ) -> dict[int, list[pa.RecordBatch]]:
        """Bring the rows of a stage here instead of to its tasks, by partition.

        Raises:
            RiverlockError: What Spark says went wrong.
        """
        found: dict[int, list[pa.RecordBatch]] = {}
        with self._job(order):
            rows = self._rows.rows(self.tasks.stage(order), order, parent)
            packed = [] if rows is None else rows.mapInArrow(_packed, _PACKED).collect()
        check_read(self.readers, order.planned.inputs)
        for partition, batch in packed:
            with pa.ipc.open_stream(bytes(batch)) as stream:
                found.setdefault(partition, []).extend(stream)
        return found

    @contextlib.contextmanager
    def _job(self, order: RunStage) -> Iterator[None]:
        """Name what Spark runs meanwhile; what it raises becomes our errors."""
        name = f"riverlock {self.tasks.compiled.flow.name} {order.epoch} {order.stage}"
        try:
            self.spark.sparkContext.setJobGroup(self._job_group, name)
            with unlogged(), self._attended(order.epoch):
                yield
        except AnalysisException as error:
            node = self.tasks.stage(order).node
            raise unaccepted(f"stage {order.stage!r}", error, line=node.line) from error
        except (PySparkException, Py4JError, ConnectionError) as error:
            # A connection that is refused: Spark's JVM is gone.
            raise explained(error, stage=order.stage, epoch=order.epoch) from None

    def _attended(self, epoch: int) -> contextlib.AbstractContextManager[None]:
        if self.attendance is None:
            return contextlib.nullcontext()
        return self.attendance.kept(epoch, self._cancel_if_there)

    def _cancel_if_there(self) -> None:
        # The session may have been stopped, and the jobs with it.
        with contextlib.suppress(Py4JError, ConnectionError, AttributeError):
            self.cancel()

    def cancel(self) -> None:
        """Stop whatever runs; callable from another thread."""
        self.spark.sparkContext.cancelJobGroup(self._job_group)

    def close(self) -> None:
        """Drop what was read ahead."""
        self.ahead.close()
        self._cancel_if_there()

    @property
    def _job_group(self) -> str:
        return f"riverlock-{self.tasks.token}"

    def _votes(self, rows: list[Any], epoch: int, seed: int) -> tuple[Vote, ...]:
        votes = []
        for row in rows:
            outcome = decode_outcome(bytes(row[0]))
            if outcome.seed != seed:
                raise EpochAbortedError(
                    epoch=epoch,
                    reason="a task was told another epoch's parameters",
                    cause="is PYSPARK_PIN_THREAD set to false?",
                )
            if outcome.error is not None:
                error = pickle.loads(outcome.error)  # noqa: S301 - from our workers
                assert isinstance(error, RiverlockError)
                raise error
            assert outcome.vote is not None
            votes.append(outcome.vote)
        return tuple(votes)

    def _collect(self, frame: DataFrame, begun: KeyedEpoch | None) -> list[Any]:
        """Run a job; what its epoch must know goes with it."""
        text = None
        if begun is not None:
            text = base64.b64encode(zlib.compress(pickle.dumps(begun), 1)).decode()
        context: Any = self.spark.sparkContext
        context.setLocalProperty(_BEGUN, text)
        try:
            return frame.collect()
        finally:
            with contextlib.suppress(Py4JError, ConnectionError):
                context.setLocalProperty(_BEGUN, None)

    @property
    def _rows(self) -> StageRows:
        return StageRows(self.spark, self.tasks, self.readers)

    def _frames_ahead(self, inputs: Mapping[str, InputRange]) -> dict[str, DataFrame]:
        """Return the frames that an epoch can have before its parent is decided."""
        frames = self._rows.frames(inputs, {}, {})
        return {
            stage.id: self._keyed_frame(stage, frames, inputs)
            for stage in self.tasks.compiled.keyed
            if stage.can_read_ahead
        }

    def _frame(
        self, stage: KeyedStage | WriteStage, order: RunStage, parent: Manifest | None
    ) -> DataFrame | None:
        """Return the frame whose rows are the votes of a stage; None: nothing to do."""
        if isinstance(stage, KeyedStage) and not needs_initial(stage, parent):
            number = self.tasks.parallelism
            ready = self.ahead.take(stage.id, order.planned.inputs, number)
            if ready is not None:
                return ready
        rows = self._rows.rows(stage, order, parent)
        if rows is None:
            return None
        if isinstance(stage, WriteStage):
            return rows.mapInArrow(_InTask(self.tasks.write(stage, order)), _OUTCOME)
        return rows.mapInArrow(_InKeyedTask(self.tasks.keyed(stage)), _OUTCOME)

    def _keyed_frame(
        self, stage: KeyedStage, frames: Frames, inputs: Mapping[str, InputRange]
    ) -> DataFrame:
        """Return the votes of the stage; what is new in an epoch comes with its job."""
        placed = self._rows.placed(stage, frames, inputs, None, takes_initial=False)
        return placed.mapInArrow(_InKeyedTask(self.tasks.keyed(stage)), _OUTCOME)


@dataclass(frozen=True)
class _InTask:
    """Calls our task inside Spark's."""

    task: StageTask

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield _row(self.task(batches, _context().partitionId()))


@dataclass(frozen=True)
class _InKeyedTask:
    """Calls our keyed task inside Spark's, and tells it which epoch this is."""

    task: KeyedTask

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = _context()
        text = context.getLocalProperty(_BEGUN)
        assert text is not None
        packed = zlib.decompress(base64.b64decode(text))
        begun = pickle.loads(packed)  # noqa: S301 - from our driver
        yield _row(self.task(batches, context.partitionId(), begun))


def _packed(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield each batch as bytes, with the partition that it is in."""
    partition = pa.array([_context().partitionId()], pa.int32())
    for batch in batches:
        if batch.num_rows:
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, batch.schema) as stream:
                stream.write_batch(batch)
            packed = pa.array([sink.getvalue().to_pybytes()], pa.binary())
            yield pa.RecordBatch.from_arrays(
                [partition, packed], names=["partition", "batch"]
            )


def _context() -> TaskContext:
    context = TaskContext.get()
    assert context is not None
    return context


def _row(outcome: bytes) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"outcome": pa.array([outcome], pa.binary())})
