"""A flow on a real store, without Spark: each ``run`` is one life of a driver.

The local engine runs it: loop, planner, tasks, sinks and store are those of every run.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import riverlock as rl
from riverlock.connectors.base.source_reader import Reader
from riverlock.connectors.rows.reader import RowsReader
from riverlock.connectors.rows.source import Rows
from riverlock.coordinator.restart import NoRestart
from riverlock.core.clock import ManualClock
from riverlock.core.types import schema_of
from riverlock.driver.cleaner import Cleaner
from riverlock.driver.region_loop import RegionDriver
from riverlock.driver.region_run import Run
from riverlock.driver.run_options import RunOptions
from riverlock.engines.local.engine import LocalEngine
from riverlock.flow.inside import program_of
from riverlock.program.graph import Read
from riverlock.replay import rerun
from riverlock.replay.report import Replay
from riverlock.snapshot.catalog import Catalog
from riverlock.snapshot.retention.policy import Retention
from riverlock.state.copy.lmdb import close_below
from riverlock.storage import LocalStorage
from riverlock.storage.base import Storage

KEEP = Retention(grace=timedelta(0))


class GivenEngine(LocalEngine):
    """Reads the rows of a flow, whatever its source is."""

    def __init__(self, flow: LocalFlow, options: RunOptions) -> None:
        super().__init__(options)
        self._flow = flow

    def reader(self, node: Read, storage: Storage) -> Reader:
        assert node.source.schema is not None
        return RowsReader(
            Rows(
                schema=node.source.schema,
                rows=self._flow.rows,
                bounded=self._flow.ends,
            )
        )


class KeepingRun(Run):
    """A run that keeps what it is told to, also less than users may ask for."""

    def __init__(
        self, flow: LocalFlow, options: RunOptions, retention: Retention
    ) -> None:
        storage, engine = LocalStorage(flow.store), GivenEngine(flow, options)
        super().__init__(program_of(flow.build()), storage, engine, options)
        self._retention = retention

    def _cleaner(self, stack: ExitStack) -> Cleaner:
        cleaner = Cleaner(self._catalog, self._retention)
        stack.callback(cleaner.stop)
        cleaner.take_up()
        return cleaner


@dataclass
class LocalFlow:
    """A flow on a store; each ``run`` is one life of a driver."""

    store: Path
    rows: list[Any]
    out: Path
    parallelism: int = 1
    clock: ManualClock = field(default_factory=ManualClock)
    # Whether no more rows will come: the last watermark there is follows.
    ends: bool = False
    # Called by a driver after each epoch.
    after: Callable[[RegionDriver], None] = lambda _: None

    def build(self) -> rl.Flow:
        """Return the flow; its only source is ``rows``."""
        raise NotImplementedError

    @property
    def catalog(self) -> Catalog:
        return Catalog(LocalStorage(self.store))

    def run(
        self,
        epochs: int | None = None,
        *,
        epoch_rows: int = 3,
        retention: Retention = KEEP,
    ) -> int:
        """Run some epochs, or until the rows are used up; returns the newest."""
        options = RunOptions(
            available_now=True,
            epoch_target=None,
            max_rows_per_epoch=epoch_rows,
            restart=NoRestart(),
            parallelism=self.parallelism,
            clock=self.clock,
            on_status=lambda _: self.after(driver_of(run)),
        )
        run = KeepingRun(self, options, retention)
        with ExitStack() as stack:
            # A driver that ends has nothing open, and a child of ours inherits nothing.
            stack.callback(close_below, self.store)
            driver = driver_of(stack.enter_context(run))
            driver.max_epochs = epochs
            self.begun(driver)
            run.drive()
        newest = self.catalog.newest()
        return -1 if newest is None else newest.epoch

    def begun(self, driver: RegionDriver) -> None:
        """Look at a driver before its first epoch; for tests to replace."""

    def replay(self, first: int, last: int) -> Replay:
        """Run epochs again."""
        engine = GivenEngine(self, RunOptions())
        return rerun.replay(
            program_of(self.build()), str(self.store), engine, first, last
        )

    def written(self, sink: str = "out") -> Counter[tuple[Any, ...]]:
        """Return the rows that readers of a sink's directory see."""
        folder = self.out if sink == "out" else self.out.with_name(sink)
        return Counter(
            tuple(json.loads(line).values())
            for file in sorted(folder.glob("epoch=*/*"))
            for line in file.read_text().splitlines()
        )


def driver_of(run: Run) -> RegionDriver:
    """Return what drives a run that has begun."""
    assert run._driver is not None
    return run._driver


def source(columns: str) -> Rows:
    """Return the source of a flow; its rows are those of the ``LocalFlow``."""
    return Rows(schema=schema_of(columns), rows=[])


def second(number: float) -> datetime:
    """Return an instant, so many seconds after a round one."""
    return datetime.fromisoformat("2026-01-01T00:00:00+00:00") + timedelta(
        seconds=number
    )
