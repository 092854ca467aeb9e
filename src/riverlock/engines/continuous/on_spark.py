"""The continuous engine on Spark: its tasks are those of a barrier stage that stays.

Spark starts all of them together, or none, and never gets a row from them: they read,
exchange and stage by themselves. When one dies, Spark gives up the stage, and the next
generation is a new one.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from typing import TYPE_CHECKING, Any, Final

from py4j.protocol import Py4JError
from pyspark import InheritableThread

from riverlock.core.errors import InvalidConfigError
from riverlock.core.types import schema_of
from riverlock.engines.continuous.spark_task import SparkTask
from riverlock.engines.jobs.compiled.analysis import CompiledAnalysis
from riverlock.engines.jobs.engine import JobsEngine
from riverlock.engines.jobs.executors import is_local
from riverlock.engines.jobs.frames.initial_state import initial_frame
from riverlock.engines.tables.initial_state import initial_rows
from riverlock.engines.tables.rows import ArrowRows

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

    from riverlock.connectors.base.source_reader import Reader
    from riverlock.core.errors import RiverlockError
    from riverlock.driver.run_options import RunOptions
    from riverlock.engines.continuous.hosts import Hosts
    from riverlock.engines.tables.nodes import Computed
    from riverlock.program.graph import Read
    from riverlock.program.program import Program
    from riverlock.stages.compiled import CompiledFlow, KeyedStage
    from riverlock.storage.base import Storage

__all__ = ["SparkGround", "SparkHosts"]

log = logging.getLogger(__name__)

# How long tasks may take to end by themselves: longer than user code usually runs.
_END_SECONDS: Final = 10.0


class SparkGround:
    """Sources, expressions and sinks as with jobs; tasks in a barrier stage."""

    def __init__(self, options: RunOptions) -> None:
        """Start nothing yet."""
        self.engine = JobsEngine(options)
        self._places = _Places()
        # What has analysed the flow of a region, for what comes after planning.
        self._analyses: dict[str, _Analysis] = {}

    def reader(self, node: Read, storage: Storage) -> Reader:
        """Return the reader of a source."""
        return self.engine.reader(node, storage)

    def analysis(
        self, flow: Program, readers: Mapping[str, Reader]
    ) -> CompiledAnalysis:
        """Return what Spark knows about the steps of a flow."""
        found = _Analysis(self.engine.session, flow, readers)
        self._analyses[flow.region] = found
        return found

    def computed(self, compiled: CompiledFlow) -> Computed:
        """Return the expressions of a flow, compiled."""
        found = self._analyses[compiled.flow.region].found
        assert found is not None, "it was not planned"
        return found

    def initial(self, stage: KeyedStage) -> ArrowRows:
        """Return the initial state of an operator, which may be a DataFrame."""
        if isinstance(stage.node.initial, tuple):
            return initial_rows(stage.node)
        frame = initial_frame(self.engine.session, stage.node)
        schema = schema_of(frame.schema)
        return ArrowRows(schema, frame.toArrow().cast(schema.to_arrow()))

    def hosts(self) -> Hosts:
        """Return what runs tasks."""
        return SparkHosts(self.engine.session, self._places)


class _Analysis(CompiledAnalysis):
    """Compiles expressions as soon as the flow is planned, so that a check refuses."""

    found: Computed | None = None

    def planned(self, compiled: CompiledFlow) -> None:
        """Compile the expressions of a flow.

        Raises:
            InvalidFlowError: One is outside of the subset; it is named.
        """
        self.found = self.computed(compiled)


class _Places:
    """How many tasks all runs on one session hold."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held = 0

    @property
    def held(self) -> int:
        return self._held

    def hold(self, tasks: int) -> None:
        with self._lock:
            self._held += tasks


class SparkHosts:
    """Runs tasks in barrier stages of a session."""

    def __init__(self, spark: SparkSession, places: _Places | None = None) -> None:
        """Start nothing yet; ``places`` is shared by all runs on the session."""
        self._spark, self._places = spark, places or _Places()

    @property
    def address(self) -> str | None:
        """The address by which executors reach the driver, as Spark knows it."""
        if is_local(self._spark):
            return None
        return self._spark.sparkContext.getConf().get("spark.driver.host")

    def refusal(self, tasks: int) -> RiverlockError | None:
        """Return why there are too few cores for so many tasks; None: there are not.

        Each holds one as long as the flow runs. Spark would wait for more, for ever.
        """
        cores, held = self._cores(), self._places.held
        if tasks <= cores - held:
            return None
        others = f", of which {held} are held by other regions" if held else ""
        return InvalidConfigError(
            "parallelism with execution='continuous'",
            expected=f"at most {max(cores - held, 0)}: each task holds a core of Spark"
            f" for as long as the flow runs; there are {cores}{others}",
            found=str(tasks),
            hint="set parallelism=, give Spark more cores, or use execution='jobs'",
        )

    def _cores(self) -> int:
        context: Any = self._spark.sparkContext
        if is_local(self._spark):
            return int(context.defaultParallelism)
        scala = context._jsc.sc()
        profile = scala.resourceProfileManager().defaultResourceProfile()
        return int(scala.maxNumConcurrentTasks(profile))

    def start(self, invitation: bytes, tasks: int) -> _Job:
        """Start the tasks of a generation."""
        self._places.hold(tasks)
        return _Job(self._spark, invitation, tasks, self._places)


class _Job:
    """One barrier stage, waited for by a thread of its own."""

    def __init__(
        self, spark: SparkSession, invitation: bytes, tasks: int, places: _Places
    ) -> None:
        self._spark, self._places = spark, places
        self._tasks, self._invitation = tasks, invitation
        self._group = f"riverlock-tasks-{id(self)}"
        self._failure: str | None = None
        self._thread = InheritableThread(target=self._run, session=spark)
        self._thread.name = "riverlock-tasks"
        self._thread.daemon = True
        self._thread.start()

    def _run(self) -> None:
        context, numbers = self._spark.sparkContext, range(self._tasks)
        try:
            context.setJobGroup(self._group, f"riverlock: {self._tasks} tasks")
            stage = context.parallelize(numbers, self._tasks).barrier()
            stage.mapPartitions(SparkTask(self._invitation)).collect()
            self._failure = "Spark has ended the tasks"
        except Exception as error:
            log.debug("the stage of the tasks has failed", exc_info=True)
            self._failure = _first_line(error)
        finally:
            self._places.hold(-self._tasks)

    def failure(self) -> str | None:
        """Return why Spark has given up the stage."""
        return self._failure

    def stop(self) -> None:
        """Wait until the stage has ended; cancel it if it does not."""
        self._thread.join(_END_SECONDS)
        if self._thread.is_alive():
            log.warning("tasks did not end within %s seconds", _END_SECONDS)
            with contextlib.suppress(Py4JError, ConnectionError, AttributeError):
                self._spark.sparkContext.cancelJobGroup(self._group)
            self._thread.join()


def _first_line(error: Exception) -> str:
    """Return what Spark says, without the frames of Java and Python."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    told = next((x for x in lines if "Exception:" in x or "Error:" in x), None)
    return (told or (lines[0] if lines else type(error).__name__))[:500]
