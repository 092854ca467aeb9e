"""Runs flows on Spark: in this thread (``run``) or beside it (``start``)."""

from __future__ import annotations

import os
import signal
import tempfile
import threading
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from riverlock.connectors.outputs import sink_plans
from riverlock.coordinator.plan import RegionPlan
from riverlock.core.errors import (
    StorageError,
)
from riverlock.core.times import duration, duration_us
from riverlock.driver.admission import Admission
from riverlock.driver.autoscale import Autoscale
from riverlock.driver.cleaner import Cleaner
from riverlock.driver.handle import Handle
from riverlock.driver.outlets import Arrears, opened_sinks
from riverlock.driver.ownership import Heartbeat
from riverlock.driver.planner import Planner
from riverlock.driver.region_loop import RegionDriver
from riverlock.driver.run_options import RunOptions, chosen
from riverlock.driver.source_wait import SourceWait
from riverlock.engines.jobs.adoption import Adoption
from riverlock.engines.jobs.ahead import ReadAhead
from riverlock.engines.jobs.continuing import check_continues, compiled_on
from riverlock.engines.jobs.engine import SparkEngine
from riverlock.engines.jobs.executors import attendance_on, is_local
from riverlock.engines.jobs.readers import reader_of
from riverlock.engines.jobs.sink_committers import committer_of
from riverlock.engines.jobs.stages import CompiledFlow, KeyedStage
from riverlock.program.graph import Read, upstream
from riverlock.snapshot.catalog import MAIN_REGION, Catalog
from riverlock.snapshot.claims import claim
from riverlock.snapshot.format.records import Change, Stop
from riverlock.snapshot.format.requests import add_request, taken_at
from riverlock.snapshot.format.run_status import Status
from riverlock.snapshot.format.store_layout import FLOW
from riverlock.snapshot.format.stored_parameters import check_change, renamed
from riverlock.snapshot.retention.policy import Retention
from riverlock.snapshot.starts import announced, withdraw
from riverlock.spark.session import job_conf, local_session
from riverlock.spark.virtual_machine import loss, while_it_answers
from riverlock.storage.open import open_storage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import Unpack

    from pyspark.sql import SparkSession

    from riverlock.connectors.base.source_reader import Reader
    from riverlock.driver.run_options import RunKeywords
    from riverlock.flow.flow import Flow
    from riverlock.snapshot.format.records import Flow as FlowRecord
    from riverlock.snapshot.format.records import Manifest, Named, Request, Run, Start
    from riverlock.storage.base import Storage

__all__ = ["check", "readers_of", "run", "start"]


def run(flow: Flow, store: str, **options: Unpack[RunKeywords]) -> Status:
    """Run in this thread; SIGINT and SIGTERM finish the epoch under way.

    Raises:
        RiverlockError: What ended the run.
    """
    with _Run(flow, store, chosen(options)) as running, _signals(running.stop):
        running.drive()
        return running.status


def start(flow: Flow, store: str, **options: Unpack[RunKeywords]) -> Handle:
    """Run in a thread of its own; returns once the flow is checked and owns its store.

    Raises:
        RiverlockError: The flow cannot run here.
    """
    return Handle(_Run(flow, store, chosen(options)))


@while_it_answers()
def check(
    flow: Flow, *, store: str | None = None, **options: Unpack[RunKeywords]
) -> CompiledFlow:
    """Check a flow without reading anything; returns what would run.

    Args:
        flow: The flow.
        store: A store to go on from, which is not touched: what a source has lost
            since its newest epoch is told if it is missed.
        options: As of ``run``.

    Raises:
        InvalidFlowError: Something in it is impossible.
    """
    wanted = chosen(options)
    spark = wanted.spark or local_session()
    with tempfile.TemporaryDirectory() as nowhere, ExitStack() as stack:
        storage = open_storage(nowhere)
        readers = readers_of(flow, spark, storage, wanted)
        for reader in readers.values():
            stack.callback(reader.close)
        known = None if store is None else Catalog(open_storage(store))
        return compiled_on(known, flow, spark, readers)


def readers_of(
    flow: Flow, spark: SparkSession, storage: Storage, options: RunOptions
) -> dict[str, Reader]:
    """Return what reads the sources of a flow; each must be closed."""
    place = (storage, Catalog(storage).paths)
    return {
        node.uid: reader_of(
            spark, node, place, options.clock, takes_all=options.available_now
        )
        for node in flow.find(Read)
    }


