"""A flow on a real store, without Spark: the engine's own loop, tasks and sinks.

Rows ``(key, number)`` come from a list, an operator adds them up, files get the sums.
"""

from __future__ import annotations

import json
import pickle
from collections import Counter
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

from tests.unit.runtime.tasks import GROUPS, Tasks

import riverlock as rl
from riverlock.coordinator.instructions import RunStage
from riverlock.coordinator.plan import OperatorPlan, RegionPlan
from riverlock.coordinator.restart import NoRestart
from riverlock.coordinator.votes import Vote
from riverlock.core.clock import ManualClock
from riverlock.runtime.admission import Admission
from riverlock.runtime.cleaner import Cleaner
from riverlock.runtime.driver import RegionDriver
from riverlock.runtime.ownership import Heartbeat
from riverlock.runtime.planner import Planner
from riverlock.runtime.program import EpochInfo
from riverlock.runtime.task import KeyedEpoch, KeyedTask, Place, Targets, decode_outcome
from riverlock.runtime.working_copy import Baseline
from riverlock.sinks.committer import Owner
from riverlock.sinks.committers import FileCommitter
from riverlock.sinks.stagers import FileStager
from riverlock.snapshot.catalog import Catalog
from riverlock.snapshot.claims import claim
from riverlock.snapshot.reader import read_entries
from riverlock.snapshot.records import InputRange, Manifest
from riverlock.snapshot.retention import Retention
from riverlock.storage import LocalStorage

Row = tuple[str, int]
KEEP = Retention(grace=timedelta(0))


class Sums(rl.Process):
    output = "k string, total long"
    total = rl.Value("long", default=0)
    recent = rl.List("long")

    def on_event(self, row: Any, ctx: Any) -> Any:
        self.total += row.v
        self.recent.append(row.v)
        ctx.set_timer(ctx.now + rl.hours(row.v), processing=True)
        yield row.k, self.total


def state_of(rows: list[Row]) -> dict[str, tuple[int, list[int]]]:
    """Return what an independent computation says the state is."""
    found: dict[str, tuple[int, list[int]]] = {}
    for key, number in rows:
        total, recent = found.get(key, (0, []))
        found[key] = (total + number, [*recent, number])
    return found


def output_of(rows: list[Row]) -> Counter[Row]:
    """Return what an independent computation says the output is."""
    sums: Counter[str] = Counter()
    found: Counter[Row] = Counter()
    for key, number in rows:
        sums[key] += number
        found[key, sums[key]] += 1
    return found


@dataclass(frozen=True)
class Rows:
    """A source that can be read from any place, as often as needed."""

    rows: list[Row]
    gives_positions = False
    can_read_ahead = False

    def initial(self) -> int:
        return 0

    def latest(self, start: int) -> int:
        return len(self.rows)

    def advance(self, start: int, latest: int, max_rows: int) -> int:
        return min(start + max_rows, latest)

    def has_ended(self, start: int, latest: int) -> bool:
        return False

    def rows_between(self, start: int, end: int) -> int:
        return end - start

    def read(self, start: int, end: int) -> list[Row]:
        return self.rows[start:end]

    def observed(self, rows: int) -> dict[str, float]:
        return {}

    def close(self) -> None:
        pass


@dataclass
class SmallEngine:
    """Runs the tasks of the one stage in this thread."""

    tasks: Tasks
    task: KeyedTask
    source: Rows

    def run_stage(
        self,
        order: RunStage,
        parent: Manifest | None,
        following: Mapping[str, InputRange] | None,
    ) -> tuple[Vote, ...]:
        span, planned = order.planned.inputs["rows"], order.planned
        rows = self.source.read(span.start, span.end)
        known = None if parent is None else parent.operators.get("op")
        parameters = planned.parameters.get("op", {})
        info = EpochInfo(
            epoch=order.epoch,
            now_us=planned.now_us,
            seed=planned.seed,
            parameters={name: p.in_force for name, p in parameters.items()},
        )
        base = Baseline(
            epoch=None if parent is None else parent.epoch,
            now_us=None if parent is None else parent.now_us,
            files=() if known is None else known.files,
            history=() if parent is None else parent.history,
        )
        votes = []
        for part in range(self.tasks.parallelism):
            batches = self.tasks.batches(rows, part)
            made = decode_outcome(
                self.task(batches, part, KeyedEpoch(info=info, base=base))
            )
            assert made.vote is not None, made.error
            votes.append(made.vote)
        return tuple(votes)


