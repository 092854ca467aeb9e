"""Times that Spark has and Python has not: years before 1 and after 9999."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import riverlock as rl
from riverlock.core.errors import SinkError, TimeRangeError
from riverlock.snapshot.catalog import Catalog
from riverlock.storage.local import LocalStorage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Milliseconds that are taken for seconds.
MILLIS = 1_767_225_600_000
FAR = "+57971-02-25T00:00:00Z"
SECONDS = [1_767_225_600, MILLIS, 1_767_225_601, -62_135_596_800 - 1]


def rows_of(flow: rl.Flow, folder: Path, seconds: list[int] = SECONDS) -> rl.Stream:
    """Read a file per row, so that epochs can be of one."""
    folder.mkdir(exist_ok=True)
    for n, each in enumerate(seconds):
        (folder / f"{n}.json").write_text(f'{{"k":"a","n":{n},"s":{each}}}\n')
    source = rl.sources.files(
        str(folder), format="json", schema="k string, n int, s bigint"
    )
    rows = flow.read(source, uid="in")
    return rows.select("k", "n", "timestamp_seconds(s) AS at")


def run(flow: rl.Flow, spark: SparkSession, store: Path, **options: Any) -> None:
    flow.run(str(store), spark=spark, available_now=True, **options)


def epochs(store: Path) -> list[int]:
    return Catalog(LocalStorage(store)).epochs()


class Seen(rl.Process):
    """Counts, without a look at times."""

    output = "n int, seen bigint, watermark timestamp"
    seen = rl.Value("bigint", default=0)

    def on_event(self, record: Any, ctx: Any) -> Any:
        self.seen += 1
        yield record.n, self.seen, ctx.watermark


class Year(rl.Process):
    output = "n int, year int, days int"
    seen = rl.Value("bigint", default=0)

    def on_event(self, record: Any, ctx: Any) -> Any:
        self.seen += 1
        yield record.n, record.at.year, len(record.days)


def test_a_far_time_is_late_and_moves_no_watermark(
    spark: SparkSession, tmp_path: Path
) -> None:
    flow = rl.Flow("far")
    far = [*SECONDS, 1_767_240_000, -62_135_596_800]
    timed = rows_of(flow, tmp_path / "in", far).event_time("at", delay="5 minutes")
    keyed = timed.key_by("k")
    sinks = {name: rl.sinks.memory() for name in ("seen", "hours", "gaps")}
    late = {name: rl.sinks.memory() for name in ("hours", "gaps")}
    keyed.process(Seen(), uid="seen").write(sinks["seen"], uid="seen-out")
    for name, window in (
        ("hours", rl.tumbling("1 hour")),
        ("gaps", rl.sessions("10 minutes")),
    ):
        counts = keyed.window(window).agg(n="count(*)", last="max(at)", uid=name)
        counts.write(sinks[name], uid=f"{name}-out")
        counts.late.write(late[name], uid=f"{name}-late")

    run(flow, spark, tmp_path / "store", max_rows_per_epoch=1)

    assert [n for n, _, _ in sinks["seen"].rows()] == [0, 1, 2, 3, 4, 5]
    marks = [at and at.year for _, _, at in sinks["seen"].rows()]
    assert marks == [None, 2025, 2025, 2025, 2025, 2026]
    for name in ("hours", "gaps"):
        # The row of the year 1 is simply too late.
        assert [(n, at) for _, n, at in late[name].rows()][:2] == [
            (1, FAR),
            (3, "0000-12-31T23:59:59Z"),
        ]
        assert [row[0] for row in late[name].rows()] == ["a"] * 3
        assert [row[3] for row in sinks[name].rows()] == [2]


def test_dead_letters_take_rows_whose_times_code_reads(
    spark: SparkSession, tmp_path: Path
) -> None:
    out = rl.sinks.memory()
    dead = {name: rl.sinks.memory() for name in ("year", "keyed", "mapped")}
    flow = rl.Flow("dead")
    rows = rows_of(flow, tmp_path / "in").with_column("days", "array(to_date(at))")
    years = rows.key_by("k").process(Year(), uid="year", on_error=dead["year"])
    years.write(out, uid="out")
    # Also as part of a key, and in a step without state.
    keyed = rows.key_by("at").process(Seen(), uid="keyed", on_error=dead["keyed"])
    keyed.write(rl.sinks.memory(), uid="k")
    mapped = rows.map(
        lambda r: (len(r.days),), "days int", uid="mapped", on_error=dead["mapped"]
    )
    mapped.write(rl.sinks.memory(), uid="m")

    run(flow, spark, tmp_path / "store")

    assert out.rows() == [(0, 2026, 1), (2, 2026, 1)]
    for name, sink in dead.items():
        assert [row[0] for row in sink.rows()] == [name, name]
        for *_, error, _, record in sink.rows():
            assert error.startswith("TimeRangeError: "), name
            assert "n=1" in record or "n=3" in record
            assert FAR in record or "0000-12-31T23:59:59Z" in record


@pytest.mark.parametrize("kind", ["key", "window", "join"])
def test_without_dead_letters_the_row_is_named_before_the_epoch_is_decided(
    spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    flow = rl.Flow("refused")
    rows = rows_of(flow, tmp_path / "in", [MILLIS])
    timed = rows.with_column("t", "timestamp'2026-01-01'").event_time("t")
    other = timed.select("k AS k2", "n AS n2", "t AS t2")
    made = {
        "key": lambda: rows.key_by("at").process(Seen(), uid="it"),
        "window": lambda: (
            timed.key_by("k")
            .window(rl.tumbling("1 hour"))
            .agg(last="max(at)", uid="it")
        ),
        "join": lambda: timed.key_by("k").join(
            other.key_by("k2"), within=("0s", "1s"), uid="it"
        ),
    }[kind]()
    made.write(rl.sinks.memory(), uid="out")

    with pytest.raises(TimeRangeError, match="outside the years 1 to 9999") as found:
        run(flow, spark, tmp_path / "store")

    assert (found.value.__dict__["operator"], found.value.__dict__["epoch"]) == (
        "it",
        0,
    )
    assert FAR in str(found.value)
    assert "where(" in found.value.hint
    assert epochs(tmp_path / "store") == []


def test_sinks_take_far_times_or_refuse_them_before_the_epoch_is_decided(
    spark: SparkSession, tmp_path: Path
) -> None:
    refusing: dict[str, Any] = {
        "sqlite": rl.sinks.sql(
            f"sqlite:///{tmp_path}/o.db", table="t", create=True, how="append"
        ),
        "function": rl.sinks.for_each_row(lambda row, name: None),
    }
    for name, sink in refusing.items():
        flow = rl.Flow(name)
        rows_of(flow, tmp_path / "in").write(sink, uid="out")
        with pytest.raises(SinkError, match="outside the years 1 to 9999"):
            run(flow, spark, tmp_path / name)
        assert epochs(tmp_path / name) == []
    with sqlite3.connect(tmp_path / "o.db") as connection:
        assert connection.execute("SELECT count(*) FROM t").fetchall() == [(0,)]
    flow, memory = rl.Flow("text"), rl.sinks.memory()
    rows = rows_of(flow, tmp_path / "in").select(
        "n", "at", "array(to_date(at)) AS days"
    )
    rows.write(memory, uid="memory")
    rows.write(rl.sinks.files(str(tmp_path / "json"), format="json"), uid="json")
    plain = rows.select("n", "at", "days[0] AS day")
    plain.write(rl.sinks.files(str(tmp_path / "csv"), format="csv"), uid="csv")

    run(flow, spark, tmp_path / "text")

    def lines(form: str) -> list[str]:
        files = sorted((tmp_path / form).glob("epoch=*/*"))
        return [line for file in files for line in file.read_text().splitlines()]

    assert sorted(memory.rows())[1] == (1, FAR, ["+57971-02-25"])
    found = sorted((json.loads(line) for line in lines("json")), key=lambda r: r["n"])
    assert found[1] == {"n": 1, "at": FAR, "days": ["+57971-02-25"]}
    assert found[0]["at"] == "2026-01-01T00:00:00Z"
    written = {line.split(",")[0]: line for line in lines("csv")}
    assert written["1"] == '1,"+57971-02-25 00:00:00Z","+57971-02-25"'
