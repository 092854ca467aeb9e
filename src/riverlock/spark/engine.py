"""Runs the stages of an epoch as Spark jobs and brings back their votes."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark import TaskContext
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, StructField, StructType

from riverlock.core.errors import InvalidFlowError, RiverlockError
from riverlock.runtime.columns import GROUP, INPUT, SEQ
from riverlock.runtime.inputs import (
    BROADCAST_ROW,
    BROADCASTS,
    EVENTS,
    INITIAL_ROW,
    INITIALS,
)
from riverlock.runtime.program import EpochInfo
from riverlock.runtime.task import KeyedTask, Place, StageTask, decode_outcome
from riverlock.runtime.watermarks import operator_watermark
from riverlock.runtime.working_copy import Baseline
from riverlock.spark.compile import (
    CompiledFlow,
    KeyedStage,
    WriteStage,
    initial_frame,
)
from riverlock.spark.frames import Frames
from riverlock.spark.remote import explained, last_line, unlogged

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from pyspark.sql import DataFrame, SparkSession

    from riverlock.coordinator.epoch import PlannedInputs
    from riverlock.coordinator.votes import Vote
    from riverlock.snapshot.records import Manifest
    from riverlock.sources.reader import Reader
    from riverlock.storage.base import Storage

__all__ = ["SparkEngine"]

# Set where the key group does not say it: broadcast rows go to every partition.
_OWNER = "__rl_owner"
# As a type, not as text: Spark's parser would be asked in every epoch.
_OUTCOME = StructType([StructField("outcome", BinaryType())])


@dataclass(frozen=True, kw_only=True)
class SparkEngine:
    """One region on one Spark session."""

    spark: SparkSession
    compiled: CompiledFlow
    readers: Mapping[str, Reader]
    storage: Storage
    region: str
    run: int
    token: str
    parallelism: int
    working_dir: str

    def run_stage(
        self,
        stage_id: str,
        epoch: int,
        planned: PlannedInputs,
        parent: Manifest | None,
        earlier: Mapping[str, tuple[Vote, ...]],
    ) -> tuple[Vote, ...]:
        """Run one stage; returns one vote per task.

        Raises:
            RiverlockError: What a task or Spark says went wrong.
        """
        stage = next(s for s in self.compiled.stages if s.id == stage_id)
        frames = self._frames(planned, earlier)
        name = f"riverlock {self.compiled.flow.name} {epoch} {stage_id}"
        try:
            self.spark.sparkContext.setJobGroup(self._job_group, name)
            with unlogged():
                match stage:
                    case KeyedStage():
                        rows = self._keyed(stage, frames, epoch, planned, parent)
                    case WriteStage():
                        rows = self._write(stage, frames, epoch)
        except AnalysisException as error:
            raise InvalidFlowError(
                f"stage {stage_id!r}",
                expected="expressions that Spark accepts",
                found=last_line(error),
            ) from error
        except (PySparkException, Py4JError, ConnectionError) as error:
            # A connection that is refused: Spark's virtual machine is gone.
            raise explained(error, stage=stage_id, epoch=epoch) from None
        return self._votes(rows)

    def cancel(self) -> None:
        """Stop whatever runs; callable from another thread."""
        self.spark.sparkContext.cancelJobGroup(self._job_group)

    @property
    def _job_group(self) -> str:
        return f"riverlock-{self.token}"

    def _votes(self, rows: list[Any]) -> tuple[Vote, ...]:
        votes = []
        for row in rows:
            outcome = decode_outcome(bytes(row[0]))
            if outcome.error is not None:
                error = pickle.loads(outcome.error)  # noqa: S301 - from our workers
                assert isinstance(error, RiverlockError)
                raise error
            assert outcome.vote is not None
            votes.append(outcome.vote)
        return tuple(votes)

    def _frames(
        self, planned: PlannedInputs, earlier: Mapping[str, tuple[Vote, ...]]
    ) -> Frames:
        root = self.storage.uri.rstrip("/")
        staged = {
            (uid, name): (
                schema,
                [
                    f"{root}/{path}"
                    for vote in earlier.get(uid, ())
                    for path in vote.staged.get(name, ())
                ],
            )
            for (uid, name), schema in self.compiled.staged.items()
        }
        return Frames(
            self.spark,
            self.readers,
            planned.inputs,
            tuple(self.compiled.event_times),
            staged,
        )

    def _place(self, stage: str, epoch: int) -> Place:
        return Place(
            storage=self.storage,
            region=self.region,
            stage=stage,
            run=self.run,
            token=self.token,
            epoch=epoch,
        )

    def _write(self, stage: WriteStage, frames: Frames, epoch: int) -> list[Any]:
        if frames.is_empty(stage.node.input):
            return []
        task = StageTask(
            place=self._place(stage.id, epoch),
            targets=stage.targets,
            schema=stage.schema,
        )
        return _collect(frames.frame(stage.node.input), task)

    def _keyed(
        self,
        stage: KeyedStage,
        frames: Frames,
        epoch: int,
        planned: PlannedInputs,
        parent: Manifest | None,
    ) -> list[Any]:
        info = EpochInfo(
            epoch=epoch,
            now_us=planned.now_us,
            seed=planned.seed,
            watermark_us=operator_watermark(stage.event_times, planned.watermarks),
        )
        state = parent.operators.get(stage.id) if parent else None
        task = KeyedTask(
            place=self._place(stage.id, epoch),
            program=stage.blob,
            info=info,
            parallelism=self.parallelism,
            key_groups=self.compiled.flow.key_groups,
            base=Baseline(
                epoch=None if parent is None else parent.epoch,
                now_us=None if parent is None else parent.now_us,
                files=() if state is None else state.files,
                history=() if parent is None else parent.history,
            ),
            working_dir=self.working_dir,
            targets=stage.targets,
        )
        return _collect(self._exchange(stage, frames, is_new=state is None), task)

    def _exchange(
        self, stage: KeyedStage, frames: Frames, *, is_new: bool
    ) -> DataFrame:
        """Return the rows of the stage, each in the partition that owns its key."""
        parts = []
        if not frames.is_empty(stage.node.input):
            parts.append(self._events(stage, frames))
        if stage.node.initial is not None and is_new:
            parts.append(self._initial(stage))
        owner = self._owner if parts else _OWNER
        broadcast = stage.node.broadcast
        if broadcast is not None and not frames.is_empty(broadcast):
            parts.append(self._broadcast(frames.frame(broadcast)))
            owner = f"coalesce({_OWNER}, {owner})"
        if not parts:
            # Timers are due. Spark would optimise an empty exchange away.
            ticks = self.spark.range(0, self.parallelism, 1, self.parallelism)
            return ticks.where("id < 0")
        whole = parts[0]
        for other in parts[1:]:
            whole = whole.unionByName(other, allowMissingColumns=True)
        whole = whole.repartitionById(self.parallelism, F.expr(owner))
        return whole.drop(_OWNER) if _OWNER in owner else whole

    @property
    def _owner(self) -> str:
        """The partition that owns a row's key group, as SQL."""
        groups = self.compiled.flow.key_groups
        return f"cast(({GROUP} * {self.parallelism}) div {groups} as int)"

    def _with_group(self, frame: DataFrame, keys: tuple[str, ...]) -> DataFrame:
        hashed = ", ".join(f"`{k}`" for k in keys)
        groups = self.compiled.flow.key_groups
        return frame.withColumn(
            GROUP, F.expr(f"cast(pmod(xxhash64({hashed}), {groups}) as int)")
        )

    def _events(self, stage: KeyedStage, frames: Frames) -> DataFrame:
        frame = frames.frame(stage.node.input)
        if stage.combine is not None:
            frame = stage.combine.apply(frame)
        frame = self._with_group(frame, stage.node.keys)
        program = stage.program
        if program.broadcast is not None or program.initial is not None:
            frame = frame.withColumn(INPUT, F.lit(EVENTS))
        return frame

    def _broadcast(self, frame: DataFrame) -> DataFrame:
        shown = [F.col(f"`{c}`") for c in frame.columns if not c.startswith("__rl_")]
        owners = F.expr(f"explode(sequence(0, {self.parallelism - 1}))")
        return frame.select(
            F.struct(*shown).alias(BROADCAST_ROW),
            F.col(SEQ),
            F.lit(BROADCASTS).alias(INPUT),
            owners.alias(_OWNER),
        )

    def _initial(self, stage: KeyedStage) -> DataFrame:
        frame = initial_frame(self.spark, stage.node)
        shown = [F.col(f"`{c}`") for c in frame.columns]
        packed = frame.select(
            *(F.col(f"`{k}`") for k in stage.node.keys),
            F.struct(*shown).alias(INITIAL_ROW),
            F.monotonically_increasing_id().alias(SEQ),
            F.lit(INITIALS).alias(INPUT),
        )
        return self._with_group(packed, stage.node.keys)


def _collect(frame: DataFrame, task: KeyedTask | StageTask) -> list[Any]:
    return frame.mapInArrow(_InTask(task), _OUTCOME).collect()


@dataclass(frozen=True)
class _InTask:
    """Calls our task inside Spark's."""

    task: KeyedTask | StageTask

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        outcome = self.task(batches, context.partitionId())
        yield pa.RecordBatch.from_pydict({"outcome": pa.array([outcome], pa.binary())})
