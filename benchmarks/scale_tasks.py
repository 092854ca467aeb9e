"""A region of thousands of tasks: its real coordinator, manifests and working sets.

Tasks are fake: they vote as real ones do, and their files are names with a size. The
coordinator, sealing, the catalog, the choice of merges, retention, and what tasks are
told of an epoch are those of every run. So what is counted is what a cluster of that
size would do, but for the work of the tasks themselves.
"""

from __future__ import annotations

import base64
import pickle
import time
import uuid
import zlib
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cache
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from benchmarks.common import median
from benchmarks.counted_storage import CountedStorage
from riverlock.coordinator import events as ev
from riverlock.coordinator import instructions as do
from riverlock.coordinator.plan import OperatorPlan, RegionPlan
from riverlock.coordinator.region import RegionCoordinator
from riverlock.coordinator.restart import NoRestart
from riverlock.coordinator.votes import OperatorVote, Vote
from riverlock.core.types import schema_of
from riverlock.operators.shipped import EpochInfo
from riverlock.snapshot import file_lists
from riverlock.snapshot.catalog import Catalog
from riverlock.snapshot.file_lists import Remembered, put_lists, unlisted
from riverlock.snapshot.format.records import (
    FORMAT,
    Flow,
    InputRange,
    StateFile,
    Variable,
)
from riverlock.snapshot.format.sealed import seal
from riverlock.snapshot.format.state_files import write_state_file
from riverlock.snapshot.format.store_layout import FLOW
from riverlock.snapshot.retention.compaction import choose
from riverlock.snapshot.retention.policy import Retention, sweep
from riverlock.state.copy.baseline import Baseline
from riverlock.state.keys import group_range
from riverlock.state.layout import arrow_schema
from riverlock.storage.memory import MemoryStorage
from riverlock.worker.task import KeyedEpoch, Outcome, decode_outcome

if TYPE_CHECKING:
    from collections.abc import Iterator

    from riverlock.snapshot.format.records import Manifest

OPERATOR = "count"
KEY_GROUPS = 32_768
KEYS, VARIABLES = "k bigint", {"n": Variable(kind="value", type="bigint")}
# Tasks whose reads are counted one by one; the mean of them is shown.
SAMPLE = 20


@dataclass(frozen=True)
class Shape:
    """A region.

    Attributes:
        tasks: How many there are.
        epochs: How many are run.
        keys: How many each task has.
        touched: How many of them change in an epoch.
        has_lists: Whether files that are many stand in lists.
    """

    tasks: int
    epochs: int
    keys: int = 1_000
    touched: int = 100
    has_lists: bool = True


@cache
def file_bytes(rows: int) -> int:
    """Return the size of a real state file of so many rows."""
    schema = arrow_schema(schema_of(KEYS), VARIABLES)
    entries = [
        {
            "id": number.to_bytes(8, "big"),
            "entry": "values",
            "key_group": number % KEY_GROUPS,
            "key": {"k": number * 7919},
            "deleted": False,
            "data": {"n": number * 31},
        }
        for number in range(rows)
    ]
    table = pa.Table.from_pylist(entries, schema=schema)
    made = write_state_file(
        MemoryStorage(), "x", table, epochs=(0, 0), groups=(0, KEY_GROUPS)
    )
    return made.bytes