@dataclass
class SmallFlow:
    """The flow ``small`` on a store; each ``run`` is one life of a driver."""

    store: Path
    rows: list[Row]
    out: Path
    parallelism: int = 1
    clock: ManualClock = field(default_factory=ManualClock)
    process: type[rl.Process] = Sums

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
        with ExitStack() as stack:
            self._driver(stack, epochs, epoch_rows, retention).run()
        newest = self.catalog.newest()
        return -1 if newest is None else newest.epoch

    def _driver(
        self,
        stack: ExitStack,
        epochs: int | None,
        epoch_rows: int,
        retention: Retention,
    ) -> RegionDriver:
        catalog, source = self.catalog, Rows(self.rows)
        flow = catalog.open_flow("small", key_groups=GROUPS, now_us=1)
        owner = claim(catalog, now_us=self.clock.now_us())
        heart = Heartbeat(catalog, owner, lambda: None)
        heart.start()
        stack.callback(heart.stop)
        sink = rl.sinks.files(str(self.out), format="json")
        committer = FileCommitter(sink)
        committer.open(Owner(flow=flow.id, sink="out", run=owner.run))
        cleaner = Cleaner(catalog, retention)
        stack.callback(cleaner.stop)
        tasks = Tasks(
            LocalStorage(self.store),
            self.store / ".working" / flow.id,
            self.process(),
            Sums.output,
            parallelism=self.parallelism,
        )
        stager = FileStager(path=str(self.out), format="json", partition_by=())
        task = KeyedTask(
            place=Place(
                storage=catalog.storage,
                region="main",
                stage="s",
                run=owner.run,
                token=owner.token,
            ),
            program=tasks.program(),
            parallelism=self.parallelism,
            key_groups=GROUPS,
            working_dir=str(tasks.working_dir),
            targets={"main": Targets(sinks={"out": stager})},
        )
        program = pickle.loads(tasks.program())
        layout = program.layout()
        plan = RegionPlan(
            store=catalog.storage.uri,
            flow=flow.id,
            region="main",
            run=owner.run,
            token=owner.token,
            key_groups=GROUPS,
            parallelism=self.parallelism,
            code="c0de",
            stages=("s",),
            restart=NoRestart(),
            operators={
                "op": OperatorPlan(
                    stage="s",
                    keys=layout.keys.ddl,
                    variables=layout.variables,
                    parameters=program.parameters,
                )
            },
            sinks={"out": "files"},
        )
        driver = RegionDriver(
            plan=plan,
            catalog=catalog,
            engine=SmallEngine(tasks, task, source),
            planner=Planner(
                readers={"rows": source},
                clock=self.clock,
                admission=Admission(target_us=None, max_rows=epoch_rows),
                operators={"op": ()},
                sources={},
                stops_at_end=True,
            ),
            committers={"out": committer},
            heartbeat=heart,
            cleaner=cleaner,
            clock=self.clock,
            max_epochs=epochs,
        )
        newest = catalog.newest()
        heart.listen(driver.ask, after=0 if newest is None else newest.requests)
        return driver

    def state(self, at: str | int | None = None) -> dict[str, tuple[int, list[int]]]:
        """Return the state as the files of an epoch say."""
        manifest = self.catalog.resolve(at)
        entries = read_entries(
            self.catalog.storage, manifest.operators["op"], now_us=manifest.now_us
        )
        found: dict[str, tuple[int, list[int]]] = {}
        for row in [] if entries is None else entries.to_pylist():
            key = row["key"]["k"]
            total, recent = found.get(key, (0, []))
            if row["entry"] == "values":
                total = row["data"]["total"]
            elif row["entry"] == "list":
                recent = [*recent, row["data"]["recent"]["value"]]
            found[key] = (total, recent)
        return found

    def output(self) -> Counter[Row]:
        """Return the rows that readers of the output see."""
        lines = [
            json.loads(line)
            for file in sorted(self.out.glob("epoch=*/*"))
            for line in file.read_text().splitlines()
        ]
        return Counter((row["k"], row["total"]) for row in lines)
