"""Chooses the engine that a flow runs on: called by ``flow.run`` and the like."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from riverlock.driver import runner
from riverlock.driver.engine import while_it_is_there
from riverlock.driver.run_options import RunOptions, chosen
from riverlock.replay import rerun

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from datetime import timedelta
    from typing import Unpack

    from riverlock.driver.engine import Engine
    from riverlock.driver.handle import Handle
    from riverlock.driver.run_options import RunKeywords
    from riverlock.flow.stream import Stream
    from riverlock.program.program import Program
    from riverlock.replay.report import Replay
    from riverlock.snapshot.format.run_status import Status
    from riverlock.stages.compiled import CompiledFlow

__all__ = [
    "check",
    "check_start",
    "engine_of",
    "opened",
    "replay",
    "run",
    "start",
    "translate",
]


def run(flow: Program, store: str, **options: Unpack[RunKeywords]) -> Status:
    """Run in this thread; SIGINT and SIGTERM finish the epoch in progress.

    Raises:
        RiverlockError: What ended the run.
    """
    wanted = chosen(options)
    return runner.run(flow, store, engine_of(wanted), wanted)


def start(flow: Program, store: str, **options: Unpack[RunKeywords]) -> Handle:
    """Run in a thread of its own; return once the flow is checked and owns its store.

    Raises:
        RiverlockError: The flow cannot run here.
    """
    wanted = chosen(options)
    return runner.start(flow, store, engine_of(wanted), wanted)


def check(
    flow: Program, *, store: str | None = None, **options: Unpack[RunKeywords]
) -> tuple[CompiledFlow, ...]:
    """Check a flow, except for its sinks; return what would run, by region.

    Raises:
        InvalidFlowError: Something in it is impossible.
    """
    with opened(chosen(options)) as engine:
        return runner.check(flow, engine, store=store)


def check_start(
    flow: Program, *, store: str | None = None, **options: Unpack[RunKeywords]
) -> None:
    """Check a flow without reading anything; sinks are asked whether they would work.

    Raises:
        RiverlockError: A start would be refused.
    """
    with opened(chosen(options)) as engine:
        runner.check_start(flow, engine, store=store)


def replay(
    flow: Program,
    store: str,
    *args: Any,
    execution: Any,
    spark: Any,
    **options: Any,
) -> Replay:
    """Run epochs again and compare; see ``Flow.replay``."""
    with opened(RunOptions(execution=execution, spark=spark)) as engine:
        return rerun.replay(flow, store, engine, *args, **options)


def translate(
    flow: Program,
    query: str,
    tables: Mapping[str, Any],
    *,
    uid: str | None,
    lateness: str | timedelta | None,
) -> Stream:
    """Make a stream of a query, which Spark parses; see ``Flow.sql``."""
    # Not before it is needed: it loads PySpark.
    from riverlock.engines.jobs import sql

    return sql.translate(flow, query, tables, uid=uid, lateness=lateness)


@contextmanager
def opened(options: RunOptions) -> Iterator[Engine]:
    """Open an engine for the block."""
    engine = engine_of(options)
    try:
        with while_it_is_there(engine):
            engine.open()
        yield engine
    finally:
        engine.close()


def engine_of(options: RunOptions) -> Engine:
    """Return the requested engine, not open yet."""
    # Not before it is needed: one of them loads PySpark.
    if options.execution == "local":
        from riverlock.engines.local.engine import LocalEngine

        return LocalEngine(options)
    if options.execution == "continuous":
        from riverlock.engines.continuous.engine import ContinuousEngine
        from riverlock.engines.continuous.on_spark import SparkGround

        return ContinuousEngine(SparkGround(options))
    from riverlock.engines.jobs.engine import JobsEngine

    return JobsEngine(options)
