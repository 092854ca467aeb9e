"""Epochs run again: same results, in this process, with nothing touched."""

from __future__ import annotations

import io
import itertools
import json
import pdb
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import riverlock as rl
from riverlock.cli import main
from riverlock.core.errors import (
    InvalidConfigError,
    SnapshotNotFoundError,
)
from riverlock.replay.stepping import Stepper
from riverlock.snapshot.catalog import Catalog
from riverlock.storage.open import open_storage

pytestmark = pytest.mark.spark


class Dice(rl.Process):
    """State of all kinds, timers of both kinds, randomness, a side output."""

    output = "k bigint, total bigint, roll double"
    total = rl.Value("bigint", default=0)
    recent = rl.List("bigint")
    seen = rl.Map("bigint", "timestamp", ttl="1 hour")
    odd = rl.SideOutput("k bigint, n bigint")

    def on_event(self, e: Any, ctx: Any) -> Iterator[Any]:
        self.total += e.n * BONUS
        self.recent.append(e.n)
        self.seen[e.n % 3] = ctx.now
        ctx.set_timer(ctx.time + rl.seconds(40))
        ctx.set_timer(ctx.now + rl.milliseconds(1), processing=True)
        if e.n % 7 == 0:
            ctx.emit(self.odd, (e.k, e.n))
        yield e.k, self.total, ctx.random.random()

    def on_timer(self, at: Any, ctx: Any) -> Iterator[Any]:
        if len(self.recent) > 5:
            self.recent.clear()
        yield ctx.key, -self.total, ctx.random.random()


BONUS = 1


def dice(folder: Path, rows: int = 300) -> rl.Flow:
    flow = rl.Flow("dice", key_groups=8)
    at = "timestamp_micros(1767225600000000 + id * 1000000)"
    columns = {"k": "id % 5", "n": "id", "at": at, "part": "id % 4"}
    events = flow.read(rl.sources.generator(columns, rows=rows)).event_time("at")
    played = events.where("n % 11 != 3").key_by("k").process(Dice(), uid="dice")
    played.write(rl.sinks.files(str(folder / "out"), format="json"), uid="out")
    played.side("odd").write(rl.sinks.memory(), uid="odd")
    hourly = events.key_by("part").window(rl.tumbling("20 seconds"))
    counts = hourly.agg(n=F.count("*"), total=F.sum("n"))
    counts.write(rl.sinks.files(str(folder / "counts"), format="parquet"), uid="counts")
    counts.select("part", "n").write(
        rl.sinks.files(str(folder / "few"), format="csv"), uid="few"
    )
    return flow


