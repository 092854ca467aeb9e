"""The state of every retained epoch, however it is read, equals a fold of the input."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import deltalake
import duckdb
import pandas as pd
import polars as pl
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from tests.compat.everything import BEGIN, COLUMNS, GROUPS, LIMITS, Everything, Model

import riverlock as rl
from riverlock.core.clock import ManualClock
from riverlock.core.times import from_micros, micros
from riverlock.query.export import Format
from riverlock.query.opened_store import Store
from riverlock.query.relation import Relation

ROWS, PER_EPOCH, EARLY = 240, 40, 4
VALUES = ("count", "fresh", "tail", "burst", "seen", "best")


def _flow() -> rl.Flow:
    flow = rl.Flow("everything", key_groups=GROUPS)
    events = flow.read(rl.sources.generator(COLUMNS, rows=ROWS), uid="rows")
    other = flow.read(rl.sources.generator(LIMITS, rows=3), uid="limits")
    keyed = events.event_time("at").key_by("k")
    process = keyed.process(Everything(), uid="everything", broadcast=other)
    process.write(rl.sinks.memory())
    keyed.agg(n="count(*)", total="sum(id)", uid="totals").write(rl.sinks.memory())
    minutes = keyed.window(rl.tumbling("1 minute")).agg(n="count(*)", uid="minutes")
    minutes.write(rl.sinks.memory())
    return flow


@pytest.fixture(scope="module")
def root(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of at least six epochs; from the fifth on it is two hours later."""
    path = tmp_path_factory.mktemp("query") / "store"
    for hours, epochs in ((0, EARLY), (2, None)):
        _flow().run(
            str(path),
            spark=spark,
            available_now=True,
            parallelism=2 + hours,
            max_rows_per_epoch=PER_EPOCH,
            max_epochs=epochs,
            clock=ManualClock(micros(BEGIN + timedelta(hours=hours))),
        )
    return path


@dataclass(frozen=True)
class Expected:
    """What the state must be at an epoch."""

    everything: dict[str, Any]  # by variable
    totals: dict[Any, tuple[int, int]]
    minutes: dict[tuple[datetime, Any], int]

    @property
    def keys(self) -> dict[Any, dict[str, Any]]:
        """The variables by key; lists and maps are empty, values null, if not set."""
        of = self.everything
        empty: dict[str, Any] = {"tail": [], "burst": [], "seen": {}}
        return {
            k: {name: of[name].get(k, empty.get(name)) for name in VALUES}
            for k in of["count"]
        }


@pytest.fixture(scope="module")
def expected(root: Path) -> dict[int, Expected]:
    """A plain fold of the input, up to each retained epoch."""
    store, model, found = rl.open(root), Model(), {}
    for epoch in store.epochs():
        manifest = store.at(epoch).manifest
        now = BEGIN + timedelta(hours=0 if epoch < EARLY else 2)
        read = manifest.inputs["rows"]
        for n in range(read.start["row"], read.end["row"]):
            model.row(n, now)
        mark = manifest.operators["minutes"].watermark_us
        found[epoch] = Expected(
            everything=_copied(model.view(now)), **_folded(read.end["row"], mark)
        )
    assert len(found) >= ROWS // PER_EPOCH
    return found


def _copied(view: dict[str, Any]) -> dict[str, Any]:
    return {
        name: {k: _copy(v) for k, v in of.items()} if isinstance(of, dict) else of
        for name, of in view.items()
    }


def _copy(value: Any) -> Any:
    return value.copy() if isinstance(value, list | dict | set) else value


