"""The rows of a stage as Spark brings them to tasks: stateless work, an exchange."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from riverlock.core.hidden_columns import ALL, BRANCH, GAP, GROUP, INPUT, SEQ
from riverlock.engines.jobs.frames.initial_state import initial_frame
from riverlock.engines.jobs.frames.nodes import Frames, Rows
from riverlock.engines.jobs.frames.session_gaps import with_gap
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
from riverlock.stages.compiled import KeyedStage, WriteStage
from riverlock.stages.stage_tasks import needs_initial

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession

    from riverlock.connectors.base.source_reader import Reader
    from riverlock.coordinator.instructions import RunStage
    from riverlock.coordinator.votes import Vote
    from riverlock.snapshot.format.records import InputRange, Manifest
    from riverlock.stages.stage_tasks import LateRows, StageTasks

__all__ = ["StageRows"]

# Set where the key group does not say it: broadcast rows go to every partition.
_OWNER = "__rl_owner"


@dataclass(frozen=True)
class StageRows:
    """The rows of all stages of a run."""

    spark: SparkSession
    tasks: StageTasks
    readers: Mapping[str, Reader]

    def rows(
        self, stage: KeyedStage | WriteStage, order: RunStage, parent: Manifest | None
    ) -> DataFrame | None:
        """Return the rows that the tasks of a stage receive; None: nothing to do."""
        late = self.tasks.late(order, parent)
        frames = self.frames(order.planned.inputs, order.earlier, late)
        if isinstance(stage, KeyedStage):
            initial = needs_initial(stage, parent)
            now_us = order.planned.now_us if stage.has_clock else None
            inputs = order.planned.inputs
            rows = self.placed(stage, frames, inputs, now_us, takes_initial=initial)
        else:
            if frames.is_empty(stage.given):
                return None
            rows = frames.frame(stage.given)
        return at_time(rows, order.planned.now_us) if stage.has_clock else rows

    def frames(
        self,
        inputs: Mapping[str, InputRange],
        earlier: Mapping[str, tuple[Vote, ...]],
        late: Mapping[str, LateRows],
    ) -> Frames:
        """Return the frames of an epoch, as far as earlier stages have come."""
        tasks, compiled = self.tasks, self.tasks.compiled
        root = tasks.storage.uri.rstrip("/")
        staged = {
            place: (compiled.staged[place], [f"{root}/{path}" for path in paths])
            for place, paths in tasks.staged(earlier).items()
        }
        frames = Frames(
            self.spark,
            self.readers,
            inputs,
            compiled.event_times,
            staged,
            late,
            says_source=any(map(declared_behind_keyed, compiled.flow.keyed)),
        )
        for node, stage, paths in tasks.shared(earlier):
            frames.share(node, Rows(stage.stored, [f"{root}/{p}" for p in paths]))
        return frames

    def placed(
        self,
        stage: KeyedStage,
        frames: Frames,
        inputs: Mapping[str, InputRange],
        now_us: int | None,
        *,
        takes_initial: bool,
    ) -> DataFrame:
        """Return the rows of the stage, each in the partition that owns its key."""
        shares = None
        if not frames.is_empty(stage.node.input):
            shares = self.tasks.shares(
                stage, inputs, self.readers, takes_initial=takes_initial
            )
        if shares is not None and stage.channel is not None:
            own = frames.shared_out(stage.channel, shares)
            found = self._in_place(stage, own, now_us)
            if found is not None:
                return found
        return self._exchanged(stage, frames, now_us, takes_initial=takes_initial)

    def _exchanged(
        self,
        stage: KeyedStage,
        frames: Frames,
        now_us: int | None,
        *,
        takes_initial: bool,
    ) -> DataFrame:
        """Return the same, by an exchange."""
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
            number = self.tasks.parallelism
            ticks = self.spark.range(0, number, 1, number)
            return ticks.where("id < 0")
        whole = parts[0]
        for other in parts[1:]:
            whole = whole.unionByName(other, allowMissingColumns=True)
        whole = whole.repartitionById(self.tasks.parallelism, F.expr(owner))
        return whole.drop(_OWNER) if _OWNER in owner else whole

    @property
    def _owner(self) -> str:
        """The partition that owns a row's key group, as SQL."""
        groups = self.tasks.compiled.flow.key_groups
        tasks = self.tasks.parallelism
        return f"cast(({GROUP} * {tasks}) div {groups} as int)"

    def _with_group(self, frame: DataFrame, keys: tuple[str, ...]) -> DataFrame:
        if not keys:
            return frame.withColumn(GROUP, F.lit(0))
        hashed = ", ".join(f"`{k}`" for k in keys)
        groups = self.tasks.compiled.flow.key_groups
        return frame.withColumn(
            GROUP, F.expr(f"cast(pmod(xxhash64({hashed}), {groups}) as int)")
        )

    def _events(
        self, stage: KeyedStage, frames: Frames, now_us: int | None
    ) -> DataFrame:
        frame = with_gap(frames.frame(stage.node.input), stage.node)
        if stage.combine is not None:
            frame = stage.combine.apply(frame, now_us)
        return self._grouped(stage, frame)

    def _in_place(
        self, stage: KeyedStage, frames: Frames, now_us: int | None
    ) -> DataFrame | None:
        """Return the same if rows stay in their partitions; None: Spark moves them."""
        frame = with_gap(frames.frame(stage.node.input), stage.node)
        if GAP in frame.columns:
            return None  # an expression of the user's, which could be anything
        if stage.combine is None:
            return self._grouped(stage, frame)
        combined: DataFrame | None = stage.combine.in_place(frame, now_us)
        return None if combined is None else self._grouped(stage, combined)

    def _grouped(self, stage: KeyedStage, frame: DataFrame) -> DataFrame:
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
        last = self.tasks.parallelism - 1
        owners = F.expr(f"explode(sequence(0, {last}))")
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
