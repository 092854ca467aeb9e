"""A run with the real driver and without Spark: epochs and kills cost little.

Planning, coordinator, store, sinks and recovery are those of every run. What tasks do
is up to the engine, which runs in this process.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from riverlock.connectors.base.committer import Committer
from riverlock.connectors.base.sink import SinkUse, TwoPhaseSink
from riverlock.connectors.base.source_reader import Reader
from riverlock.connectors.base.stager import Stager
from riverlock.connectors.outputs import sink_owner
from riverlock.coordinator.plan import RegionPlan
from riverlock.coordinator.restart import ExponentialDelay
from riverlock.core.clock import SystemClock
from riverlock.core.ids import MAIN_REGION
from riverlock.core.types import Schema
from riverlock.driver.cleaner import Cleaner
from riverlock.driver.engine import StageRunner
from riverlock.driver.intake.admission import Admission
from riverlock.driver.intake.planner import Planner
from riverlock.driver.ownership import Heartbeat
from riverlock.driver.region_loop import RegionDriver
from riverlock.driver.starting.sink_wait import Openings
from riverlock.snapshot.catalog import Catalog
from riverlock.snapshot.claims import claim
from riverlock.snapshot.format.records import Run
from riverlock.snapshot.format.run_status import Status
from riverlock.snapshot.past import StorePast
from riverlock.snapshot.retention.policy import Retention
from riverlock.storage.base import Storage
from riverlock.storage.open import open_storage
from riverlock.worker.task import Place

EngineOf = Callable[[Place, Mapping[str, Stager]], StageRunner]
_STAGE = "write"
_KEY_GROUPS = 8


@dataclass(frozen=True, kw_only=True)
class BareRun:
    """What a run reads, does, and writes; one stage, one input named ``in``."""

    store: Path | str
    sinks: Mapping[str, TwoPhaseSink]
    schemas: Mapping[str, Schema]
    reader: Reader
    engine: EngineOf
    rows: int  # of an epoch
    tasks: int = 1
    attempts: int = 5
    on_status: Callable[[Status], None] = lambda _: None
    # What a test puts between the driver and a committer.
    around: Mapping[str, Callable[[Committer], Committer]] = field(default_factory=dict)

    def to_the_end(self) -> None:
        """Run from where the store says until the input is used up."""
        with ExitStack() as stack:
            self._driver(stack).run()

    def _driver(self, stack: ExitStack) -> RegionDriver:
        clock, storage = SystemClock(), open_storage(self.store)
        catalog = Catalog(storage)
        record = catalog.open_flow(
            "bare", key_groups=_KEY_GROUPS, now_us=clock.now_us()
        )
        flow = record.id
        owner = claim(catalog, now_us=clock.now_us())
        heartbeat = Heartbeat(catalog, owner, lambda: None)
        heartbeat.start()
        stack.callback(heartbeat.stop)
        cleaner = Cleaner(catalog, Retention(epochs=5))
        stack.callback(cleaner.stop)
        place = Place(
            storage=storage,
            region=MAIN_REGION,
            stage=_STAGE,
            run=owner.run,
            token=owner.token,
            flow=flow,
        )
        stagers = {n: sink.stager(self._use(n)) for n, sink in self.sinks.items()}
        past = StorePast(catalog, catalog.newest())
        committers = {name: self._committer(name, storage) for name in self.sinks}
        return RegionDriver(
            plan=self._plan(flow, owner),
            catalog=catalog,
            engine=self.engine(place, stagers),
            planner=Planner(
                readers={"in": self.reader},
                clock=clock,
                admission=Admission(target_us=None, max_rows=self.rows),
                operators={},
                sources={},
                stops_at_end=True,
            ),
            committers=committers,
            heartbeat=heartbeat,
            cleaner=cleaner,
            clock=clock,
            on_status=self.on_status,
            openings=Openings(
                committers,
                {n: sink_owner(record, n, owner, past) for n in committers},
            ),
        )

    def _plan(self, flow: str, owner: Run) -> RegionPlan:
        return RegionPlan(
            store=str(self.store),
            flow=flow,
            region=MAIN_REGION,
            run=owner.run,
            token=owner.token,
            key_groups=_KEY_GROUPS,
            parallelism=self.tasks,
            code="",
            stages=(_STAGE,),
            restart=ExponentialDelay(
                initial_us=20_000, max_us=200_000, attempts=self.attempts
            ),
            sinks={name: sink.kind for name, sink in self.sinks.items()},
        )

    def _use(self, name: str) -> SinkUse:
        return SinkUse(uid=name, schema=self.schemas[name], replaces=False)

    def _committer(self, name: str, storage: Storage) -> Committer:
        committer = self.sinks[name].committer(self._use(name), storage)
        return self.around[name](committer) if name in self.around else committer