@pytest.fixture(scope="module")
def played(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dice")
    dice(folder).run(
        str(folder / "store"),
        spark=spark,
        available_now=True,
        max_rows_per_epoch=50,
        parallelism=3,
    )
    return folder


def listing(folder: Path) -> dict[str, int]:
    return {
        str(p.relative_to(folder)): p.stat().st_mtime_ns
        for p in folder.rglob("*")
        if p.is_file()
    }


def changed(store: str, epoch: int) -> list[dict[str, Any]]:
    """What the change files of an epoch say, read by Parquet alone."""
    manifest = Catalog(open_storage(store)).manifest(epoch)
    files = manifest.operators["dice"].files
    mine = [f.path for f in files if f.first_epoch == f.last_epoch == epoch]
    return [row for p in mine for row in pq.read_table(f"{store}/{p}").to_pylist()]


def test_every_epoch_is_the_same_again_and_nothing_is_touched(
    spark: SparkSession, played: Path
) -> None:
    before = listing(played)
    epochs = Catalog(open_storage(str(played / "store"))).epochs()

    found = dice(played).replay(str(played / "store"), 0, epochs[-1], spark=spark)

    assert [(e.epoch, e) for e in found.epochs if not e.matches] == []
    assert found.matches
    assert found.is_same_code
    assert found.changes == ()
    assert sum(s.entries for e in found.epochs for s in e.states) > 100
    assert sum(o.rows for e in found.epochs for o in e.outputs) > 300
    assert {o.how for e in found.epochs for o in e.outputs} == {"checksums"}
    assert listing(played) == before


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_a_thousand_epochs_are_the_same_again(
    spark: SparkSession, tmp_path: Path
) -> None:
    store = str(tmp_path / "store")
    every: dict[str, Any] = {
        "max_rows_per_epoch": 4,
        "retain_epochs": 2000,
        "parallelism": 2,
    }
    dice(tmp_path, 4000).run(store, spark=spark, available_now=True, **every)
    last = Catalog(open_storage(store)).epochs()[-1]

    found = dice(tmp_path, 4000).replay(store, 0, last, spark=spark)

    assert last >= 999
    assert [e.epoch for e in found.epochs if not e.matches] == []


def test_one_key_is_replayed_alone(spark: SparkSession, played: Path) -> None:
    store = str(played / "store")

    found = dice(played).replay(store, 2, 4, operator="dice", key=3, spark=spark)

    assert found.matches
    states = [s for e in found.epochs for s in e.states]
    assert {s.operator for s in states} == {"dice"}
    expected = [
        len([row for row in changed(store, epoch) if row["key"] == {"k": 3}])
        for epoch in (2, 3, 4)
    ]
    assert [s.entries for s in states] == expected
    assert min(expected) > 10


def test_a_debugger_stops_in_user_code_at_the_key(
    spark: SparkSession, played: Path
) -> None:
    said = io.StringIO()
    script = "p ctx.key, e.n\nc\n" * 100 + "c\n" * 100
    debugger = pdb.Pdb(stdin=io.StringIO(script), stdout=said, nosigint=True)

    found = dice(played).replay(
        str(played / "store"),
        2,
        operator="dice",
        key="3",  # as a command line gives it
        stepper=Stepper(debugger),
        spark=spark,
    )

    assert found.matches
    stops = [s for s in said.getvalue().splitlines() if s.startswith("(Pdb) (3, ")]
    assert [int(s[10:-1]) for s in stops] == [
        n for n in range(100, 150) if n % 5 == 3 and n % 11 != 3
    ]


def test_changed_code_is_a_shadow_run(
    spark: SparkSession, played: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(globals(), "BONUS", 2)  # as another version of the code would

    found = dice(played).replay(str(played / "store"), 0, 1, spark=spark)

    assert not found.matches
    wrong = {s.operator for e in found.epochs for s in e.states if not s.matches}
    assert wrong == {"dice"}
    totals = {
        c.key["k"]: (c.before["total"], c.after["total"])
        for c in found.changes
        if c.entry == "values"
    }
    assert totals.keys() == {0, 1, 2, 3, 4}
    assert all(after == 2 * before for before, after in totals.values())
    outputs = {o.sink: o for e in found.epochs for o in e.outputs}
    assert outputs["counts"].matches
    assert outputs["odd"].matches
    before = [json.loads(row) for row in outputs["out"].only_before.elements()]
    after = [json.loads(row) for row in outputs["out"].only_after.elements()]
    assert len(before) == len(after) > 0
    assert sum(r["total"] for r in after) == 2 * sum(r["total"] for r in before)


def test_what_cannot_be_replayed_is_said(spark: SparkSession, played: Path) -> None:
    store = str(played / "store")
    flow = dice(played)

    with pytest.raises(SnapshotNotFoundError, match="epoch 7"):
        flow.replay(store, 1, 900, spark=spark)
    with pytest.raises(InvalidConfigError, match="one of dice"):
        flow.replay(store, 1, key=3, spark=spark)
    with pytest.raises(InvalidConfigError, match="k bigint"):
        flow.replay(store, 1, key="ann", operator="dice", spark=spark)
    with pytest.raises(InvalidConfigError, match="over windows"):
        flow.replay(store, 1, key=1, operator="window-1", spark=spark)
    with pytest.raises(InvalidConfigError, match="code of your own"):
        flow.replay(store, 1, operator="window-1", stepper=Stepper(), spark=spark)


APP = """
import riverlock as rl


class Halves(rl.Process):
    output = "k string, half double"
    sum = rl.Value("double", default=0.0)

    def on_event(self, row, ctx):
        self.sum += row.n / {divisor}
        yield row.k, self.sum


flow = rl.Flow("halves", key_groups=4)
columns = "k string, n int"
rows = flow.read(rl.sources.files("{folder}/in", format="json", schema=columns))
rows.key_by("k").process(Halves(), uid="halves").write(
    rl.sinks.files("{folder}/out", format="json"), uid="out"
)
"""


def test_the_command_replays_shows_differences_and_missing_input(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "in").mkdir()
    for number in range(2):
        rows = [{"k": k, "n": number + 1} for k in "ab"]
        text = "\n".join(map(json.dumps, rows))
        (tmp_path / "in" / f"{number}.json").write_text(text)
    app, store = tmp_path / "halves_app.py", str(tmp_path / "store")
    app.write_text(APP.format(folder=tmp_path, divisor=2))
    once = ["--available-now", "--max-rows-per-epoch", "1", "--parallelism", "2"]
    assert (
        CliRunner().invoke(main, ["run", str(app), "--store", store, *once]).exit_code
        == 0
    )

    same = CliRunner().invoke(main, ["replay", f"{store}@0..", str(app), "--json"])
    one = CliRunner().invoke(main, ["replay", f"{store}@1", str(app), "--key", "a"])
    kept = CliRunner().invoke(main, ["check", str(app), "--store", store, "--json"])
    narrow = APP.replace(
        'rl.Value("double", default=0.0)', 'rl.Value("int", default=0)'
    )
    app.write_text(narrow.format(folder=tmp_path, divisor=2))
    refused = CliRunner().invoke(main, ["check", str(app), "--store", store])
    nobody = ["replay", f"{store}@1", str(app), "--key", "nobody"]
    app.write_text(APP.replace("n int", "m int").format(folder=tmp_path, divisor=2))
    columns = CliRunner().invoke(main, ["check", str(app), "--store", store])
    app.write_text(APP.format(folder=tmp_path, divisor=4))
    unseen = CliRunner().invoke(main, nobody)
    other = CliRunner().invoke(main, ["replay", f"{store}@1", str(app)])
    app.write_text(APP.format(folder=tmp_path, divisor=0))
    said = io.StringIO()
    debugger = pdb.Pdb(stdin=io.StringIO("c\np row\nq\n"), stdout=said, nosigint=True)
    # click's runner gives a debugger that is made inside it the real terminal.
    monkeypatch.setattr("riverlock.cli.replay._stepper", lambda: Stepper(debugger))
    flawed = CliRunner().invoke(
        main, ["replay", f"{store}@1", str(app), "--key", "b", "--pdb"]
    )
    (tmp_path / "in" / "1.json").unlink()
    gone = CliRunner().invoke(main, ["replay", f"{store}@1", str(app)])

    assert same.exit_code == 0, same.output
    assert json.loads(same.stdout)["matches"] is True
    assert [e["rows"] for e in json.loads(same.stdout)["epochs"]] == [2, 2]
    assert one.exit_code == 0, one.output
    assert "state of key a is as it was; outputs were not compared" in one.stdout
    assert kept.exit_code == 0
    steps = [(s["variable"], s["action"]) for s in json.loads(kept.stdout)["upgrade"]]
    assert steps == [(None, "kept"), ("sum", "kept")]
    assert refused.exit_code == 1
    assert "sum: key value of double" in refused.stdout
    assert "flow halves cannot run on this store" in refused.stdout
    assert unseen.exit_code == 1
    assert "no record of key nobody was seen" in unseen.stdout
    assert "migrate=" in refused.stdout
    assert columns.exit_code == 1
    assert "n int is gone, which 'halves' was given" in columns.stdout
    assert "m int is new" in columns.stdout
    assert other.exit_code == 1
    assert "shadow run" in other.stdout
    assert '"sum":1.5' in other.stdout  # before
    assert '"sum":1.0' in other.stdout  # after: 0.5 from the snapshot, 2 / 4 on top
    assert '+ {"k":"a","half":1.0}' in other.stdout
    assert flawed.exit_code == 1
    assert "self.sum += row.n / 0" in said.getvalue()
    assert "ZeroDivisionError" in said.getvalue()
    assert "Record(k='b', n=2)" in said.getvalue()
    assert "ZeroDivisionError" in flawed.stderr
    assert gone.exit_code == 1
    assert "epoch 1 cannot be replayed" in gone.stderr


def test_a_key_is_shown_event_by_event(spark: SparkSession, played: Path) -> None:
    store = str(played / "store")

    found = dice(played).replay(store, 2, operator="dice", key=3, spark=spark)

    events = [step for step in found.steps if step.what == "event"]
    assert len(events) == found.key_rows
    assert {step.epoch for step in found.steps} == {2}
    for one, next_one in itertools.pairwise(found.steps):
        assert next_one.before == one.after
    assert all("k=3" in step.given for step in events)
    assert sum(len(step.rows) for step in found.steps) > 0
