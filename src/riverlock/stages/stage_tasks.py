"""The tasks of a stage: what they run, and what they are told of an epoch.

The same for every engine: an engine brings rows to tasks, and votes back.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from riverlock.connectors.channel.reader import ChannelReader
from riverlock.coordinator.watermarks import first_open_us, operator_watermark
from riverlock.operators.shipped import LATE_ROWS, MAIN, EpochInfo
from riverlock.snapshot.file_lists import unlisted
from riverlock.state.copy.baseline import Baseline
from riverlock.worker.task import KeyedEpoch, KeyedTask, Place, StageTask

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from riverlock.connectors.base.source_reader import Reader
    from riverlock.connectors.channel.rows import Shares
    from riverlock.coordinator.instructions import RunStage
    from riverlock.coordinator.votes import Vote
    from riverlock.program.graph import Node
    from riverlock.snapshot.format.records import InputRange, Manifest
    from riverlock.stages.compiled import CompiledFlow, KeyedStage, WriteStage
    from riverlock.storage.base import Storage

__all__ = ["LateRows", "StageTasks", "needs_initial"]


@dataclass(frozen=True)
class LateRows:
    """How many records were too late in an epoch, and the first instant in time."""

    rows: int
    until_us: int | None


@dataclass(frozen=True, kw_only=True)
class StageTasks:
    """The tasks of one run of a flow."""

    compiled: CompiledFlow
    storage: Storage
    flow: str  # its id
    region: str
    run: int
    token: str
    parallelism: int
    working_dir: str

    def stage(self, order: RunStage) -> KeyedStage | WriteStage:
        """Return the stage that is to be run."""
        return next(s for s in self.compiled.stages if s.id == order.stage)

    def write(self, stage: WriteStage, order: RunStage) -> StageTask:
        """Return what stages the rows of a step in an epoch."""
        return self.writing(stage, order.epoch, order.planned.seed)

    def writing(self, stage: WriteStage, epoch: int = 0, seed: int = 0) -> StageTask:
        """Return the same, also before it is known which epoch it is for."""
        return StageTask(
            place=self._place(stage.id),
            epoch=epoch,
            seed=seed,
            targets=stage.targets,
            split=None if stage.function is None else stage.function.split,
            times=stage.times,
        )

    def keyed(self, stage: KeyedStage) -> KeyedTask:
        """Return what runs the operator of a stage, in every epoch."""
        return KeyedTask(
            place=self._place(stage.id),
            program=stage.blob,
            parallelism=self.parallelism,
            key_groups=self.compiled.flow.key_groups,
            working_dir=self.working_dir,
            targets=stage.targets,
        )

    def begun(
        self, stage: KeyedStage, order: RunStage, parent: Manifest | None
    ) -> KeyedEpoch:
        """Return what the tasks of a stage must know of the epoch."""
        state = parent.operators.get(stage.id) if parent else None
        return KeyedEpoch(
            info=_info(stage, order, parent),
            base=Baseline(
                epoch=None if parent is None else parent.epoch,
                now_us=None if parent is None else parent.now_us,
                files=() if state is None else unlisted(state),
                lists=() if state is None else state.lists,
                history=() if parent is None else parent.history,
                # Without state, no copy there may be is of it.
                since=order.epoch if state is None else state.since,
            ),
        )

    def shares(
        self,
        stage: KeyedStage,
        inputs: Mapping[str, InputRange],
        readers: Mapping[str, Reader],
        *,
        takes_initial: bool,
    ) -> Shares | None:
        """Return what lets each task of a stage read the rows of its own keys.

        None: they must be read whole and exchanged.
        """
        if stage.channel is None or takes_initial or stage.node.broadcast is not None:
            return None
        reader, span = readers[stage.channel], inputs[stage.channel]
        assert isinstance(reader, ChannelReader)
        return reader.shares(
            span.start,
            span.end,
            stage.program.keys,
            tasks=self.parallelism,
            key_groups=self.compiled.flow.key_groups,
        )

    def late(self, order: RunStage, parent: Manifest | None) -> dict[str, LateRows]:
        """Return what the windows that ran before say of late records."""
        found = {}
        for stage in self.compiled.keyed:
            if stage.id in order.earlier:
                votes = order.earlier[stage.id]
                rows = sum(int(v.metrics.get(LATE_ROWS, 0)) for v in votes)
                info = _info(stage, order, parent)
                limit = first_open_us(stage.program.late_at(info))
                found[stage.id] = LateRows(rows, limit)
        return found

    def staged(
        self, earlier: Mapping[str, Iterable[Vote]]
    ) -> dict[tuple[str, str], list[str]]:
        """Return the files of outputs that later stages read, by operator and name."""
        return {
            (uid, name): _paths(earlier.get(uid, ()), name)
            for uid, name in self.compiled.staged
        }

    def shared(
        self, earlier: Mapping[str, Iterable[Vote]]
    ) -> list[tuple[Node, WriteStage, list[str]]]:
        """Return the steps that stages of their own have evaluated, and their files."""
        return [
            (stage.node, stage, _paths(earlier[stage.id], MAIN))
            for stage in self.compiled.shared
            if stage.id in earlier
        ]

    def _place(self, stage: str) -> Place:
        return Place(
            storage=self.storage,
            region=self.region,
            stage=stage,
            run=self.run,
            token=self.token,
            flow=self.flow,
        )


def needs_initial(stage: KeyedStage, parent: Manifest | None) -> bool:
    """Tell whether an operator takes its initial state in this epoch."""
    is_new = parent is None or stage.id not in parent.operators
    return is_new and stage.node.initial is not None


def _paths(votes: Iterable[Vote], name: str) -> list[str]:
    return [path for vote in votes for path in vote.staged.get(name, ())]


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
