"""One run of one region: everything it has open, from its claim to its end."""

from __future__ import annotations

import threading
from contextlib import ExitStack, suppress
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from riverlock.change.unnamed import tell_unnamed
from riverlock.connectors.channel.ends import ChannelSource, LoopSource
from riverlock.connectors.channel.reader import ChannelReader
from riverlock.coordinator.restart import patient_delay_us
from riverlock.core.errors import (
    InvalidConfigError,
    SourceUnavailableError,
    StorageError,
)
from riverlock.core.times import duration
from riverlock.driver.cleaner import Cleaner
from riverlock.driver.engine import while_it_is_there
from riverlock.driver.intake.region_resets import RegionResets
from riverlock.driver.ownership import Heartbeat
from riverlock.driver.region_loop import RegionDriver
from riverlock.driver.starting.adoption import Adoption
from riverlock.driver.starting.continuing import check_continues, compiled_on
from riverlock.driver.starting.joined_channels import registered
from riverlock.driver.starting.loop_parts import LoopParts
from riverlock.driver.starting.outlets import Arrears, opened_sinks
from riverlock.driver.starting.source_readers import readers_of
from riverlock.driver.starting.source_wait import SourceWait
from riverlock.operators.endless_state import tell_endless_states
from riverlock.program.graph import Read
from riverlock.program.regions import channel_columns, features_of
from riverlock.snapshot.catalog import Catalog
from riverlock.snapshot.claims import claim
from riverlock.snapshot.format.records import Change, Stop
from riverlock.snapshot.format.requests import add_request, taken_at
from riverlock.snapshot.format.run_status import Status
from riverlock.snapshot.format.sealed import seal
from riverlock.snapshot.format.store_layout import FLOW
from riverlock.snapshot.format.stored_parameters import check_change, renamed
from riverlock.snapshot.owner import ended_well
from riverlock.snapshot.retention.policy import Retention
from riverlock.snapshot.starts import announced, withdraw

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from riverlock.connectors.base.committer import Committer
    from riverlock.connectors.base.source_reader import Reader
    from riverlock.core.errors import RiverlockError
    from riverlock.core.types import Schema
    from riverlock.driver.engine import Deployment, Engine
    from riverlock.driver.intake.planner import Planner
    from riverlock.driver.intake.turning import Shared
    from riverlock.driver.region_lives import RegionLives
    from riverlock.driver.run_options import RunOptions
    from riverlock.program.program import Program
    from riverlock.snapshot.format.records import Flow as FlowRecord
    from riverlock.snapshot.format.records import Manifest, Named, Request, Start
    from riverlock.snapshot.format.records import Run as Owner
    from riverlock.snapshot.format.stored_parameters import Parameters
    from riverlock.stages.compiled import CompiledFlow
    from riverlock.storage.base import Storage

__all__ = ["Run"]


