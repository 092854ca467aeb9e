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
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, IntegerType, StructField, StructType

from riverlock.connectors.base.source_reader import Rechecked
from riverlock.coordinator.watermarks import first_open_us, operator_watermark
from riverlock.core.errors import (
    EpochAbortedError,
    InvalidFlowError,
    RiverlockError,
)
from riverlock.core.hidden_columns import ALL, BRANCH, GROUP, INPUT, SEQ
from riverlock.engines.jobs.compiler import initial_frame
from riverlock.engines.jobs.frames.nodes import Frames, LateRows, Rows
from riverlock.engines.jobs.frames.session_gaps import with_gap
from riverlock.engines.jobs.stages import CompiledFlow, KeyedStage, WriteStage
from riverlock.operators.shipped import LATE_ROWS, MAIN, EpochInfo
from riverlock.operators.task_input import (
    BROADCAST_ROW,
    BROADCASTS,
    EVENTS,
    INITIAL_ROW,
    INITIALS,
)
from riverlock.program.graph import declared_behind_keyed
from riverlock.program.unkeyed import ALL_RECORDS
from riverlock.spark.epoch_clock import at_time
from riverlock.spark.remote import explained, last_line, unlogged
from riverlock.state.copy.baseline import Baseline
from riverlock.worker.task import (
    KeyedEpoch,
    KeyedTask,
    Place,
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
    from riverlock.snapshot.format.records import InputRange, Manifest
    from riverlock.storage.base import Storage

__all__ = ["SparkEngine"]

# Set where the key group does not say it: broadcast rows go to every partition.
_OWNER = "__rl_owner"
# As a type, not as text: Spark's parser would be asked in every epoch.
_OUTCOME = StructType([StructField("outcome", BinaryType())])
_PACKED = StructType(
    [StructField("partition", IntegerType()), StructField("batch", BinaryType())]
)
# Spark hands the local properties of a job to its tasks.
_BEGUN = "riverlock.epoch"


@dataclass(frozen=True, kw_only=True)
class SparkEngine:
    """One region on one Spark session."""

    spark: SparkSession
    compiled: CompiledFlow
    readers: Mapping[str, Reader]
    storage: Storage
    flow: str  # its id
    region: str
    run: int
    token: str
    parallelism: int
    working_dir: str
    ahead: ReadAhead
    # None: the driver runs the tasks itself, or may wait for ever.
    attendance: Attendance | None = None

    def run_stage(
        self,
        order: RunStage,
        parent: Manifest | None,
        following: Mapping[str, InputRange] | None,
    ) -> tuple[Vote, ...]:
        """Run one stage; returns one vote per task.

        Raises:
            RiverlockError: What a task or Spark says went wrong.
        """
        if order.parallelism != self.parallelism:
            engine = dataclasses.replace(self, parallelism=order.parallelism)
            return engine.run_stage(order, parent, following)
        stage = self._stage(order)
        with self._job(order):
            frame = self._frame(stage, order, parent)
            if frame is None:
                return ()
            begun = (
                self.begun(stage, order, parent)
                if isinstance(stage, KeyedStage)
                else None
            )
            with self.ahead.reading(following, self._frames_ahead, self.parallelism):
                rows = self._collect(frame, begun)
        self._recheck(order)
        return self._votes(rows, order.epoch, order.planned.seed)

    def _recheck(self, order: RunStage) -> None:
        """See that what tasks have read is what was planned."""
        for uid, span in order.planned.inputs.items():
            reader: object = self.readers.get(uid)
            if isinstance(reader, Rechecked) and span.start != span.end:
                reader.recheck(span.start, span.end)

    def delivered(
        self, order: RunStage, parent: Manifest | None
    ) -> dict[int, list[pa.RecordBatch]]:
        """Bring the rows of a stage here instead of to its tasks, by partition.

        Raises:
            RiverlockError: What Spark says went wrong.
        """
        found: dict[int, list[pa.RecordBatch]] = {}
        with self._job(order):
            rows = self.rows(self._stage(order), order, parent)
            packed = [] if rows is None else rows.mapInArrow(_packed, _PACKED).collect()
        self._recheck(order)
        for partition, batch in packed:
            with pa.ipc.open_stream(bytes(batch)) as stream:
                found.setdefault(partition, []).extend(stream)
        return found

    def _stage(self, order: RunStage) -> KeyedStage | WriteStage:
        return next(s for s in self.compiled.stages if s.id == order.stage)

    @contextlib.contextmanager
    def _job(self, order: RunStage) -> Iterator[None]:
        """Name what Spark runs meanwhile; what it raises becomes our errors."""
        name = f"riverlock {self.compiled.flow.name} {order.epoch} {order.stage}"
        try:
            self.spark.sparkContext.setJobGroup(self._job_group, name)
            with unlogged(), self._attended(order.epoch):
                yield
        except AnalysisException as error:
            raise InvalidFlowError(
                f"stage {order.stage!r}",
                expected="expressions that Spark accepts",
                found=last_line(error),
            ) from error
        except (PySparkException, Py4JError, ConnectionError) as error:
            # A connection that is refused: Spark's virtual machine is gone.
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
        return f"riverlock-{self.token}"

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

    def _frames(
        self,
        inputs: Mapping[str, InputRange],
        earlier: Mapping[str, tuple[Vote, ...]],
        late: Mapping[str, LateRows],
    ) -> Frames:
        root = self.storage.uri.rstrip("/")
        staged = {
            (uid, name): (
                schema,
                [f"{root}/{path}" for path in _staged(earlier.get(uid, ()), name)],
            )
            for (uid, name), schema in self.compiled.staged.items()
        }
        frames = Frames(
            self.spark,
            self.readers,
            inputs,
            self.compiled.event_times,
            staged,
            late,
            says_source=any(map(declared_behind_keyed, self.compiled.flow.keyed)),
        )
        for stage in self.compiled.shared:
            if stage.id in earlier:
                files = _staged(earlier[stage.id], MAIN)
                found = Rows(stage.struct, [f"{root}/{path}" for path in files])
                frames.share(stage.node, found)
        return frames

    def _late(self, order: RunStage, parent: Manifest | None) -> dict[str, LateRows]:
        """Return what the windows that ran before say of late records."""
        found = {}
        for stage in self.compiled.stages:
            if isinstance(stage, KeyedStage) and stage.id in order.earlier:
                votes = order.earlier[stage.id]
                rows = sum(int(v.metrics.get(LATE_ROWS, 0)) for v in votes)
                info = self._info(stage, order, parent)
                limit = first_open_us(stage.program.late_at(info))
                found[stage.id] = LateRows(rows, limit)
        return found

    def _frames_ahead(self, inputs: Mapping[str, InputRange]) -> dict[str, DataFrame]:
        """Return the frames that an epoch can have before its parent is decided."""
        frames = self._frames(inputs, {}, {})
        return {
            stage.id: self._keyed_frame(stage, frames)
            for stage in self.compiled.stages
            if isinstance(stage, KeyedStage) and stage.can_read_ahead
        }

    def _place(self, stage: str) -> Place:
        return Place(
            storage=self.storage,
            region=self.region,
            stage=stage,
            run=self.run,
            token=self.token,
            flow=self.flow,
        )

    def _frame(
        self, stage: KeyedStage | WriteStage, order: RunStage, parent: Manifest | None
    ) -> DataFrame | None:
        """Return the frame whose rows are the votes of a stage; None: nothing to do."""
        if isinstance(stage, KeyedStage) and not _needs_initial(stage, parent):
            ready = self.ahead.take(stage.id, order.planned.inputs, self.parallelism)
            if ready is not None:
                return ready
        rows = self.rows(stage, order, parent)
        if rows is None:
            return None
        if isinstance(stage, WriteStage):
            return rows.mapInArrow(_InTask(self.write_task(stage, order)), _OUTCOME)
        return rows.mapInArrow(_InKeyedTask(self.keyed_task(stage)), _OUTCOME)

    def rows(
        self, stage: KeyedStage | WriteStage, order: RunStage, parent: Manifest | None
    ) -> DataFrame | None:
        """Return the rows that the tasks of a stage are given; None: nothing to do."""
        late = self._late(order, parent)
        frames = self._frames(order.planned.inputs, order.earlier, late)
        if isinstance(stage, KeyedStage):
            initial = _needs_initial(stage, parent)
            now_us = order.planned.now_us if stage.has_clock else None
            rows = self._exchange(stage, frames, now_us, takes_initial=initial)
        else:
            if frames.is_empty(stage.given):
                return None
            rows = frames.frame(stage.given)
        return at_time(rows, order.planned.now_us) if stage.has_clock else rows

    def write_task(self, stage: WriteStage, order: RunStage) -> StageTask:
        """Return what stages the rows of a step in an epoch."""
        return StageTask(
            place=self._place(stage.id),
            epoch=order.epoch,
            seed=order.planned.seed,
            targets=stage.targets,
            split=None if stage.function is None else stage.function.split,
        )

    def begun(
        self, stage: KeyedStage, order: RunStage, parent: Manifest | None
    ) -> KeyedEpoch:
        """Return what the tasks of a stage must know of the epoch."""
        state = parent.operators.get(stage.id) if parent else None
        return KeyedEpoch(
            info=self._info(stage, order, parent),
            base=Baseline(
                epoch=None if parent is None else parent.epoch,
                now_us=None if parent is None else parent.now_us,
                files=() if state is None else state.files,
                history=() if parent is None else parent.history,
                # Without state, no copy there may be is of it.
                since=order.epoch if state is None else state.since,
            ),
        )

    @staticmethod
    def _info(stage: KeyedStage, order: RunStage, parent: Manifest | None) -> EpochInfo:
        planned = order.planned
        state = parent.operators.get(stage.id) if parent else None
        before = None if state is None else state.watermark_us
        mark = operator_watermark(stage.event_times, planned.watermarks, before)
        return EpochInfo(
            epoch=order.epoch,
            now_us=planned.now_us,
            seed=planned.seed,
            watermark_us=planned.recorded.get(stage.id, mark),
            previous_us=before,
            parameters={
                name: parameter.in_force
                for name, parameter in planned.parameters.get(stage.id, {}).items()
            },
        )

    def _keyed_frame(self, stage: KeyedStage, frames: Frames) -> DataFrame:
        """Return the votes of the stage; what is new in an epoch comes with its job."""
        exchanged = self._exchange(stage, frames, None, takes_initial=False)
        return exchanged.mapInArrow(_InKeyedTask(self.keyed_task(stage)), _OUTCOME)

    def keyed_task(self, stage: KeyedStage) -> KeyedTask:
        """Return what runs the operator of a stage, in every epoch."""
        return KeyedTask(
            place=self._place(stage.id),
            program=stage.blob,
            parallelism=self.parallelism,
            key_groups=self.compiled.flow.key_groups,
            working_dir=self.working_dir,
            targets=stage.targets,
        )

    def _exchange(
        self,
        stage: KeyedStage,
        frames: Frames,
        now_us: int | None,
        *,
        takes_initial: bool,
    ) -> DataFrame:
        """Return the rows of the stage, each in the partition that owns its key."""
        parts = []
        if not frames.is_empty(stage.node.input):
            parts.append(self._events(stage, frames, now_us))
        if takes_initial:
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
        if not keys:
            return frame.withColumn(GROUP, F.lit(0))
        hashed = ", ".join(f"`{k}`" for k in keys)
        groups = self.compiled.flow.key_groups
        return frame.withColumn(
            GROUP, F.expr(f"cast(pmod(xxhash64({hashed}), {groups}) as int)")
        )

    def _events(
        self, stage: KeyedStage, frames: Frames, now_us: int | None
    ) -> DataFrame:
        frame = with_gap(frames.frame(stage.node.input), stage.node)
        if stage.combine is not None:
            frame = stage.combine.apply(frame, now_us)
        program, keys = stage.program, stage.node.keys
        if program.keys == ALL_RECORDS:
            frame = frame.withColumn(ALL, F.lit(None).cast("boolean"))
            keys = (ALL,)
        frame = self._with_group(frame, keys)
        if program.broadcast is not None or program.initial is not None:
            frame = frame.withColumn(INPUT, F.lit(EVENTS))
        return frame

    def _broadcast(self, frame: DataFrame) -> DataFrame:
        shown = [F.col(f"`{c}`") for c in frame.columns if not c.startswith("__rl_")]
        owners = F.expr(f"explode(sequence(0, {self.parallelism - 1}))")
        return frame.select(
            F.struct(*shown).alias(BROADCAST_ROW),
            *(c for c in (SEQ, BRANCH) if c in frame.columns),
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


def _staged(votes: Iterable[Vote], name: str) -> list[str]:
    return [path for vote in votes for path in vote.staged.get(name, ())]


def _needs_initial(stage: KeyedStage, parent: Manifest | None) -> bool:
    """Tell whether an operator takes its initial state in this epoch."""
    is_new = parent is None or stage.id not in parent.operators
    return is_new and stage.node.initial is not None


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
    """Give each batch as bytes, with the partition that it is in."""
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
