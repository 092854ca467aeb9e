"""Runs the stages of an epoch in this thread: the tasks of a stage, one by one."""

from __future__ import annotations

import dataclasses
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from riverlock.connectors.base.source_reader import check_read
from riverlock.core.errors import EpochAbortedError
from riverlock.engines.tables.exchange import KeyedInput, exchanged, owned
from riverlock.engines.tables.initial_state import initial_rows
from riverlock.engines.tables.nodes import Tables
from riverlock.engines.tables.reading import ranges_of, share_of
from riverlock.engines.tables.rows import Stored
from riverlock.program.graph import declared_behind_keyed
from riverlock.stages.compiled import KeyedStage
from riverlock.stages.stage_tasks import needs_initial

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    import pyarrow as pa

    from riverlock.connectors.base.source_reader import Reader
    from riverlock.coordinator.instructions import RunStage
    from riverlock.coordinator.votes import Vote
    from riverlock.engines.tables.rows import Given
    from riverlock.snapshot.format.records import InputRange, Manifest
    from riverlock.stages.stage_tasks import StageTasks

__all__ = ["LocalDeployment"]


@dataclass(frozen=True)
class LocalDeployment:
    """One run of a flow in this process; see ``driver.engine``."""

    tasks: StageTasks
    readers: Mapping[str, Reader]
    _cancelled: threading.Event = field(default_factory=threading.Event)

    def run_stage(
        self,
        order: RunStage,
        parent: Manifest | None,
        following: Mapping[str, InputRange] | None,
    ) -> tuple[Vote, ...]:
        """Run one stage; return one vote per task.

        Raises:
            RiverlockError: What a task says went wrong.
        """
        self._cancelled.clear()
        tasks = dataclasses.replace(self.tasks, parallelism=order.parallelism)
        stage, rows = tasks.stage(order), self.delivered(order, parent)
        if isinstance(stage, KeyedStage):
            task, begun = tasks.keyed(stage), tasks.begun(stage, order, parent)
            return self._votes(
                order,
                range(tasks.parallelism),
                lambda part: task.vote(rows.get(part, []), part, begun),
            )
        writing = tasks.write(stage, order)
        return self._votes(order, rows, lambda part: writing.vote(rows[part], part))

    def _votes(
        self, order: RunStage, parts: Iterable[int], vote: Callable[[int], Vote]
    ) -> tuple[Vote, ...]:
        votes = []
        for part in parts:
            if self._cancelled.is_set():
                raise EpochAbortedError(
                    epoch=order.epoch,
                    reason=f"stage {order.stage!r} was cancelled",
                    cause="the run was told to stop what runs",
                )
            votes.append(vote(part))
        return tuple(votes)

    def delivered(
        self, order: RunStage, parent: Manifest | None
    ) -> dict[int, list[pa.RecordBatch]]:
        """Return the rows that the tasks of a stage get, by task."""
        tasks = dataclasses.replace(self.tasks, parallelism=order.parallelism)
        stage = tasks.stage(order)
        if isinstance(stage, KeyedStage):
            found = self._placed(stage, tasks, order, parent)
        else:
            table = self._tables(order, parent).rows(stage.given).table
            found = {0: table} if table.num_rows else {}
        check_read(self.readers, order.planned.inputs)
        return {part: table.to_batches() for part, table in found.items()}

    def _placed(
        self,
        stage: KeyedStage,
        tasks: StageTasks,
        order: RunStage,
        parent: Manifest | None,
    ) -> dict[int, pa.Table]:
        """Return the rows of a stage by the task that owns their keys."""
        is_new, inputs = needs_initial(stage, parent), order.planned.inputs
        given = KeyedInput.of(stage, tasks.compiled.flow.key_groups)
        shares = tasks.shares(stage, inputs, self.readers, takes_initial=is_new)
        if shares is None:
            initial = initial_rows(stage.node) if is_new else None
            tables = self._tables(order, parent)
            return exchanged(given, tables, tasks.parallelism, initial)
        uid = stage.channel or ""
        read = {
            part: {uid: share_of(self.readers, uid, shares, part)}
            for part in range(tasks.parallelism)
        }
        mine = {part: self._tables(order, parent, own) for part, own in read.items()}
        return owned(given, mine)

    def _tables(
        self,
        order: RunStage,
        parent: Manifest | None,
        own: Mapping[str, Given] | None = None,
    ) -> Tables:
        """Return the tables of an epoch; ``own`` is what a task reads by itself."""
        tasks, earlier = self.tasks, order.earlier
        outputs = tasks.compiled.staged
        staged = {
            place: Stored.output(outputs[place], paths)
            for place, paths in tasks.staged(earlier).items()
        }
        compiled = tasks.compiled
        tables = Tables(
            compiled.event_times,
            ranges_of(compiled.flow, self.readers, order.planned.inputs)
            | dict(own or {}),
            staged,
            tasks.late(order, parent),
            tasks.storage,
            says_source=any(map(declared_behind_keyed, compiled.flow.keyed)),
        )
        for node, stage, paths in tasks.shared(earlier):
            tables.share(node, dataclasses.replace(stage.stored, paths=paths))
        return tables

    def cancel(self) -> None:
        """Run no further task of the stage that runs; from any thread."""
        self._cancelled.set()

    def close(self) -> None:
        """Nothing is open."""
