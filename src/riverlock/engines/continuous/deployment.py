"""Runs the stages of an epoch on tasks that stay, generation after generation."""

from __future__ import annotations

import dataclasses
import logging
import threading
from typing import TYPE_CHECKING

from riverlock.connectors.base.source_reader import check_read
from riverlock.core.errors import EpochAbortedError, ExchangeError, InvalidConfigError
from riverlock.engines.continuous.generation import Generation
from riverlock.engines.continuous.orders import Setup, Share, StageOrder, packed
from riverlock.engines.tables.reading import shares
from riverlock.engines.tables.task_inputs import TaskInputs
from riverlock.exchange.limits import Limits
from riverlock.exchange.seam import Shape
from riverlock.exchange.sockets.driver import SocketDriver
from riverlock.stages.compiled import KeyedStage
from riverlock.stages.stage_tasks import needs_initial

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import pyarrow as pa

    from riverlock.connectors.base.source_reader import Reader
    from riverlock.coordinator.instructions import RunStage
    from riverlock.coordinator.votes import Vote
    from riverlock.engines.continuous.hosts import Hosts
    from riverlock.engines.tables.nodes import Computed
    from riverlock.engines.tables.rows import ArrowRows
    from riverlock.snapshot.format.records import InputRange, Manifest
    from riverlock.stages.stage_tasks import StageTasks

__all__ = ["ContinuousDeployment"]

log = logging.getLogger(__name__)


class ContinuousDeployment:
    """One run of a flow; see ``driver.engine``.

    Whatever goes wrong ends the generation: nothing of an epoch that failed is left
    anywhere, and the next stage begins with new tasks.
    """

    def __init__(
        self,
        tasks: StageTasks,
        readers: Mapping[str, Reader],
        hosts: Hosts,
        computed: Computed | None,
        initial: Callable[[KeyedStage], ArrowRows],
    ) -> None:
        """Start nothing yet: how many tasks there are, the first order says.

        Args:
            tasks: What tasks run.
            readers: The sources.
            hosts: Where tasks run.
            computed: Steps that are expressions.
            initial: Returns the initial state of an operator.
        """
        self._initial = initial
        self._tasks, self._readers, self._hosts = tasks, readers, hosts
        self._inputs = TaskInputs.of(tasks.compiled, readers, computed)
        self._edges = {s.id: n for n, s in enumerate(tasks.compiled.keyed)}
        self._control = SocketDriver(hosts.address)
        self._generation: Generation | None = None
        self._cancelled = threading.Event()

    def run_stage(
        self,
        order: RunStage,
        parent: Manifest | None,
        following: Mapping[str, InputRange] | None,
    ) -> tuple[Vote, ...]:
        """Run one stage; return one vote per task.

        Raises:
            RiverlockError: What a task says went wrong, or that one is gone.
        """
        self._cancelled.clear()
        try:
            # Before tasks take all the cores that it may need.
            initial = self._initial_rows(order, parent)
            generation = self._fitting(order)
            share = self._shares(order, initial, generation)
            votes = generation.run(self._stage_order(order, parent), share)
            check_read(self._readers, order.planned.inputs)
        except ExchangeError as error:
            self._end()
            raise EpochAbortedError(
                epoch=order.epoch, reason=error.reason, cause=error.what
            ) from error
        except BaseException:
            self._end()
            raise
        return votes

    def _initial_rows(
        self, order: RunStage, parent: Manifest | None
    ) -> ArrowRows | None:
        stage = self._tasks.stage(order)
        if isinstance(stage, KeyedStage) and needs_initial(stage, parent):
            return self._initial(stage)
        return None

    def _stage_order(self, order: RunStage, parent: Manifest | None) -> StageOrder:
        """Return what all tasks are told."""
        tasks = dataclasses.replace(self._tasks, parallelism=order.parallelism)
        stage, planned, begun = tasks.stage(order), order.planned, None
        if isinstance(stage, KeyedStage):
            begun = tasks.begun(stage, order, parent)
        return StageOrder(
            epoch=order.epoch,
            turn=order.turn,
            stage=order.stage,
            seed=planned.seed,
            now_us=planned.now_us,
            begun=begun,
            late=tasks.late(order, parent),
        )

    def _shares(
        self, order: RunStage, initial: ArrowRows | None, generation: Generation
    ) -> list[Share]:
        """Return what each task is told beside."""
        found = [Share(pieces=None)] * order.parallelism
        if generation.is_first(order):
            inputs = order.planned.inputs
            pieces = shares(self._readers, inputs, order.parallelism)
            found = [Share(pieces=each) for each in pieces]
        if initial is not None:
            found[0] = dataclasses.replace(found[0], initial=initial)
        return found

    def _fitting(self, order: RunStage) -> Generation:
        """Return the generation that can run a stage; a new one if need be.

        Raises:
            RiverlockError: Its tasks cannot be started, or do not come.
        """
        if self._generation is not None and self._generation.fits(order):
            return self._generation
        self._end()
        refusal = self._hosts.refusal(order.parallelism)
        if refusal is not None:
            # Executors may come back, and the start has looked before.
            raise EpochAbortedError(
                epoch=order.epoch,
                reason="there is no place for all tasks",
                cause=refusal.message,
            )
        shape = Shape(
            tasks=order.parallelism,
            edges=max(1, len(self._edges)),
            first_epoch=order.epoch,
            limits=Limits(),
        )
        log.info("starting %s tasks for epoch %s", shape.tasks, shape.first_epoch)
        setup = self._setup(order.parallelism)
        self._generation = Generation(
            self._control, self._hosts, shape, self._edges, self._cancelled
        )
        self._generation.begin(setup)
        return self._generation

    def _setup(self, parallelism: int) -> bytes:
        tasks = dataclasses.replace(self._tasks, parallelism=parallelism)
        compiled = tasks.compiled
        return packed(
            Setup(
                inputs=self._inputs,
                keyed={s.id: tasks.keyed(s) for s in compiled.keyed},
                writes={
                    # What user code makes of rows, the inputs know.
                    s.id: dataclasses.replace(tasks.writing(s), split=None)
                    for s in compiled.stages
                    if not isinstance(s, KeyedStage)
                },
                edges=self._edges,
                tasks=parallelism,
            )
        )

    def _end(self) -> None:
        if self._generation is not None:
            self._generation.end()
            self._generation = None

    def delivered(
        self, order: RunStage, parent: Manifest | None
    ) -> dict[int, list[pa.RecordBatch]]:
        """Refuse: a replay needs no tasks that stay.

        Raises:
            InvalidConfigError: Always.
        """
        raise InvalidConfigError(
            "replay with execution='continuous'",
            expected="execution='jobs' or 'local': the rows are the same",
            found="'continuous'",
            hint="whatever engine ran the epochs, another one can replay them",
        )

    def cancel(self) -> None:
        """Stop whatever runs; from any thread."""
        self._cancelled.set()
        self._control.end()

    def close(self) -> None:
        """End the tasks, and wait until they have ended."""
        self._end()
        self._control.close()
