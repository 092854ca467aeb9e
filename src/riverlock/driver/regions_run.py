"""A run of a whole flow: each region in a thread of its own, on one engine.

A region that fails ends alone. The others go on, and channels keep what it has not
read; its error is raised when all have ended.
"""

from __future__ import annotations

import logging
import threading
from contextlib import ExitStack
from typing import TYPE_CHECKING

from riverlock.connectors.withdrawal import withdraw_now
from riverlock.core.errors import InvalidConfigError
from riverlock.core.ids import MAIN_REGION
from riverlock.driver.cut_keeper import CutKeeper
from riverlock.driver.intake.turning import circles_of
from riverlock.driver.region_run import Run
from riverlock.driver.starting.left_regions import check_left_regions
from riverlock.program.regions import part_of, topology_of
from riverlock.snapshot.catalog import Catalog
from riverlock.snapshot.verbs.cut import DEFAULT_PROTOCOL, take_cut
from riverlock.snapshot.verbs.restore_all import complete_restore

if TYPE_CHECKING:
    from collections.abc import Mapping

    from riverlock.core.types import Schema
    from riverlock.driver.engine import Engine
    from riverlock.driver.run_options import RunOptions
    from riverlock.program.program import Program
    from riverlock.snapshot.format.records import Change, Named
    from riverlock.snapshot.format.run_status import Status
    from riverlock.storage.base import Storage

__all__ = ["RegionsRun"]

log = logging.getLogger(__name__)
_POLL_SECONDS = 0.1


class RegionsRun:
    """The runs of all regions of a flow; see ``handle.Running``."""

    def __init__(
        self, flow: Program, storage: Storage, engine: Engine, options: RunOptions
    ) -> None:
        """Open nothing yet."""
        topology = topology_of(flow)
        names = topology.regions
        self._flow, self._storage, self._options = flow, storage, options
        self._is_cut = bool(topology.channels)
        self._keeper = CutKeeper(storage, topology, options.clock)
        circles = circles_of(topology)
        self._over = {name: threading.Event() for name in names}
        is_over = {name: event.is_set for name, event in self._over.items()}
        self._runs = {
            name: Run(
                part_of(flow, name),
                storage,
                engine,
                options,
                # The first is entered first and left last: it has the engine open.
                opens_engine=name == names[0],
                is_over=is_over,
                circle=circles.get(name),
                on_stop=self.stop,
            )
            for name in names
        }
        self._entered: dict[str, Run] = {}
        self._stopping = threading.Event()
        self._stack = ExitStack()
        self._errors: dict[str, BaseException] = {}
        self._closing: threading.Thread | None = None

    def __enter__(self) -> RegionsRun:
        with ExitStack() as stack:
            complete_restore(
                Catalog(self._storage),
                now_us=self._options.clock.now_us(),
                then=withdraw_now,
            )
            check_left_regions(Catalog(self._storage), self._flow)
            for name, run in self._runs.items():
                columns = self._columns()
                if not run.reads <= columns.keys():
                    break  # a region before it waits for a source: see _drive_region
                self._enter(name, stack, columns)
            if self._is_cut:
                self._keeper.start()
                stack.callback(self._keeper.stop)
            self._stack = stack.pop_all()
        return self

    def _enter(
        self, name: str, stack: ExitStack, columns: Mapping[str, Schema]
    ) -> None:
        run = self._runs[name]
        run.take_columns(columns)
        stack.enter_context(run)
        self._entered[name] = run

    def _columns(self) -> dict[str, Schema]:
        """Return the columns of the channels whose writers were analysed."""
        return {n: s for run in self._runs.values() for n, s in run.gives.items()}

    def __exit__(self, *exc_info: object) -> None:
        self._stack.close()

    def drive(self) -> None:
        """Run all regions to their end.

        Raises:
            RiverlockError: What ended a region.
        """
        first, *others = self._runs
        threads = [
            threading.Thread(
                target=self._drive_region, args=(name,), name=f"riverlock-{name}"
            )
            for name in others
        ]
        for thread in threads:
            thread.start()
        try:
            self._drive_region(first)
        finally:
            for thread in threads:
                thread.join()
            if self._closing is not None:
                self._closing.join()
        for error in self._errors.values():
            raise error

    def _drive_region(self, name: str) -> None:
        run = self._runs[name]
        try:
            if name in self._entered or self._enter_later(name):
                run.drive()
        except BaseException as error:  # noqa: BLE001 - raised again by drive()
            self._errors[name] = error
            if len(self._runs) > 1:
                log.error("region %r has ended, the others go on: %s", name, error)
        finally:
            self._over[name].set()

    def _enter_later(self, name: str) -> bool:
        """Wait until the regions before it are analysed; False: it is not needed."""
        run = self._runs[name]
        while not run.reads <= (columns := self._columns()).keys():
            if self._stopping.wait(_POLL_SECONDS) or self._errors:
                return False
        self._enter(name, self._stack, columns)
        return True

    def stop(self, savepoint: str | None = None) -> None:
        """Finish the epochs in progress, then end; from any thread.

        A savepoint of several regions is taken before they stop.
        """
        if savepoint is not None and self._is_cut:
            if self._closing is None:
                self._closing = threading.Thread(
                    target=self._stop_with, args=(savepoint,), name="riverlock-stop"
                )
                self._closing.start()
            return
        self._stopping.set()
        for run in self._runs.values():
            run.stop(savepoint)

    def _stop_with(self, savepoint: str) -> None:
        try:
            self.savepoint(savepoint)
        except BaseException as error:  # noqa: BLE001 - raised again by drive()
            self._errors["savepoint"] = error
        self.stop()

    def rescale(self, parallelism: int) -> None:
        """Set the number of tasks per keyed stage from the next epochs."""
        for run in self._runs.values():
            run.rescale(parallelism)

    def savepoint(self, name: str, *, protocol: str | None = None) -> Named:
        """Name one epoch of each region, such that all fit together.

        Raises:
            InvalidConfigError: The name is taken, or there is no such protocol.
            SnapshotAbandonedError: A region did not answer in time.
        """
        if not self._is_cut:
            return self._first.savepoint(name)
        return take_cut(
            Catalog(self._storage),
            name,
            protocol=protocol or DEFAULT_PROTOCOL,
            now_us=self._options.clock.now_us(),
        )

    def check_name(self, name: str) -> None:
        """Refuse a name that is taken."""
        self._first.check_name(name)

    def set(self, change: Change) -> int | None:
        """Change parameters; return the epoch that has them, None if it has ended."""
        return self._only("set()").set(change)

    @property
    def status(self) -> Status:
        """How the flow is doing; of several regions, the one that is read first."""
        return self._first.status

    @property
    def _first(self) -> Run:
        return self._runs.get(MAIN_REGION) or next(iter(self._runs.values()))

    def _only(self, what: str) -> Run:
        if len(self._runs) > 1:
            raise InvalidConfigError(
                what,
                expected="a flow of one region",
                found=f"regions {', '.join(self._runs)}",
            )
        return self._first
