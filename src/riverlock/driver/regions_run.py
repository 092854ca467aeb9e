"""A run of a whole flow, or of some of its regions: each in a thread, on one engine.

A region that fails ends alone, once beginning again has not helped. The others go on,
and channels keep what it has not read; its error is raised when all have ended. Regions
that run in other processes meet these in the store, and nowhere else.
"""

from __future__ import annotations

import dataclasses
import logging
import threading
from contextlib import ExitStack
from typing import TYPE_CHECKING

from riverlock.connectors.going_back import restore_all
from riverlock.core.errors import InvalidConfigError
from riverlock.core.ids import MAIN_REGION
from riverlock.core.suggestions import did_you_mean
from riverlock.core.times import duration_us
from riverlock.driver.engine import while_it_is_there
from riverlock.driver.intake.apart_circle import ApartCircle
from riverlock.driver.intake.turning import circles_of
from riverlock.driver.region_lives import RegionLives
from riverlock.driver.region_place import RegionPlace
from riverlock.driver.region_run import Run
from riverlock.driver.snapshots.cut_keeper import CutKeeper
from riverlock.driver.snapshots.regular_snapshots import RegularSnapshots
from riverlock.driver.starting.left_regions import check_left_regions
from riverlock.program.regions import is_joined, part_of, region_of, topology_of
from riverlock.snapshot.catalog import Catalog
from riverlock.snapshot.format.stored_parameters import check_change
from riverlock.snapshot.starts import announced
from riverlock.snapshot.verbs.cut import take_cut
from riverlock.snapshot.verbs.restore_all import adopt_older, plan_restore_all

if TYPE_CHECKING:
    from collections.abc import Iterable

    from riverlock.coordinator.cuts.topology import Topology
    from riverlock.core.types import Schema
    from riverlock.driver.engine import Engine
    from riverlock.driver.intake.turning import Shared
    from riverlock.driver.run_options import RunOptions
    from riverlock.program.program import Program
    from riverlock.snapshot.format.records import Change, Named
    from riverlock.snapshot.format.run_status import Status
    from riverlock.snapshot.verbs.restore_all import RestoreAll
    from riverlock.storage.base import Storage

__all__ = ["RegionsRun", "chosen_regions"]

log = logging.getLogger(__name__)
_POLL_SECONDS = 0.1


def chosen_regions(topology: Topology, region: str | None) -> tuple[str, ...]:
    """Return the regions to run, those that others read first.

    Raises:
        InvalidConfigError: There is no such region.
    """
    if region is None:
        return topology.regions
    return (_checked(region, topology.regions),)


def _checked(region: str, known: Iterable[str]) -> str:
    known = list(known)
    if region not in known:
        raise InvalidConfigError(
            "region",
            expected=f"one of {', '.join(map(repr, known))}",
            found=repr(region),
            hint=did_you_mean(region, known),
        )
    return region