class _Run:
    """Everything one run has open; a context manager."""

    def __init__(self, flow: Flow, store: str, options: RunOptions) -> None:
        self._flow, self._options = flow, options
        self._storage = open_storage(store)
        self._catalog = Catalog(self._storage)
        self._stack = ExitStack()
        self._driver: RegionDriver | None = None
        self._heartbeat: Heartbeat | None = None
        self._savepoint: str | None = None
        self._start: Start | None = None

    @property
    def status(self) -> Status:
        if self._driver is not None:
            return self._driver.status
        # Asked to stop before it owned the store.
        return Status(
            flow=self._flow.name,
            region=MAIN_REGION,
            run=None,
            state="stopped",
            epoch=None,
            updated_us=self._options.clock.now_us(),
        )

    def check_name(self, name: str) -> None:
        self._catalog.check_name(name)

    def stop(self, savepoint: str | None = None) -> None:
        if savepoint is not None:
            self._savepoint = savepoint
        if self._driver is not None:
            self._driver.stop()

    def rescale(self, parallelism: int) -> None:
        if self._driver is not None:
            self._driver.rescale(parallelism)

    def drive(self) -> None:
        if self._driver is not None:
            self._driver.run()
        if self._savepoint is not None:
            # Still ours: no other run can have decided anything after the last epoch.
            self.savepoint(self._savepoint)

    def savepoint(self, name: str) -> Named:
        newest = self._catalog.resolve(None)
        now_us = self._options.clock.now_us()
        return self._catalog.pin(name, epoch=newest.epoch, now_us=now_us)

    def __enter__(self) -> _Run:
        with while_it_answers(), ExitStack() as stack:
            self._driver = self._open(stack)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._stack.close()

    def _open(self, stack: ExitStack) -> RegionDriver | None:
        """Check, then claim: a flow that cannot run changes nothing in the store.

        None if it was asked to stop before.
        """
        options, flow = self._options, self._flow
        spark = self._session(stack)
        readers = readers_of(flow, spark, self._storage, options)
        for reader in readers.values():
            stack.callback(reader.close)
        compiled = self._compiled(spark, readers, stack)
        if isinstance(compiled, Stop):
            self._savepoint = compiled.savepoint
            return None
        record, newest = self._checked(compiled, readers)
        owner = claim(self._catalog, now_us=options.clock.now_us())
        engine = self._engine(spark, compiled, readers, owner, record.id)
        stack.callback(engine.close)
        heartbeat = Heartbeat(self._catalog, owner, engine.cancel)
        heartbeat.start()
        stack.callback(heartbeat.stop)
        self._heartbeat = heartbeat
        newest = self._rechecked(compiled, readers, newest)
        adoption = Adoption(self._catalog, compiled, owner)
        if newest is not None:
            # Now, so that a migration that fails ends the start, not the run.
            adoption(newest)
        committers = {
            w.uid: committer_of(w, compiled.uses[w.uid], self._storage, spark)
            for w in flow.writes
        }
        openings = opened_sinks(self._catalog, committers, record, owner)
        arrears = Arrears(self._catalog, flow, record.id)
        if newest is not None:
            arrears(newest)
        cleaner = self._cleaner(stack)
        driver = RegionDriver(
            plan=self._plan(compiled, owner, engine.parallelism, record.id),
            catalog=self._catalog,
            engine=engine,
            planner=self._planner(compiled, readers),
            committers=committers,
            heartbeat=heartbeat,
            cleaner=cleaner,
            clock=options.clock,
            on_status=options.on_status,
            max_epochs=options.max_epochs,
            adopt=adoption,
            settle=arrears,
            lost=loss,
            autoscale=self._autoscale(engine.parallelism),
            openings=openings,
        )
        after = 0 if newest is None else newest.requests
        heartbeat.listen(lambda request: self._ask(driver, request), after=after)
        if self._start is not None:
            withdraw(self._catalog, self._start)
        return driver

    def _announced(self, stack: ExitStack) -> Start:
        """Return what makes a start that waits be seen, so that it can be stopped."""
        if self._start is None:
            now_us = self._options.clock.now_us()
            self._start = stack.enter_context(announced(self._catalog, now_us=now_us))
        return self._start

    def _session(self, stack: ExitStack) -> SparkSession:
        options = self._options
        if options.spark is None:
            self._announced(stack)  # Spark may take long to come
        spark = options.spark or local_session()
        stack.enter_context(job_conf(spark))
        return spark

    def _checked(
        self, compiled: CompiledFlow, readers: Mapping[str, Reader]
    ) -> tuple[FlowRecord, Manifest | None]:
        """Return the store's flow and newest epoch, which the code can go on from.

        A store that is new is made last.
        """
        flow, catalog = self._flow, self._catalog
        now_us = self._options.clock.now_us()

        def opened() -> FlowRecord:
            return catalog.open_flow(
                flow.name, key_groups=flow.key_groups, now_us=now_us
            )

        known = opened() if catalog.storage.exists(FLOW) else None
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
        return check_continues(self._catalog, compiled, readers)

    def _compiled(
        self, spark: SparkSession, readers: Mapping[str, Reader], stack: ExitStack
    ) -> CompiledFlow | Stop:
        options, catalog = self._options, self._catalog
        wait = SourceWait(
            catalog, options.clock, announce=lambda: self._announced(stack)
        )
        return wait.until_answered(
            lambda: compiled_on(catalog, self._flow, spark, readers), options.restart
        )

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
            self._savepoint = what.savepoint or self._savepoint
            driver.stop()
        if isinstance(what, Change):
            meant = renamed(driver.plan.parameters, what, self._flow.renames)
            request = msgspec.structs.replace(request, what=meant)
        driver.ask(request)

    def set(self, change: Change) -> int | None:
        """Change parameters; returns the epoch that has them, None if the run ended.

        Raises:
            InvalidConfigError: There is no such parameter, or its value is not of its
                kind; nothing was changed.
        """
        driver, heartbeat = self._driver, self._heartbeat
        assert driver is not None
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

    def _autoscale(self, most: int) -> Autoscale | None:
        options = self._options
        if options.parallelism != "auto":
            return None
        target = options.epoch_target or "1 second"
        return Autoscale(most=most, target_us=duration_us(target))

    def _engine(
        self,
        spark: SparkSession,
        compiled: CompiledFlow,
        readers: dict[str, Reader],
        owner: Run,
        flow_id: str,
    ) -> SparkEngine:
        given = self._options.parallelism
        cores = spark.sparkContext.defaultParallelism
        wanted = given if isinstance(given, int) else cores
        return SparkEngine(
            spark=spark,
            compiled=compiled,
            readers=readers,
            storage=self._storage,
            flow=flow_id,
            region=MAIN_REGION,
            run=owner.run,
            token=owner.token,
            parallelism=min(wanted, self._flow.key_groups),
            working_dir=self._working_dir(spark, flow_id),
            ahead=ReadAhead(spark),
            attendance=attendance_on(spark, self._options),
        )

    def _working_dir(self, spark: SparkSession, flow_id: str) -> str:
        """Beside a local store on a local master, else in each host's own place."""
        if self._options.working_dir is not None:
            return str(Path(self._options.working_dir).absolute() / flow_id)
        local = self._storage.local_path("working")
        if local is not None and is_local(spark):
            return str(local.parent / ".working" / flow_id)
        # One folder, not two: others may make any in such a place.
        return str(Path(tempfile.gettempdir(), f"riverlock-{os.getuid()}-{flow_id}"))

    def _plan(
        self,
        compiled: CompiledFlow,
        owner: Run,
        parallelism: int,
        flow_id: str,
    ) -> RegionPlan:
        keyed = [s for s in compiled.stages if isinstance(s, KeyedStage)]
        return RegionPlan(
            store=self._storage.uri,
            flow=flow_id,
            name=self._flow.name,
            region=MAIN_REGION,
            run=owner.run,
            token=owner.token,
            key_groups=self._flow.key_groups,
            parallelism=parallelism,
            code=compiled.code,
            stages=tuple(s.id for s in compiled.stages),
            restart=self._options.restart,
            operators={s.id: s.plan for s in keyed},
            **sink_plans(self._flow.writes),
            event_times={u: n.delay_us for u, n in compiled.event_times.items()},
            columns=compiled.columns,
            meanings=compiled.meanings,
        )

    def _planner(self, compiled: CompiledFlow, readers: dict[str, Reader]) -> Planner:
        options = self._options
        return Planner(
            readers=readers,
            clock=options.clock,
            admission=Admission(
                target_us=None
                if options.epoch_target is None
                else duration_us(options.epoch_target),
                max_rows=options.max_rows_per_epoch,
            ),
            operators={
                s.id: tuple(compiled.event_times[t] for t in s.event_times)
                for s in compiled.stages
                if isinstance(s, KeyedStage)
            },
            sources={
                uid: tuple(n.uid for n in upstream(node) if isinstance(n, Read))
                for uid, node in compiled.event_times.items()
            },
            stops_at_end=options.available_now,
        )


@contextmanager
def _signals(stop: Callable[[], None]) -> Iterator[None]:
    """Turn the first SIGINT or SIGTERM into a graceful stop; a second one is final."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {s: signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)}

    def on_signal(number: int, frame: object) -> None:
        stop()
        signal.signal(number, before[signal.Signals(number)])

    for number in before:
        signal.signal(number, on_signal)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
