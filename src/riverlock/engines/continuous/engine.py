"""The continuous engine: tasks start once, and run epoch after epoch.

What it reads, how steps are analysed and what commits sinks is up to the ground that it
stands on, as is where its tasks run: Spark (``on_spark``), or processes of a test.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from riverlock.connectors.base.splits import Divided
from riverlock.core.errors import InvalidFlowError
from riverlock.engines.continuous.deployment import ContinuousDeployment
from riverlock.sinks import EpochFunction

if TYPE_CHECKING:
    from collections.abc import Mapping

    from riverlock.connectors.base.committer import Committer
    from riverlock.connectors.base.sink import SinkUse
    from riverlock.connectors.base.source_reader import Reader
    from riverlock.core.errors import RiverlockError
    from riverlock.core.types import Schema
    from riverlock.driver.engine import Engine
    from riverlock.engines.continuous.hosts import Hosts
    from riverlock.engines.tables.nodes import Computed
    from riverlock.engines.tables.rows import ArrowRows
    from riverlock.program.graph import Read, Write
    from riverlock.program.program import Program
    from riverlock.stages.analysis import Analysis
    from riverlock.stages.compiled import CompiledFlow, KeyedStage
    from riverlock.stages.stage_tasks import StageTasks
    from riverlock.storage.base import Storage

__all__ = ["ContinuousEngine", "Ground"]


class Ground(Protocol):
    """What the engine stands on."""

    @property
    def engine(self) -> Engine:
        """An engine that reads the same sources and commits the same sinks."""
        ...

    def reader(self, node: Read, storage: Storage) -> Reader:
        """Return the reader of a source, which is ``Divided`` if tasks can read it."""
        ...

    def analysis(self, flow: Program, readers: Mapping[str, Reader]) -> Analysis:
        """Return what tells planning about the steps of a flow."""
        ...

    def computed(self, compiled: CompiledFlow) -> Computed | None:
        """Return the expressions of a flow that was planned."""
        ...

    def initial(self, stage: KeyedStage) -> ArrowRows:
        """Return the initial state of an operator."""
        ...

    def hosts(self) -> Hosts:
        """Return what runs tasks."""
        ...


class ContinuousEngine:
    """Runs flows on tasks that stay; see ``driver.engine`` for the contract."""

    def __init__(self, ground: Ground) -> None:
        """Start nothing yet."""
        self._ground, self._engine = ground, ground.engine

    @property
    def opens_slowly(self) -> bool:
        """Whether Spark may have to be started."""
        return self._engine.opens_slowly

    @property
    def is_here(self) -> bool:
        """Whether all tasks run on this machine."""
        return self._engine.is_here

    @property
    def cores(self) -> int:
        """How many tasks run at a time."""
        return self._engine.cores

    def open(self) -> None:
        """Get ready; no task is started yet."""
        self._engine.open()

    def close(self) -> None:
        """Release everything except what the caller provided."""
        self._engine.close()

    def lost(self) -> RiverlockError | None:
        """Return what to raise if what tasks run on is gone."""
        return self._engine.lost()

    def reader(self, node: Read, storage: Storage) -> Reader:
        """Return the reader of a source.

        Raises:
            InvalidFlowError: Python does not read it.
        """
        found = self._ground.reader(node, storage)
        # A reader is asked for by its interface; the type does not say whether it has.
        each: object = found
        if not isinstance(each, Divided):
            found.close()
            raise InvalidFlowError(
                f"source {node.uid!r} with execution='continuous'",
                expected="a source that tasks read in Python",
                found=node.source.kind,
                hint="it runs with execution='jobs'",
            )
        return found

    def source_columns(self, reader: Reader) -> Schema:
        """Return the columns that a source has now."""
        return self._engine.source_columns(reader)

    def analysis(self, flow: Program, readers: Mapping[str, Reader]) -> Analysis:
        """Return what tells planning about the steps of a flow."""
        return self._ground.analysis(flow, readers)

    def committer(self, write: Write, use: SinkUse, storage: Storage) -> Committer:
        """Return what commits a sink.

        Raises:
            InvalidFlowError: Its commits need Spark, whose cores tasks hold.
        """
        if isinstance(write.sink, EpochFunction):
            raise InvalidFlowError(
                f"sink {write.uid!r} with execution='continuous'",
                expected="a sink that commits without Spark",
                found="for_each_epoch, whose function gets a DataFrame",
                hint="use for_each_row, or run the flow with execution='jobs'",
            )
        return self._engine.committer(write, use, storage)

    def deploy(
        self, tasks: StageTasks, readers: Mapping[str, Reader]
    ) -> ContinuousDeployment:
        """Return what runs the stages of a flow.

        Raises:
            InvalidConfigError: So many tasks can never run at a time.
        """
        hosts = self._ground.hosts()
        refusal = hosts.refusal(tasks.parallelism)
        if refusal is not None:
            raise refusal
        return ContinuousDeployment(
            tasks,
            readers,
            hosts,
            self._ground.computed(tasks.compiled),
            self._ground.initial,
        )