class RegionsRun:
    """The runs of the regions of a flow; see ``handle.Running``."""

    def __init__(
        self, flow: Program, storage: Storage, engine: Engine, options: RunOptions
    ) -> None:
        """Open nothing yet.

        Raises:
            InvalidConfigError: There is no such region.
        """
        self._flow, self._engine, self._options = flow, engine, options
        self._catalog = Catalog(storage)
        topology = topology_of(flow)
        names = chosen_regions(topology, options.region)
        self._is_cut = bool(topology.channels) or is_joined(flow)
        self._keeper = CutKeeper(storage, topology, options.clock)
        self._circles: dict[str, Shared] = dict(circles_of(topology))
        if options.region is not None:
            self._circles |= self._apart(topology, options.region)
        over = {name: threading.Event() for name in names}
        here = {name: event.is_set for name, event in over.items()}
        self._lives = RegionLives(self._catalog, here, options.clock)
        self._places = {
            name: self._place(name, over[name], is_only=len(names) == 1)
            for name in names
        }
        self._stopping = threading.Event()
        self._stack = ExitStack()
        self._errors: dict[str, BaseException] = {}
        self._closing: threading.Thread | None = None

    def _apart(self, topology: Topology, region: str) -> dict[str, Shared]:
        """Return the circle of a region whose others run elsewhere, if it has any."""
        circle = topology.circle_of(region)
        if len(circle.regions) == 1:
            return {}
        clock = self._options.clock
        return {region: ApartCircle(circle, self._catalog.of(region), clock)}

    def _place(self, name: str, over: threading.Event, *, is_only: bool) -> RegionPlace:
        part, pace = part_of(self._flow, name), self._flow.paces.get(name)
        own = {} if pace is None else pace.given
        options = dataclasses.replace(self._options, **own)

        def made() -> Run:
            return Run(
                part,
                self._catalog.storage,
                self._engine,
                options,
                opens_engine=is_only,
                lives=self._lives if self._is_cut else None,
                circle=self._circles.get(name),
                on_stop=self.stop,
            )

        return RegionPlace(
            self._catalog.of(name), options, made, over, begins_again=not is_only
        )

    def __enter__(self) -> RegionsRun:
        with ExitStack() as stack:
            adopt_older(self._catalog)
            check_left_regions(self._catalog, self._flow)
            if len(self._places) > 1:
                self._open_engine(stack)
            for place in self._places.values():
                stack.callback(place.close)
            for place in self._places.values():
                if self._awaited(place):
                    break  # a region before it waits for a source: see _begin_later
                place.enter(self._columns())
            if self._is_cut:
                self._keeper.start()
                stack.callback(self._keeper.stop)
            self._take_regularly(stack)
            self._stack = stack.pop_all()
        return self

    def _open_engine(self, stack: ExitStack) -> None:
        """Open what all share: none of the regions closes it."""
        first = next(iter(self._places))
        if self._engine.opens_slowly:
            now_us = self._options.clock.now_us()
            stack.enter_context(announced(self._catalog.of(first), now_us=now_us))
        stack.callback(self._engine.close)
        with while_it_is_there(self._engine):
            self._engine.open()

    def _take_regularly(self, stack: ExitStack) -> None:
        options = self._options
        if options.snapshots_every is None:
            return
        regular = RegularSnapshots(
            catalog=self._catalog.of(next(iter(self._places))),
            clock=options.clock,
            every_us=duration_us(options.snapshots_every),
            keep=options.snapshots_keep,
            protocol=options.protocol if self._is_cut else None,
        )
        regular.start()
        stack.callback(regular.stop)

    def _columns(self) -> dict[str, Schema]:
        """Return the columns of the channels whose writers were analysed."""
        places = self._places.values()
        return {n: s for place in places for n, s in place.gives.items()}

    def _awaited(self, place: RegionPlace) -> set[str]:
        """Return the regions here that have to tell columns before this one begins."""
        known = self._columns()
        wanted = {w for name, w in place.run.reads.items() if name not in known}
        return wanted & self._places.keys()

    def __exit__(self, *exc_info: object) -> None:
        self._stack.close()

    def drive(self) -> None:
        """Run all regions to their end.

        Raises:
            RiverlockError: What ended a region.
        """
        first, *others = self._places
        threads = [
            threading.Thread(
                target=self._drive_region,
                args=(name,),
                name=f"riverlock-{name}",
                daemon=True,
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
        place = self._places[name]
        try:
            if place.is_entered or self._begin_later(place):
                place.drive()
        except BaseException as error:  # noqa: BLE001 - raised again by drive()
            self._errors[name] = error
            if len(self._places) > 1:
                log.error("region %r has ended, the others go on: %s", name, error)
        finally:
            place.over.set()

    def _begin_later(self, place: RegionPlace) -> bool:
        """Wait until the regions before it are analysed; False: it is not needed."""
        while awaited := self._awaited(place):
            over = {name for name in awaited if self._places[name].over.is_set()}
            if self._stopping.wait(_POLL_SECONDS) or over:
                return False
        place.expect(self._columns())
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
        for place in self._places.values():
            place.stop(savepoint)

    def _stop_with(self, savepoint: str) -> None:
        try:
            self.savepoint(savepoint)
        except BaseException as error:  # noqa: BLE001 - raised again by drive()
            self._errors["savepoint"] = error
        self.stop()

    def rescale(self, parallelism: int, *, region: str | None = None) -> None:
        """Set the number of tasks per keyed stage from the next epochs."""
        for name in self._named(region):
            self._places[name].run.rescale(parallelism)

    def savepoint(self, name: str, *, protocol: str | None = None) -> Named:
        """Name one epoch of each region, such that all fit together.

        Raises:
            InvalidConfigError: The name is taken, or there is no such protocol.
            SnapshotAbandonedError: A region did not answer in time.
        """
        if not self._is_cut:
            return self._first.run.savepoint(name)
        return take_cut(
            self._catalog,
            name,
            protocol=protocol or self._options.protocol,
            now_us=self._options.clock.now_us(),
        )

    def restore(self, name: str, *, keep_output: bool = False) -> RestoreAll:
        """Go back with all regions, while they run.

        Raises:
            InvalidConfigError: There is only one, or one has no place in the snapshot.
            SnapshotNotFoundError: There is no such snapshot.
        """
        if not self._is_cut:
            raise InvalidConfigError(
                f"handle.restore({name!r})",
                expected="a flow with several regions: these go back while they run",
                found="a flow with one",
                hint="nothing was changed; stop it, then: rl.stores.restore()",
            )
        plan = plan_restore_all(self._catalog, name, keep_output=keep_output)
        if plan.is_done:
            return plan
        return restore_all(self._catalog, plan, self._options.clock)

    def check_name(self, name: str) -> None:
        """Refuse a name that is taken."""
        self._catalog.check_name(name)

    def set(self, change: Change) -> int | None:
        """Change parameters; return the epoch that has them, None if it has ended."""
        named = [*change.values, *change.defaults]
        for place in self._places.values():
            if place.run.parameters.keys() & set(named):
                return place.set(change)
        for node in self._flow.keyed:
            home = region_of(node)
            if node.uid in named and home not in self._places:
                raise InvalidConfigError(
                    f"operator {node.uid!r}",
                    expected=f"one of what runs here: {', '.join(self._places)}",
                    found=f"one of region {home!r}",
                    hint="set it through the store: riverlock set STORE ...",
                )
        if len(self._places) == 1:
            return self._first.set(change)
        runs = [place.run for place in self._places.values()]
        check_change({u: p for run in runs for u, p in run.parameters.items()}, change)
        return None

    def status(self, region: str | None = None) -> Status:
        """How a region is doing; by default the one that is read first."""
        if region is None:
            return self._first.status
        (name,) = self._named(region)
        return self._places[name].status

    @property
    def _first(self) -> RegionPlace:
        return self._places.get(MAIN_REGION) or next(iter(self._places.values()))

    def _named(self, region: str | None) -> Iterable[str]:
        if region is None:
            return self._places
        return (_checked(region, self._places),)