@dataclass
class Region:
    """One run of a region."""

    shape: Shape
    storage: CountedStorage = field(default_factory=CountedStorage)
    epochs: list[dict[str, float]] = field(default_factory=list)
    _token: str = field(default_factory=lambda: uuid.uuid4().hex)

    def __post_init__(self) -> None:
        """Make the store."""
        flow = Flow(
            format=FORMAT, name="m", id="m", key_groups=KEY_GROUPS, created_us=0
        )
        self.storage.put(FLOW, seal(flow))
        self.catalog = Catalog(self.storage)

    @property
    def newest(self) -> Manifest:
        found = self.coordinator.newest
        assert found is not None
        return found

    def run(self) -> None:
        """Decide all epochs."""
        self.coordinator = RegionCoordinator(
            RegionPlan(
                store="memory:",
                flow="m",
                region="main",
                run=1,
                token=self._token,
                key_groups=KEY_GROUPS,
                parallelism=self.shape.tasks,
                code="c0de",
                stages=(OPERATOR,),
                restart=NoRestart(),
                operators={
                    OPERATOR: OperatorPlan(
                        stage=OPERATOR, keys=KEYS, variables=VARIABLES
                    )
                },
                sinks={"out": "files"},
            )
        )
        found = self.coordinator.handle(ev.Recovered(region="main", newest=None))
        pending = list(found)
        while len(self.epochs) < self.shape.epochs:
            pending += self._carry_out(pending.pop(0))

    def _carry_out(self, order: do.Instruction) -> tuple[do.Instruction, ...]:
        match order:
            case do.PlanInputs():
                self.storage.take()
                at = 0 if order.parent is None else order.parent.inputs["in"].end
                return self.coordinator.handle(
                    ev.Planned(
                        region="main",
                        turn=order.turn,
                        inputs={"in": InputRange(start=at, end=at + 1, rows=1)},
                        watermarks={},
                        now_us=order.epoch,
                        seed=order.epoch,
                        started_us=order.epoch,
                    )
                )
            case do.RunStage():
                return self._run_stage(order)
            case do.PutManifest():
                return self._put(order)
            case do.CommitSink():
                return self.coordinator.handle(
                    ev.SinkCommitted(region="main", sink=order.sink, epoch=order.epoch)
                )
            case do.CleanUp():
                return self._merge()
            case _:
                return ()

    def _run_stage(self, order: do.RunStage) -> tuple[do.Instruction, ...]:
        sent = [
            msgspec.msgpack.encode(Outcome(seed=order.epoch, vote=vote))
            for vote in self._votes(order.epoch)
        ]
        began = time.perf_counter()
        votes = [decode_outcome(each).vote for each in sent]
        read = time.perf_counter()
        orders = self.coordinator.handle(
            ev.StageVoted(
                region="main",
                turn=order.turn,
                stage=order.stage,
                votes=tuple(v for v in votes if v is not None),
            )
        )
        self._now = {
            "vote bytes": sum(map(len, sent)),
            "vote seconds": read - began,
            "seal seconds": time.perf_counter() - read,
        }
        return orders

    def _votes(self, epoch: int) -> Iterator[Vote]:
        shape, paths = self.shape, self.catalog.paths
        rows = shape.keys if epoch == 0 else shape.touched
        for task in range(shape.tasks):
            attempt = f"000001-{OPERATOR}-{task:05d}-{uuid.uuid4().hex[:12]}"
            path = paths.state_file(OPERATOR, epoch, attempt)
            self.storage.place(path)
            token = {
                "root": "s3://bucket/out",
                "staged": f"_riverlock/staged/{epoch:012d}/{self._token}/{attempt}",
                "name": f"epoch={epoch}/part-{attempt}.parquet",
                "rows": shape.touched,
                "bytes": 4_321,
                "checksum": uuid.uuid4().hex,
            }
            laps = ("restore_s", "prepare_s", "user_s", "output_s", "state_s")
            yield Vote(
                partition=task,
                attempt=attempt,
                operators={
                    OPERATOR: OperatorVote(
                        files=(self._file(path, (epoch, epoch), task, rows),),
                        entries_delta=rows if epoch == 0 else 0,
                    )
                },
                outputs={"out": (token,)},
                output_rows={"out": shape.touched},
                rows=shape.touched,
                metrics=dict.fromkeys(laps, 0.0123456),
            )

    def _file(
        self, path: str, epochs: tuple[int, int], task: int, rows: int
    ) -> StateFile:
        first, end = group_range(task, self.shape.tasks, KEY_GROUPS)
        return StateFile(
            path=path,
            first_epoch=epochs[0],
            last_epoch=epochs[1],
            first_group=first,
            end_group=end,
            rows=rows,
            bytes=file_bytes(rows),
            checksum=uuid.uuid4().hex,
        )

    def _put(self, order: do.PutManifest) -> tuple[do.Instruction, ...]:
        self.storage.take()
        began = time.perf_counter()
        put_lists(self.catalog, order.lists)
        assert self.catalog.decide(order.manifest)
        took = time.perf_counter() - began
        counted = self.storage.take()
        path = self.catalog.paths.manifest(order.epoch)
        size = len(MemoryStorage.get(self.storage, path))
        self._now |= {
            "put seconds": took,
            "manifest bytes": size,
            "list bytes": sum(map(len, order.lists.values())),
            "driver puts": counted["puts"],
            "driver gets": counted["gets"],
            "driver listings": counted["listings"],
            "task puts": 2 * self.shape.tasks,
            "files": len(order.manifest.operators[OPERATOR].files),
            "lists": len(order.manifest.operators[OPERATOR].lists),
        }
        self.epochs.append(self._now)
        return self.coordinator.handle(
            ev.ManifestPut(
                region="main", turn=order.turn, created=True, decided_us=order.epoch
            )
        )

    def _merge(self) -> tuple[do.Instruction, ...]:
        """Merge what is due, as the cleaner does: the next epoch takes it up."""
        state, shape = self.newest.operators[OPERATOR], self.shape
        plan = choose(OPERATOR, state)
        if plan is None:
            return ()
        merged = sum(f.rows for f in plan.files) // shape.tasks
        # So many different keys are among so many that were drawn.
        rows = round(shape.keys * (1 - (1 - 1 / shape.keys) ** merged))
        rows = shape.keys if plan.drops_tombstones else rows
        epochs = plan.epochs  # which looks at all files
        stem = self.catalog.paths.state_file(OPERATOR, epochs[1], "c")
        made = []
        for task in range(shape.tasks):
            path = f"{stem.removesuffix('.parquet')}-{uuid.uuid4().hex[:12]}.parquet"
            self.storage.place(path)
            made.append(self._file(path, epochs, task, rows))
        return self.coordinator.handle(
            ev.Compacted(
                region="main",
                operator=OPERATOR,
                replaced=tuple(f.path for f in plan.files),
                by=tuple(made),
            )
        )

    # What is read of it.

    def baseline(self) -> Baseline:
        """Return what tasks are told of the state that the next epoch begins with."""
        state = self.newest.operators[OPERATOR]
        return Baseline(
            epoch=self.newest.epoch,
            now_us=self.newest.now_us,
            files=unlisted(state),
            lists=state.lists,
            history=self.newest.history,
        )

    def told(self) -> int:
        """Return the bytes that go with each task, packed as the engine packs them."""
        info = EpochInfo(
            epoch=self.newest.epoch + 1,
            now_us=0,
            seed=0,
            watermark_us=None,
            previous_us=None,
        )
        begun = KeyedEpoch(info=info, base=self.baseline())
        return len(base64.b64encode(zlib.compress(pickle.dumps(begun), 1)))

    def driver_reads(self) -> tuple[int, float]:
        """Return what a new driver reads to know the newest epoch, and how long."""
        file_lists._remembered = Remembered(512)
        self.storage.take()
        began = time.perf_counter()
        Catalog(self.storage).newest()
        return self.storage.take()["gets bytes"], time.perf_counter() - began

    def task_reads(self, tasks: int, *, after: int | None = None) -> dict[str, float]:
        """Return what a task reads to have its state: the mean of some tasks.

        Args:
            tasks: How many there are from now on.
            after: The epoch that its working copy has; None: it has none.
        """
        base, lists, files = self.baseline(), 0, 0
        for n in range(SAMPLE):
            groups = group_range(n * tasks // SAMPLE, tasks, KEY_GROUPS)
            file_lists._remembered = Remembered(512)
            self.storage.take()
            known = base.within(groups).read(self.storage, after=after).within(groups)
            lists += self.storage.take()["gets bytes"]
            needed = [f for f in known.files if after is None or f.last_epoch > after]
            files += sum(f.bytes for f in needed)
        return {"list bytes": lists / SAMPLE, "state bytes": files / SAMPLE}

    def named(self) -> dict[str, float]:
        """Return what it takes to name the newest epoch, whose files must be there."""
        self.storage.take()
        self.catalog.pin("v", epoch=self.newest.epoch, now_us=0)
        counted = self.storage.take()
        return {"gets": counted["gets"], "listings": counted["listings"]}

    def sweep(self) -> dict[str, float]:
        """Return what one round of retention costs."""
        file_lists._remembered = Remembered(512)
        self.storage.take()
        began = time.perf_counter()
        gone = sweep(self.catalog, Retention(epochs=20, grace=timedelta(0)))
        took, counted = time.perf_counter() - began, self.storage.take()
        return {
            "seconds": took,
            "deleted": gone,
            "gets": counted["gets"],
            "listings": counted["listings"],
            "bytes read": counted["gets bytes"],
        }


def measured(shape: Shape) -> dict[str, Any]:
    """Run a region and return what it cost."""
    most = file_lists.MOST
    if not shape.has_lists:
        file_lists.MOST = 1 << 40
    try:
        region = Region(shape)
        region.run()
        steady = region.epochs[len(region.epochs) // 2 :]
        names = [*steady[0]]
        newest = region.newest.epoch
        return {
            "tasks": shape.tasks,
            "lists": shape.has_lists,
            "epoch": {n: median([e[n] for e in steady]) for n in names},
            "most": {n: max(e[n] for e in steady) for n in names},
            "told bytes": region.told(),
            "driver": dict(
                zip(("bytes", "seconds"), region.driver_reads(), strict=True)
            ),
            "next epoch": region.task_reads(shape.tasks, after=newest - 1),
            "recovery": region.task_reads(shape.tasks),
            "rescale": region.task_reads(shape.tasks * 5 // 4),
            "name": region.named(),
            "sweep": region.sweep(),
        }
    finally:
        file_lists.MOST = most