def _folded(end: int, watermark_us: int | None) -> dict[str, Any]:
    totals: dict[Any, tuple[int, int]] = {}
    minutes: Counter[tuple[datetime, Any]] = Counter()
    for n in range(end):
        k = n % 7 or None
        count, total = totals.get(k, (0, 0))
        totals[k] = (count + 1, total + n)
        ends = BEGIN + timedelta(minutes=n // 60 + 1)
        if watermark_us is None or ends > from_micros(watermark_us + 1):
            minutes[ends, k] += 1
    return {"totals": totals, "minutes": dict(minutes)}


def _keyed(rows: Any) -> dict[Any, dict[str, Any]]:
    """Rows of ``everything`` by key, whatever library they come from."""
    found = {}
    for row in rows:
        plain = {name: _plain(name, row[name]) for name in VALUES}
        found[_plain("k", row["k"])] = plain
    return found


def _plain(name: str, value: Any) -> Any:
    if value is None or (isinstance(value, float) and value != value):
        return None  # what pandas makes of null among numbers
    if name == "seen":
        pairs = value.items() if hasattr(value, "items") else value
        return {k: int(v) for k, v in pairs}
    if name in ("tail", "burst"):
        return [v.asDict() if hasattr(v, "asDict") else v for v in value]
    return value if isinstance(value, str) else int(value)


@pytest.mark.spark
def test_state_of_every_epoch(root: Path, expected: dict[int, Expected]) -> None:
    store = rl.open(root)
    for epoch, wanted in expected.items():
        at, of = store.at(epoch), wanted.everything

        assert _keyed(at.state("everything")) == wanted.keys, epoch
        for name in ("count", "fresh", "best"):
            rows = at.state("everything", name)
            assert {r["k"]: r[name] for r in rows} == of[name]
        tails = defaultdict(list)
        for r in at.state("everything", "tail"):
            tails[r["k"]].append(r["value"])
        assert tails == of["tail"]
        groups = at.state("everything", "in_group")
        assert {r["key_group"]: r["in_group"] for r in groups} == of["in_group"]
        limits = at.state("everything", "limits")
        assert {r["key"]: r["value"] for r in limits} == of["limits"]
        assert list(at.state("everything", "version")) == [{"version": 3}]
        timers = defaultdict(set)
        for r in at.timers("everything"):
            timers[r["k"]].add((r["kind"], r["at"]))
        assert timers == of["timers"]


@pytest.mark.spark
def test_aggregates_and_windows_of_every_epoch(
    root: Path, expected: dict[int, Expected]
) -> None:
    store = rl.open(root)
    for epoch, wanted in expected.items():
        totals = store.state("totals", at=epoch)
        minutes = store.state("minutes", at=epoch)

        assert {r["k"]: (r["n"], r["total"]) for r in totals} == wanted.totals
        found = {(r["window_end"], r["k"]): r["n"] for r in minutes}
        assert found == wanted.minutes, epoch
        assert minutes.columns == ("window_end", "k", "n")
    assert len(expected[EARLY].minutes) > 1


@pytest.mark.spark
def test_look_ups_give_the_rows_of_the_key(
    root: Path, expected: dict[int, Expected]
) -> None:
    store = rl.open(root)
    newest = expected[max(expected)]
    for k, row in newest.keys.items():
        assert _keyed(store.state("everything").get(k)) == {k: row}
    minutes = store.state("minutes")
    for k in newest.totals:
        of_key = {(r["window_end"], r["k"]): r["n"] for r in minutes.get(k)}
        assert of_key == {w: n for w, n in newest.minutes.items() if w[1] == k}
    for (ends, k), n in newest.minutes.items():
        assert [r["n"] for r in minutes.get((ends, k))] == [n]
    assert newest.minutes
    assert store.state("everything").get(99) == []


@pytest.mark.spark
def test_other_programs_read_what_is_exported(
    root: Path, expected: dict[int, Expected], tmp_path: Path
) -> None:
    store = rl.open(root)
    for epoch in (0, EARLY, max(expected)):
        wanted = expected[epoch]
        kinds: tuple[Format, ...] = ("parquet", "delta")
        for kind in kinds:
            out = tmp_path / f"{epoch}-{kind}"
            made = store.export(out, at=epoch, kind=kind)

            names = {t.name: t.rows for t in made}
            assert names["everything"] == len(wanted.keys)
            assert names["everything.in_group"] == len(wanted.everything["in_group"])
            assert names["minutes"] == len(wanted.minutes)
            for reads in (_by_duckdb, _by_polars, _by_pandas, _by_delta):
                rows = reads(out / "everything", kind)
                assert _keyed(rows) == wanted.keys, (epoch, kind, reads)


def _by_duckdb(path: Path, kind: str) -> Any:
    with duckdb.connect() as connection:
        if kind == "delta":  # without DuckDB's extension: the files of the log
            files = deltalake.DeltaTable(str(path)).file_uris()
            found = connection.read_parquet(files)
        else:
            found = connection.read_parquet(f"{path}/*.parquet")
        return found.to_arrow_table().to_pylist(maps_as_pydicts="strict")


def _by_polars(path: Path, kind: str) -> Any:
    if kind == "delta":
        return pl.read_delta(str(path)).iter_rows(named=True)
    return pl.read_parquet(f"{path}/*.parquet").iter_rows(named=True)


def _by_pandas(path: Path, kind: str) -> Any:
    if kind == "delta":
        frame = deltalake.DeltaTable(str(path)).to_pandas()
    else:
        frame = pd.read_parquet(path)
    return frame.to_dict("records")


def _by_delta(path: Path, kind: str) -> Any:
    if kind != "delta":
        return _by_pandas(path, kind)
    table = deltalake.DeltaTable(str(path))
    return table.to_pyarrow_table().to_pylist(maps_as_pydicts="strict")


@pytest.mark.spark
def test_spark_reads_snapshots_without_registration(
    root: Path, spark: SparkSession, expected: dict[int, Expected]
) -> None:
    reader = spark.read.format("riverlock").option("operator", "everything")

    frame = reader.option("at", "2").load(str(root))
    timers = rl.open(root).timers("everything").to_spark(spark)

    assert _keyed(r.asDict() for r in frame.collect()) == expected[2].keys
    assert timers.count() == 2 * len(expected[2].keys)
    with pytest.raises(AnalysisException) as error:
        reader.option("operator", "nobody").load(str(root)).collect()
    said = str(error.value)
    assert "everything" in said  # what there is
    assert "Traceback" not in said
    assert ".py" not in said


@pytest.mark.spark
@pytest.mark.parametrize(
    ("operator", "name"),
    [
        ("everything", None),
        ("everything", "fresh"),
        ("everything", "tail"),
        ("everything", "seen"),
        ("everything", "in_group"),
        ("everything", "timers"),
        ("totals", None),
        ("minutes", None),
    ],
)
def test_change_feed_is_the_difference_of_every_two_epochs(
    root: Path, operator: str, name: str | None
) -> None:
    store = rl.open(root)
    epochs = store.epochs()
    feed = store.changes(operator, name, since=epochs[0])
    named = len([c for c in feed.columns if c not in ("before", "after")]) - 2
    found: dict[int, dict[str, tuple[str, Any, Any]]] = {e: {} for e in epochs[1:]}
    for row in feed:
        values = tuple(row.values())
        states = [None if s is None else tuple(s.values()) for s in values[2 + named :]]
        found[row["epoch"]][repr(values[2 : 2 + named])] = (row["change"], *states)

    for before, after in pairwise(epochs):
        old = _by_name(store.state(operator, name, at=before), named)
        new = _by_name(store.state(operator, name, at=after), named)
        differ = {k for k in old | new if repr(old.get(k)) != repr(new.get(k))}
        assert found[after].keys() == differ, after
        for key in differ:
            change = "upsert" if key in new else "delete"
            wanted = (old.get(key), new.get(key)) if len(feed.columns) > 4 else ()
            shown = found[after][key]
            assert shown[0] == change
            if name != "timers":
                assert repr(shown[1:]) == repr(wanted)
    assert any(found.values())


def _by_name(relation: Relation, named: int) -> dict[str, tuple[Any, ...]]:
    rows = (tuple(r.values()) for r in relation)
    return {repr(r[:named]): r[named:] for r in rows}


class Goes(rl.Process):
    """Goes on from what another flow remembered."""

    output = "k long"
    count = rl.Value("long", default=0)
    seen = rl.Map("string", "long")

    def on_initial(self, row: Any, ctx: rl.Context) -> None:
        self.count = row.count
        for name, last in row.seen.items():
            self.seen[name] = last

    def on_event(self, row: Any, ctx: rl.Context) -> Iterator[Any]:
        self.count += 1
        yield row.k


@pytest.mark.spark
def test_state_of_one_flow_begins_another(
    root: Path, spark: SparkSession, expected: dict[int, Expected], tmp_path: Path
) -> None:
    flow = rl.Flow("goes", key_groups=4)
    columns = {"k": "cast(if(id = 0, null, id) as bigint)"}
    events = flow.read(rl.sources.generator(columns, rows=3))
    begun = events.key_by("k").process(
        Goes(),
        uid="goes",
        initial=lambda spark: rl.open(root).state("everything", at=3).to_spark(spark),
    )
    begun.write(rl.sinks.memory())

    flow.run(str(tmp_path / "store"), spark=spark, available_now=True, parallelism=2)

    found: Store = rl.open(tmp_path / "store")
    old = expected[3].keys
    assert {r["k"]: (r["count"], r["seen"]) for r in found.state("goes")} == {
        k: (row["count"] + (k in (None, 1, 2)), row["seen"]) for k, row in old.items()
    }
