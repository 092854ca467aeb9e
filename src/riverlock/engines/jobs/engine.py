"""The jobs engine: every stage of an epoch is a Spark job."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

from riverlock.driver.starting.sink_committers import committer_of
from riverlock.engines.jobs.ahead import ReadAhead
from riverlock.engines.jobs.analysis import SparkAnalysis
from riverlock.engines.jobs.deployment import JobsDeployment
from riverlock.engines.jobs.epoch_functions import EpochFunctionCommitter
from riverlock.engines.jobs.executors import attendance_on, is_local
from riverlock.engines.jobs.frames.nodes import known_columns
from riverlock.engines.jobs.readers import reader_of
from riverlock.sinks import EpochFunction
from riverlock.snapshot.format.store_layout import RegionPaths
from riverlock.spark.session import job_conf, local_session
from riverlock.spark.virtual_machine import loss

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

    from riverlock.connectors.base.committer import Committer
    from riverlock.connectors.base.sink import SinkUse
    from riverlock.connectors.base.source_reader import Reader
    from riverlock.core.errors import RiverlockError
    from riverlock.core.types import Schema
    from riverlock.driver.run_options import RunOptions
    from riverlock.program.graph import Read, Write
    from riverlock.program.program import Program
    from riverlock.stages.stage_tasks import StageTasks
    from riverlock.storage.base import Storage

__all__ = ["JobsEngine"]


class JobsEngine:
    """Runs flows on a Spark session; see ``driver.engine`` for the contract."""

    def __init__(self, options: RunOptions) -> None:
        """Start nothing yet."""
        self._options = options
        self._stack = ExitStack()
        self._session: SparkSession | None = None

    @property
    def opens_slowly(self) -> bool:
        """Whether Spark may have to be started."""
        return self._options.spark is None

    @property
    def is_here(self) -> bool:
        """Whether the driver runs the tasks itself."""
        return is_local(self._spark)

    @property
    def cores(self) -> int:
        """How many tasks Spark runs at a time."""
        return self._spark.sparkContext.defaultParallelism

    def open(self) -> None:
        """Get a session, and apply the settings that our jobs need."""
        self._session = self._options.spark or local_session()
        self._stack.enter_context(job_conf(self._session))

    def close(self) -> None:
        """Put the settings back; the session stays open."""
        self._stack.close()

    def lost(self) -> RiverlockError | None:
        """Return what to raise if Spark's JVM is gone."""
        return loss()

    def reader(self, node: Read, storage: Storage) -> Reader:
        """Return the reader of a source.

        Raises:
            InvalidFlowError: Nothing reads it.
        """
        return reader_of(
            self._spark,
            node,
            (storage, RegionPaths(node.region)),
            self._options.clock,
            takes_all=self._options.available_now,
        )

    def source_columns(self, reader: Reader) -> Schema:
        """Return the columns that a source has now, as far as we know their types."""
        at = reader.initial()
        return known_columns(reader.read(at, at))

    def analysis(self, flow: Program, readers: Mapping[str, Reader]) -> SparkAnalysis:
        """Return what Spark knows about the steps of a flow."""
        return SparkAnalysis(self._spark, flow, readers)

    def committer(self, write: Write, use: SinkUse, storage: Storage) -> Committer:
        """Return the committer of a sink.

        Raises:
            InvalidFlowError: There is none.
        """
        if isinstance(write.sink, EpochFunction):
            return EpochFunctionCommitter(write.sink, storage, self._spark, use.schema)
        return committer_of(write, use, storage)

    def deploy(
        self, tasks: StageTasks, readers: Mapping[str, Reader]
    ) -> JobsDeployment:
        """Return what runs the stages of a flow."""
        return JobsDeployment(
            spark=self._spark,
            tasks=tasks,
            readers=readers,
            ahead=ReadAhead(self._spark),
            attendance=attendance_on(self._spark, self._options),
        )

    @property
    def session(self) -> SparkSession:
        """The session that it runs on, once it is open."""
        return self._spark

    @property
    def _spark(self) -> SparkSession:
        assert self._session is not None, "it was not opened"
        return self._session
