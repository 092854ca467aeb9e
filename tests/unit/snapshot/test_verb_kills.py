"""What is done to a store, killed between its steps: a retry works, nothing is lost.

Restore, fork, expiry and repair have more of it in their own files; rescaling is in
``test_rescale.py``.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from tests.unit.snapshot.killing import killed_at
from tests.unit.snapshot.local_flow import LocalFlow, source
from tests.unit.snapshot.small_flow import SmallFlow, output_of, state_of

import riverlock as rl
from riverlock.core.errors import InvalidConfigError
from riverlock.driver.region_loop import RegionDriver
from riverlock.snapshot.retention.compaction import MAX_SPANS
from riverlock.snapshot.retention.policy import Retention, sweep
from riverlock.snapshot.state_reader import read_entries
from riverlock.snapshot.verbs.verify import verify

ROWS = [(f"k{n * 7 % 5}", n % 11) for n in range(24)]


@pytest.fixture
def flow(tmp_path: Path) -> SmallFlow:
    """Four epochs of three rows each; as many rows are left."""
    made = SmallFlow(tmp_path / "store", ROWS, tmp_path / "out")
    made.run(4)
    return made


def check_goes_on(flow: SmallFlow) -> None:
    """Let the flow run to its end, and compare all there is with the oracle."""
    flow.run()
    assert flow.state() == state_of(flow.rows)
    assert flow.output() == output_of(flow.rows)
    assert [r.problems for r in verify(flow.catalog) if not r.is_whole] == []


def age(flow: SmallFlow) -> None:
    for file in flow.store.rglob("*"):
        os.utime(file, (1, 1))


def test_a_savepoint_that_is_killed_has_its_name_or_not(flow: SmallFlow) -> None:
    address = f"{flow.store}@2"
    assert killed_at("P7", lambda: rl.stores.savepoint(address, "v1"))
    assert flow.catalog.snapshots() == []
    assert killed_at("V5", lambda: rl.stores.savepoint(address, "v1"))

    # It is there, so a retry is told so; and it keeps its epoch.
    with pytest.raises(InvalidConfigError, match="an existing one"):
        rl.stores.savepoint(address, "v1")
    age(flow)
    sweep(flow.catalog, Retention(epochs=1, grace=timedelta(0)))
    assert flow.catalog.epochs() == [2, 3]
    assert flow.state("v1") == state_of(ROWS[:9])
    rl.stores.drop_savepoint(str(flow.store), "v1")
    rl.stores.savepoint(address, "v1")
    check_goes_on(flow)


@pytest.mark.parametrize("point", ["P6", "P8", "V5"])
def test_a_stop_with_savepoint_that_is_killed_can_be_done_again(
    flow: SmallFlow, point: str
) -> None:
    def stop(driver: RegionDriver) -> None:
        if (driver.status.epoch or 0) > 4:
            driver.stop()

    def stop_and_name() -> None:
        flow.after = stop
        flow.run()
        newest = flow.catalog.resolve(None)
        flow.catalog.pin("v1", epoch=newest.epoch, now_us=1)

    assert killed_at(point, stop_and_name)
    if point == "V5":
        flow.catalog.unpin("v1")
    stop_and_name()

    done = flow.catalog.resolve("v1").inputs["rows"].end
    assert 12 < done < len(ROWS)
    assert flow.state("v1") == state_of(ROWS[:done])
    assert flow.output() == output_of(ROWS[:done])
    flow.after = lambda _: None
    check_goes_on(flow)


@pytest.mark.parametrize("count", [1, 2])
def test_a_restore_that_is_killed_among_folders_is_finished_by_the_next_start(
    flow: SmallFlow, count: int
) -> None:
    assert killed_at("V6", lambda: rl.stores.restore(f"{flow.store}@0"), count=count)

    assert flow.state() == state_of(ROWS[:3])
    partly = flow.output()
    assert output_of(ROWS[:3]) < partly < output_of(ROWS[:12])
    check_goes_on(flow)


@pytest.mark.parametrize("copy", [False, True])
def test_a_fork_that_is_killed_at_its_end_is_there(
    flow: SmallFlow, tmp_path: Path, *, copy: bool
) -> None:
    new = tmp_path / "fork"
    assert killed_at("V4", lambda: rl.stores.fork(str(flow.store), str(new), copy=copy))

    child = SmallFlow(new, ROWS, tmp_path / "fork-out")
    with pytest.raises(InvalidConfigError, match="a store"):
        rl.stores.fork(str(flow.store), str(new), copy=copy)
    assert rl.stores.verify(str(new)).is_whole
    child.run()
    assert child.state() == state_of(ROWS)
    assert child.output() == output_of(ROWS) - output_of(ROWS[:12])
    check_goes_on(flow)


def test_an_export_that_is_killed_leaves_nothing_that_readers_see(
    flow: SmallFlow, tmp_path: Path
) -> None:
    def export(name: str) -> Any:
        return rl.open(str(flow.store)).export(tmp_path / name)

    assert killed_at("V2", lambda: export("a"))

    # What is unfinished has a name that readers of directories leave out.
    assert [p.name for p in (tmp_path / "a").rglob("part*")] == []
    with pytest.raises(InvalidConfigError, match="nothing is overwritten"):
        export("a")
    export("b")
    found = pq.ParquetFile(tmp_path / "b/op/part-00000.parquet").read(use_threads=False)
    totals = {row["k"]: row["total"] for row in found.to_pylist()}
    assert totals == {k: total for k, (total, _) in state_of(ROWS[:12]).items()}
    check_goes_on(flow)


def test_a_compaction_that_is_killed_is_done_again(tmp_path: Path) -> None:
    rows = [(f"k{n % 5}", n % 11) for n in range(3 * MAX_SPANS)]
    flow = SmallFlow(tmp_path / "store", rows, tmp_path / "out")

    assert killed_at("P12", lambda: flow.run(epoch_rows=1))

    done = flow.catalog.resolve(None).inputs["rows"].end
    assert flow.state() == state_of(rows[:done])
    flow.run(epoch_rows=1)
    merged = flow.catalog.resolve(None).operators["op"].files
    assert any(f.first_epoch < f.last_epoch for f in merged)
    check_goes_on(flow)
    age(flow)
    sweep(flow.catalog, Retention(epochs=1, grace=timedelta(0)))
    left = {str(p.relative_to(flow.store)) for p in flow.store.rglob("*.parquet")}
    assert left == {f.path for f in flow.catalog.resolve(None).operators["op"].files}


def test_runs_of_one_epoch_take_up_what_the_runs_before_have_merged(
    tmp_path: Path,
) -> None:
    rows = [(f"k{n % 5}", n % 11) for n in range(2 * MAX_SPANS)]
    most = 0
    for end in range(1, len(rows) + 1):
        # As from cron: each run takes what is there, and ends.
        flow = SmallFlow(tmp_path / "store", rows[:end], tmp_path / "out")
        flow.run()
        files = flow.catalog.resolve(None).operators["op"].files
        most = max(most, len({(f.first_epoch, f.last_epoch) for f in files}))

    assert flow.catalog.resolve(None).epoch >= len(rows) - 1
    # One that makes it too many, and a second epoch of that run, for a timer.
    assert most <= MAX_SPANS + 2
    check_goes_on(flow)
    age(flow)
    sweep(flow.catalog, Retention(epochs=1, grace=timedelta(0)))
    check_goes_on(flow)


class Begun(rl.Process):
    """Begins with what another system knew."""

    output = "k string, total long"
    total = rl.Value("long", default=0)

    def on_initial(self, row: Any, ctx: Any) -> None:
        self.total += row.base

    def on_event(self, row: Any, ctx: Any) -> Any:
        self.total += row.v
        yield row.k, self.total


INITIAL = [(f"k{n}", 100 * n) for n in range(8)]


class BegunFlow(LocalFlow):
    def build(self) -> rl.Flow:
        flow = rl.Flow("begun", key_groups=8)
        rows = flow.read(source("k string, v long"), uid="rows")
        begun = rows.key_by("k").process(
            Begun(), uid="op", initial=("k string, base long", INITIAL)
        )
        begun.write(rl.sinks.files(str(self.out), format="json"), uid="out")
        return flow


@pytest.mark.parametrize("point", ["P2", "P6", "P8"])
def test_a_bootstrap_that_is_killed_is_taken_once(tmp_path: Path, point: str) -> None:
    flow = BegunFlow(tmp_path / "store", ROWS, tmp_path / "out", parallelism=2)

    assert killed_at(point, lambda: flow.run(2))
    flow.run()

    truth = dict(INITIAL)
    expected: Counter[tuple[str, int]] = Counter()
    for key, number in ROWS:
        truth[key] += number
        expected[key, truth[key]] += 1
    assert flow.written() == expected
    manifest = flow.catalog.resolve(None)
    entries = read_entries(
        flow.catalog.storage, manifest.operators["op"], now_us=manifest.now_us
    )
    assert entries is not None
    found = {r["key"]["k"]: r["data"]["total"] for r in entries.to_pylist()}
    assert found == truth


class Moved(rl.Process):
    """``Sums`` with other names and meanings."""

    output = "k string, total long"
    halves = rl.Value(
        "long", default=0, formerly="total", migrate=lambda total: 2 * total
    )
    latest = rl.List("long", formerly="recent")

    def on_event(self, row: Any, ctx: Any) -> Any:
        self.halves += 2 * row.v
        self.latest.append(row.v)
        yield row.k, self.halves // 2


class MovedFlow(LocalFlow):
    def build(self) -> rl.Flow:
        flow = rl.Flow("small", key_groups=16)
        rows = flow.read(source("k string, v long"), uid="rows")
        rows.key_by("k").process(Moved(), uid="moved").write(
            rl.sinks.files(str(self.out), format="json"), uid="out"
        )
        return flow.renamed({"op": "moved"})

    def state(self) -> dict[str, tuple[int, list[int]]]:
        newest = rl.open(str(self.store)).at()
        rows = newest.state("moved").to_arrow().to_pylist()
        return {r["k"]: (r["halves"] // 2, r["latest"]) for r in rows}


# Before the manifest is read; in each file that is rewritten; with all of them there;
# in the tasks; and around the decision of the first epoch that has them.
@pytest.mark.parametrize(
    ("point", "count"),
    [
        ("R1", 1),
        ("P3", 1),
        ("P3", 2),
        ("R3", 1),
        ("R2", 1),
        ("P4", 1),
        ("P6", 1),
        ("P8", 1),
    ],
)
def test_a_migration_that_is_killed_is_done_again(
    tmp_path: Path, point: str, count: int
) -> None:
    old = SmallFlow(tmp_path / "store", ROWS, tmp_path / "out", parallelism=2)
    old.run(4)
    before = old.catalog.resolve(None)
    new = MovedFlow(old.store, ROWS, old.out, parallelism=2)

    assert killed_at(point, lambda: new.run(1), count=count)

    if point != "P8":
        # Nothing of it is seen: the old code would go on as well.
        assert old.catalog.resolve(None) == before
        assert old.state() == state_of(ROWS[:12])
        assert old.output() == output_of(ROWS[:12])
    assert [r.problems for r in verify(old.catalog) if not r.is_whole] == []
    new.run()
    assert new.state() == state_of(ROWS)
    assert new.written() == output_of(ROWS)
    assert old.state(before.epoch) == state_of(ROWS[:12])
    assert [r.problems for r in verify(new.catalog) if not r.is_whole] == []
    touched = rl.stores.touches(str(new.store), "moved", "k1")
    assert [t.first for t in touched] == [
        n // 3 for n in range(0, 24, 3) if "k1" in dict(ROWS[n : n + 3])
    ]


def test_code_that_migrates_can_be_taken_back_before_it_decides(
    tmp_path: Path,
) -> None:
    old = SmallFlow(tmp_path / "store", ROWS, tmp_path / "out")
    old.run(4)
    new = MovedFlow(old.store, ROWS, old.out)

    assert killed_at("P6", lambda: new.run(1))

    check_goes_on(old)


# A process of its own: deltalake's threads do not survive a fork.
_DYING_EXPORT = """
import os, signal, sys
import riverlock as rl
from riverlock.query.relation import Relation

