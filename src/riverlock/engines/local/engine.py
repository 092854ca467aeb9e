"""The local engine: flows of Python steps in one thread, without Spark or Java.

Everything but the exchange is that of every run: store, coordinator, planner, tasks,
working copies, sinks. It reads what needs no Spark: lists of rows, and ``rl.sources``
whose rows follow from their number (``rate``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from riverlock.connectors.base.own_source import ReplayableSource
from riverlock.connectors.channel.ends import ChannelSource, JoinedChannel, LoopSource
from riverlock.connectors.channel.joined_reader import JoinedReader, end_of
from riverlock.connectors.channel.reader import ChannelReader
from riverlock.connectors.generator.source_numbers import NumbersReader, is_numbers
from riverlock.connectors.own_source.table_reader import TableReader
from riverlock.connectors.rows.reader import RowsReader
from riverlock.connectors.rows.source import Rows
from riverlock.driver.starting.sink_committers import committer_of
from riverlock.engines.local.analysis import LocalAnalysis
from riverlock.engines.local.deployment import LocalDeployment
from riverlock.engines.tables.refusals import needs_spark
from riverlock.sinks import EpochFunction
from riverlock.sources import Generator
from riverlock.storage.open import open_storage

if TYPE_CHECKING:
    from collections.abc import Mapping

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

__all__ = ["LocalEngine"]


class LocalEngine:
    """Runs flows in the thread that drives them; see ``driver.engine``."""

    opens_slowly = False
    is_here = True
    cores = 1

    def __init__(self, options: RunOptions) -> None:
        """Take the clock that paces generated rows."""
        self._options = options

    def open(self) -> None:
        """Nothing to get ready."""

    def close(self) -> None:
        """Nothing is open."""

    def lost(self) -> RiverlockError | None:
        """Return nothing: it is there as long as the caller."""
        return None

    def reader(self, node: Read, storage: Storage) -> Reader:
        """Return what reads a source.

        Raises:
            InvalidFlowError: It needs Spark.
        """
        source = node.source
        if isinstance(source, ChannelSource | LoopSource):
            return ChannelReader(source, node.uid, storage)
        if isinstance(source, JoinedChannel):
            there = open_storage(source.store)
            joined = JoinedReader(end_of(source), node.uid, there)
            return joined.join(takes_all=self._options.available_now)
        if isinstance(source, Rows):
            return RowsReader(source)
        if isinstance(source, Generator) and is_numbers(source):
            return NumbersReader(source, self._options.clock)
        if isinstance(source, ReplayableSource):
            return TableReader(source, node.uid)
        raise needs_spark(f"source {node.uid!r}", f"{source.kind}, which Spark reads")

    def source_columns(self, reader: Reader) -> Schema:
        """Return the declared columns."""
        schema: Schema = reader.schema  # type: ignore[attr-defined]
        return schema

    def analysis(self, flow: Program, readers: Mapping[str, Reader]) -> LocalAnalysis:
        """Return what is declared of the steps of a flow."""
        return LocalAnalysis(flow, readers)

    def committer(self, write: Write, use: SinkUse, storage: Storage) -> Committer:
        """Return what commits a sink.

        Raises:
            InvalidFlowError: It needs Spark.
        """
        if isinstance(write.sink, EpochFunction):
            raise needs_spark(f"sink {write.uid!r}", "a function of a DataFrame")
        return committer_of(write, use, storage)

    def deploy(
        self, tasks: StageTasks, readers: Mapping[str, Reader]
    ) -> LocalDeployment:
        """Return what runs the stages of a flow."""
        return LocalDeployment(tasks, readers)
