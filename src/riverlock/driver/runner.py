"""Runs flows on an engine: in this thread (``run``) or beside it (``start``)."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from typing import TYPE_CHECKING

from riverlock.connectors.base.sink import Probed
from riverlock.driver.engine import while_it_is_there
from riverlock.driver.handle import Handle
from riverlock.driver.regions_run import RegionsRun
from riverlock.driver.starting.continuing import check_continues, compiled_on
from riverlock.driver.starting.left_regions import check_left_regions
from riverlock.driver.starting.source_readers import readers_of
from riverlock.driver.stop_signals import stopped_by_signals
from riverlock.program.regions import channel_columns, part_of, regions_of
from riverlock.snapshot.catalog import Catalog
from riverlock.storage.open import open_storage

if TYPE_CHECKING:
    from riverlock.core.types import Schema
    from riverlock.driver.engine import Engine
    from riverlock.driver.run_options import RunOptions
    from riverlock.program.program import Program
    from riverlock.snapshot.format.run_status import Status
    from riverlock.stages.compiled import CompiledFlow

__all__ = ["check", "check_start", "run", "start"]


def run(flow: Program, store: str, engine: Engine, options: RunOptions) -> Status:
    """Run in this thread; SIGINT and SIGTERM finish the epoch in progress.

    Raises:
        RiverlockError: What ended the run.
    """
    running = RegionsRun(flow, open_storage(store), engine, options)
    with running, stopped_by_signals(running.stop):
        running.drive()
        return running.status()


def start(flow: Program, store: str, engine: Engine, options: RunOptions) -> Handle:
    """Run in a thread of its own; return once the flow is checked and owns its store.

    If a source does not answer, it returns while the run waits for it.

    Raises:
        RiverlockError: The flow cannot run here.
    """
    return Handle(RegionsRun(flow, open_storage(store), engine, options))


def check_start(flow: Program, engine: Engine, *, store: str | None = None) -> None:
    """Check a flow without reading anything; sinks are asked whether they would work.

    Args:
        flow: The flow.
        engine: What would run it; the caller opens and closes it.
        store: A store to continue from, which is not touched.

    Raises:
        RiverlockError: A start would be refused.
    """
    columns: dict[str, Schema] = {}
    if store is not None:
        check_left_regions(Catalog(open_storage(store)), flow)
    for region in regions_of(flow):
        part = part_of(flow, region)
        made = _checked(part, engine, columns, store=store)
        with (
            while_it_is_there(engine),
            tempfile.TemporaryDirectory() as nowhere,
            ExitStack() as stack,
        ):
            storage = open_storage(nowhere)
            if store is not None:
                catalog = Catalog(open_storage(store), region)
                readers = readers_of(part, engine, catalog.storage, stack, columns)
                check_continues(catalog, made, readers)
            for write in part.writes:
                sink = engine.committer(write, made.uses[write.uid], storage)
                if isinstance(sink, Probed):
                    sink.probe()
        columns |= channel_columns(made.flow, made.uses)


def check(
    flow: Program, engine: Engine, *, store: str | None = None
) -> tuple[CompiledFlow, ...]:
    """Check a flow, but for its sinks; return what would run, by region.

    Args:
        flow: The flow.
        engine: What would run it; the caller opens and closes it.
        store: A store to continue from, which is not touched: what a source has lost
            since its newest epoch is told if it is missed.

    Raises:
        InvalidFlowError: Something in it is impossible.
    """
    columns: dict[str, Schema] = {}
    found = []
    for region in regions_of(flow):
        made = _checked(part_of(flow, region), engine, columns, store=store)
        columns |= channel_columns(made.flow, made.uses)
        found.append(made)
    return tuple(found)


def _checked(
    part: Program, engine: Engine, columns: dict[str, Schema], *, store: str | None
) -> CompiledFlow:
    with (
        while_it_is_there(engine),
        tempfile.TemporaryDirectory() as nowhere,
        ExitStack() as stack,
    ):
        readers = readers_of(part, engine, open_storage(nowhere), stack, columns)
        known = None if store is None else Catalog(open_storage(store), part.region)
        return compiled_on(known, part, engine, readers)