class Run:
    """Everything one run has open; a context manager. See ``handle.Running``."""

    def __init__(  # noqa: PLR0913 - what a run is made of
        self,
        flow: Program,
        storage: Storage,
        engine: Engine,
        options: RunOptions,
        *,
        opens_engine: bool = True,
        lives: RegionLives | None = None,
        circle: Shared | None = None,
        on_stop: Callable[[str | None], object] | None = None,
    ) -> None:
        """Open nothing yet.

        Args:
            flow: The program of the region.
            storage: The store.
            engine: What runs it.
            options: How to run it.
            opens_engine: Whether nobody else opens and closes the engine.
            lives: What is known of other regions; None: there are none.
            circle: The regions whose rows come back here, if there are any.
            on_stop: Called with the name of a savepoint when the store says that all
                regions are to stop.
        """
        self._on_stop = on_stop
        self._opens_engine, self._lives = opens_engine, lives
        self._circle = circle
        # Columns of channels: those that it reads, and those that it fills, once known.
        self._columns: Mapping[str, Schema] = {}
        self.gives: Mapping[str, Schema] = {}
        self._flow, self._engine, self._options = flow, engine, options
        self._storage = storage
        self._catalog = Catalog(self._storage, flow.region)
        self._stack = ExitStack()
        self._driver: RegionDriver | None = None
        self._heartbeat: Heartbeat | None = None
        self._savepoint: str | None = None
        self._start: Start | None = None
        # What the run waits for before it begins, and what reads it then.
        self._away: SourceUnavailableError | None = None
        self._readers: dict[str, Reader] = {}
        self._resets: RegionResets | None = None
        self._stopping = threading.Event()

    @property
    def reads(self) -> dict[str, str]:
        """The channels that it reads, each with the region that fills it."""
        sources = [node.source for node in self._flow.find(Read)]
        return {s.name: s.writer for s in sources if isinstance(s, ChannelSource)}

    @property
    def parameters(self) -> Parameters:
        """The parameters that its operators declare, once it has begun."""
        return {} if self._driver is None else self._driver.plan.parameters

    @property
    def epochs(self) -> int:
        """How many epochs it has decided."""
        return 0 if self._driver is None else self._driver.epochs

    @property
    def has_begun(self) -> bool:
        """Whether it owns its region, and can be asked for changes."""
        return self._driver is not None

    @property
    def goes_back(self) -> bool:
        """Whether it has ended since the region goes back with all others."""
        return self._driver is not None and self._driver.planner.goes_back

    def take_columns(self, columns: Mapping[str, Schema]) -> None:
        """Take the columns of the channels that it reads, before it is entered."""
        self._columns = columns

    @property
    def status(self) -> Status:
        """What was shown last."""
        if self._driver is not None:
            return self._driver.status
        # It waits for a source, or was asked to stop before it owned the store.
        away = None if self._stopping.is_set() else self._away
        return Status(
            flow=self._flow.name,
            region=self._flow.region,
            run=None,
            state="stopped" if away is None else "starting",
            epoch=None,
            updated_us=self._options.clock.now_us(),
            error=None if away is None else away.message,
        )

    def tell_failed(self, error: RiverlockError) -> None:
        """Tell what has ended it, if it had not begun: its loop would have told."""
        if self._driver is None:
            told = msgspec.structs.replace(
                self.status, state="failed", error=str(error)
            )
            with suppress(StorageError):  # a hint
                self._storage.put(self._catalog.paths.status, seal(told))

    def check_name(self, name: str) -> None:
        """Refuse a name that is taken."""
        self._catalog.check_name(name)

    def stop(self, savepoint: str | None = None) -> None:
        """Finish the epoch in progress, name it, then end; from any thread."""
        if savepoint is not None:
            self._savepoint = savepoint
        self._stopping.set()
        if self._driver is not None:
            self._driver.stop()

    def rescale(self, parallelism: int) -> None:
        """Set the number of tasks per keyed stage from the next epoch.

        Raises:
            InvalidConfigError: It waits for a source, or has ended.
        """
        self._begun().rescale(parallelism)

    def _begun(self) -> RegionDriver:
        if self._driver is None:
            raise InvalidConfigError(
                f"the run of {self._flow.name!r}",
                expected="to have begun",
                found="one that has not, or never will"
                if self._away is None
                else f"one that has not: {self._away.message}",
            )
        return self._driver

    def drive(self) -> None:
        """Run to the end; first wait for sources that are away."""
        if self._away is not None:
            with while_it_is_there(self._engine):
                self._driver = self._open_later()
        if self._driver is not None:
            if self._stopping.is_set():
                self._driver.stop()
            self._driver.run()
        if self._savepoint is not None:
            # Still ours: no other run can have decided anything after the last epoch.
            self.savepoint(self._savepoint)

    def savepoint(self, name: str) -> Named:
        """Name the newest epoch."""
        newest = self._catalog.resolve(None)
        now_us = self._options.clock.now_us()
        return self._catalog.pin(name, epoch=newest.epoch, now_us=now_us)

    def __enter__(self) -> Run:
        with while_it_is_there(self._engine), ExitStack() as stack:
            self._prepare(stack)
            try:
                compiled = self._compiled()
            except SourceUnavailableError as error:
                if patient_delay_us(self._options.restart, 1) is None:
                    raise
                self._away = error
            else:
                self._driver = self._open(compiled, stack)
            self._stack = stack.pop_all()
        return self

    def _prepare(self, stack: ExitStack) -> None:
        """Have the engine, and what reads the sources."""
        if self._engine.opens_slowly:
            self._announced(stack)
        if self._opens_engine:
            stack.callback(self._engine.close)
            self._engine.open()
        self._readers = readers_of(
            self._flow, self._engine, self._storage, stack, self._columns
        )
        if self._lives is not None:
            self._resets = RegionResets(self._catalog, self._readers)
        for node in self._flow.find(Read):
            reader = self._readers[node.uid]
            is_ours = isinstance(node.source, ChannelSource | LoopSource)
            if is_ours and isinstance(reader, ChannelReader):
                reader.follow(self._end_of(reader.writer))

    def _end_of(self, writer: str) -> Callable[[], bool]:
        """Return what tells that no more rows of a region come in this run.

        Regions that feed each other would wait for each other for ever.
        """
        lives, circle = self._lives, self._circle
        if lives is None:
            return lambda: True
        if circle is None or writer not in circle.topology.regions:
            return partial(lives.is_over, writer)
        if circle.is_apart:
            return circle.is_final  # one that was killed comes back
        return lambda: lives.is_over(writer) or circle.is_final()

    def __exit__(self, *exc_info: object) -> None:
        self._stack.close()

    def _open_later(self) -> RegionDriver | None:
        """Wait for the sources, then open; None if it was asked to stop before."""
        options = self._options
        wait = SourceWait(
            self._catalog,
            options.clock,
            announce=lambda: self._announced(self._stack),
            pause=self._stopping.wait,
            is_stopped=self._stopping.is_set,
        )
        found = wait.until_answered(self._compiled, options.restart)
        if isinstance(found, Stop):
            self._stopping.set()
            self._savepoint = found.savepoint or self._savepoint
            return None
        return self._open(found, self._stack)

    def _open(self, compiled: CompiledFlow, stack: ExitStack) -> RegionDriver:
        """Check, then claim: a flow that cannot run changes nothing in the store."""
        options, flow, engine = self._options, self._flow, self._engine
        readers = self._readers
        self.gives = channel_columns(flow, compiled.uses)
        record, newest = self._checked(compiled, readers)
        tell_unnamed(flow)
        tell_endless_states(flow)
        was_well = ended_well(self._catalog)
        owner = claim(self._catalog, now_us=options.clock.now_us())
        parts = LoopParts(
            flow=flow,
            compiled=compiled,
            storage=self._storage,
            engine=engine,
            options=options,
            owner=owner,
            flow_id=record.id,
            was_well=was_well,
            circle=self._circle,
            lives=self._lives,
            resets=self._resets,
        )
        tasks = parts.tasks()
        deployed = engine.deploy(tasks, readers)
        heartbeat = self._beating(owner, deployed, stack)
        heartbeat.is_well = was_well
        newest = self._rechecked(compiled, readers, newest)
        adoption = Adoption(self._catalog, compiled, owner)
        if newest is not None:
            # Now, so that a migration that fails ends the start, not the run.
            adoption(newest)
        committers = self._committers(compiled)
        openings = opened_sinks(self._catalog, committers, record, owner)
        arrears = Arrears(self._catalog, flow, record.id)
        if newest is not None:
            arrears(newest)
        cleaner = self._cleaner(stack)
        cleaner.then = registered(self._catalog, record, readers, options.clock)
        driver = RegionDriver(
            plan=parts.plan(tasks.parallelism),
            catalog=self._catalog,
            engine=deployed,
            planner=self._planner(parts),
            committers=committers,
            heartbeat=heartbeat,
            cleaner=cleaner,
            clock=options.clock,
            on_status=options.on_status,
            max_epochs=options.max_epochs,
            adopt=adoption,
            settle=arrears,
            lost=engine.lost,
            autoscale=parts.autoscale(tasks.parallelism),
            openings=openings,
        )
        after = 0 if newest is None else newest.requests
        heartbeat.listen(lambda request: self._ask(driver, request), after=after)
        if self._start is not None:
            withdraw(self._catalog, self._start)
        return driver

    def _beating(
        self, owner: Owner, deployed: Deployment, stack: ExitStack
    ) -> Heartbeat:
        stack.callback(deployed.close)
        heartbeat = Heartbeat(self._catalog, owner, deployed.cancel)
        heartbeat.start()
        stack.callback(heartbeat.stop)
        self._heartbeat = heartbeat
        return heartbeat

    def _committers(self, compiled: CompiledFlow) -> dict[str, Committer]:
        return {
            w.uid: self._engine.committer(w, compiled.uses[w.uid], self._storage)
            for w in self._flow.writes
        }

    def _planner(self, parts: LoopParts) -> Planner:
        return parts.planner(self._readers)

    def _announced(self, stack: ExitStack) -> Start:
        """Return what makes a start that waits be seen, so that it can be stopped."""
        if self._start is None:
            now_us = self._options.clock.now_us()
            self._start = stack.enter_context(announced(self._catalog, now_us=now_us))
        return self._start

    def _checked(
        self, compiled: CompiledFlow, readers: Mapping[str, Reader]
    ) -> tuple[FlowRecord, Manifest | None]:
        """Return the store's flow and newest epoch, which the code can continue from.

        A store that is new is made last.
        """
        flow, catalog = self._flow, self._catalog
        now_us = self._options.clock.now_us()

        def opened() -> FlowRecord:
            return catalog.open_flow(
                flow.name,
                key_groups=flow.key_groups,
                now_us=now_us,
                features=features_of(flow),
            )

        known = opened() if catalog.storage.exists(FLOW) else None
        if self._resets is not None:
            self._resets.look(catalog.newest())
        newest = check_continues(catalog, compiled, readers)
        return known or opened(), newest

    def _rechecked(
        self,
        compiled: CompiledFlow,
        readers: Mapping[str, Reader],
        newest: Manifest | None,
    ) -> Manifest | None:
        """Return the newest epoch, now that no other run may decide any.

        Until the claim one may have decided more than was checked.
        """
        if self._catalog.newest() == newest:
            return newest
        if self._resets is not None:
            self._resets.look(self._catalog.newest())
        return check_continues(self._catalog, compiled, readers)

    def _compiled(self) -> CompiledFlow:
        return compiled_on(self._catalog, self._flow, self._engine, self._readers)

    def _cleaner(self, stack: ExitStack) -> Cleaner:
        options = self._options
        grace = duration(options.grace)
        cleaner = Cleaner(
            self._catalog, Retention(epochs=options.retain_epochs, grace=grace)
        )
        stack.callback(cleaner.stop)
        cleaner.take_up()
        return cleaner

    def _ask(self, driver: RegionDriver, request: Request) -> None:
        what = request.what
        start = None if self._start is None else self._start.id
        if isinstance(what, Stop) and (
            what.run == driver.plan.run or (start is not None and what.start == start)
        ):
            # A start is that of a process, and a snapshot has all regions.
            is_of_all = what.start is not None or what.savepoint is not None
            if is_of_all and self._on_stop is not None:
                self._on_stop(what.savepoint)
            else:
                self.stop(what.savepoint)
        if isinstance(what, Change):
            meant = renamed(driver.plan.parameters, what, self._flow.renames)
            request = msgspec.structs.replace(request, what=meant)
        driver.ask(request)

    def set(self, change: Change) -> int | None:
        """Change parameters; return the epoch that has them, None if the run ended.

        Raises:
            InvalidConfigError: There is no such parameter, or its value is not of its
                kind; nothing was changed.
        """
        driver, heartbeat = self._begun(), self._heartbeat
        assert heartbeat is not None
        change = check_change(driver.plan.parameters, change)
        newest = self._catalog.newest()
        request = add_request(
            self._catalog, change, now_us=self._options.clock.now_us()
        )
        with suppress(StorageError):  # the next beat looks again
            heartbeat.look_for_requests()
        if not driver.wait_for(request.number):
            return None
        after = None if newest is None else newest.epoch
        taken = taken_at(self._catalog, request.number, after=after)
        assert taken is not None
        return taken.epoch