batches, tables = Relation.batches, int(sys.argv[3])

def dying(self):
    global tables
    tables -= 1
    if tables or sys.argv[4] == "after":
        yield from batches(self)
    if not tables:
        os.kill(os.getpid(), signal.SIGKILL)

Relation.batches = dying
rl.open(sys.argv[1]).export(sys.argv[2], kind="delta")
"""


@pytest.mark.parametrize("rows", ["before", "after"])
@pytest.mark.parametrize("table", [1, 2])
def test_an_export_to_delta_that_is_killed_leaves_whole_tables_or_none(
    flow: SmallFlow, tmp_path: Path, table: int, rows: str
) -> None:
    out, names = tmp_path / "out", ["op", "op.timers"]
    arguments = [str(flow.store), str(out), str(table), rows]

    died = subprocess.run(
        [sys.executable, "-c", _DYING_EXPORT, *arguments], check=False
    )

    assert died.returncode == -signal.SIGKILL
    found = [n for n in names if DeltaTable.is_deltatable(str(out / n))]
    assert found == names[: table - 1]
    with pytest.raises(InvalidConfigError, match="nothing is overwritten"):
        rl.open(str(flow.store)).export(out, kind="delta")
    shutil.rmtree(out)
    again = rl.open(str(flow.store)).export(out, kind="delta")
    assert [exported.name for exported in again] == names
    totals = {
        row["k"]: (row["total"], row["recent"])
        for row in DeltaTable(str(out / "op")).to_pyarrow_table().to_pylist()
    }
    assert totals == state_of(ROWS[:12])
