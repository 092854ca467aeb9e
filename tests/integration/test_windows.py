"""Windows against plain Spark SQL over all rows at once."""

from __future__ import annotations

import json
from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from tests.interpreted import interpreted

import riverlock as rl
from riverlock.core.errors import InvalidFlowError, StateSchemaError
from riverlock.core.times import END_US
from riverlock.program.windows import TimeWindows
from riverlock.snapshot.catalog import Catalog
from riverlock.snapshot.state_reader import read_entries
from riverlock.snapshot.verbs.verify import verify
from riverlock.storage.open import open_storage

pytestmark = pytest.mark.spark

# A second per row, up to ten seconds late.
COLUMNS = {
    "k": "cast(pmod(xxhash64(id), 7) as int)",
    "name": "concat('n', pmod(xxhash64(id, 1), 3))",
    "v": "pmod(xxhash64(id, 2), 1000) - 500",
    "d": "cast(pmod(xxhash64(id, 3), 1000) as decimal(10,2)) / 100",
    "at": "timestamp_seconds(1767225600 + id - pmod(xxhash64(id, 4), 10))",
    "u": "id",
}
ROWS = 600
AGGREGATES = {
    "n": "count(*)",
    "total": "sum(v)",
    "low": "min(v)",
    "high": "max(name)",
    "mean": "avg(v)",
    "money": "sum(d)",
    "spread": "stddev(v)",
    "names": "collect_set(name)",
}


class Arrived(rl.Aggregator):
    """All values, as they came."""

    acc = output = "array<bigint>"
    columns = ("u",)

    def create(self) -> Any:
        return []

    def add(self, acc: Any, record: Any) -> Any:
        return [*acc, record.u]

    def merge(self, a: Any, b: Any) -> Any:
        return [*a, *b]

    def result(self, acc: Any) -> Any:
        return acc


# By event time, and by arrival, which u counts: Spark's own know nothing of either.
ORDERED = {
    "opening": "first(u)",
    "closing": "last(u)",
    "arrived": "collect_list(u)",
    "added": Arrived(),
}


def ordered_in_batch(window: TimeWindows) -> dict[str, str]:
    pane = f"floor((unix_micros(at) - {window.offset_us}) / {window.pane_us})"
    listed = f"array_sort(collect_list(struct({pane} as pane, u)))"
    return {
        "opening": "min_by(u, struct(at, u))",
        "closing": "max_by(u, struct(at, u))",
        "arrived": f"transform({listed}, x -> x.u)",
        "added": f"transform({listed}, x -> x.u)",
    }


def numbers(flow: rl.Flow, rows: int = ROWS) -> rl.Stream:
    source = rl.sources.generator(COLUMNS, rows=rows, bounded=True)
    stream = flow.read(source, uid="numbers")
    return stream.event_time("at", delay="10 seconds")


def batch(spark: SparkSession, rows: int = ROWS) -> DataFrame:
    columns = [F.expr(text).alias(name) for name, text in COLUMNS.items()]
    return spark.range(rows).select(*columns)


def expected(
    frame: DataFrame, keys: list[str], window: Any, aggregates: dict[str, str]
) -> Counter[Any]:
    grouped = frame.groupBy(*keys, window.alias("w")).agg(
        *(F.expr(text).alias(name) for name, text in aggregates.items())
    )
    flat = grouped.select(
        *keys,
        F.unix_micros("w.start").alias("s"),
        F.unix_micros("w.end").alias("e"),
        *aggregates,
    )
    with interpreted(frame.sparkSession):
        return Counter(comparable(row) for row in flat.collect())


def comparable(row: Any) -> tuple[Any, ...]:
    values = tuple(row.asDict().values()) if hasattr(row, "asDict") else tuple(row)
    return tuple(_plain(v) for v in values)


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, 6)
    if isinstance(value, list):
        # Sets are of names, and in no order.
        is_set = all(isinstance(v, str) for v in value)
        return tuple(sorted(value) if is_set else value)
    if hasattr(value, "timestamp"):
        return round(value.timestamp() * 1_000_000)
    return value


def run(flow: rl.Flow, store: Path, spark: SparkSession, **options: Any) -> Catalog:
    options = {"available_now": True, "max_rows_per_epoch": 150, **options}
    flow.run(str(store), spark=spark, **options)
    catalog = Catalog(open_storage(str(store)))
    assert all(report.is_whole for report in verify(catalog))
    return catalog


SHAPES = {
    "tumbling": (rl.tumbling("1 minute"), ("60 seconds",)),
    "offset": (
        rl.tumbling("1 minute", offset="7 seconds"),
        ("60 seconds", "60 seconds", "7 seconds"),
    ),
    "sliding": (rl.sliding("1 minute", "20 seconds"), ("60 seconds", "20 seconds")),
    "uneven": (rl.sliding("50 seconds", "20 seconds"), ("50 seconds", "20 seconds")),
}


@pytest.mark.parametrize(
    ("shape", "size"),
    # The uneven one in many epochs; where others end is a matter of each epoch alone.
    [
        *((shape, 83 if shape == "uneven" else 170) for shape in SHAPES),
        ("uneven", 10_000),
    ],
)
def test_windows_are_those_of_a_batch(
    spark: SparkSession, tmp_path: Path, shape: str, size: int
) -> None:
    window, text = SHAPES[shape]
    out = rl.sinks.memory()
    flow = rl.Flow("windows")
    windows = numbers(flow).key_by("k").window(window)
    windows.agg({**AGGREGATES, **ORDERED}, uid="w").write(out)

    catalog = run(flow, tmp_path / "store", spark, max_rows_per_epoch=size)

    found = Counter(comparable(row) for row in out.rows())
    aggregates = {**AGGREGATES, **ordered_in_batch(window)}
    assert found == expected(batch(spark), ["k"], F.window("at", *text), aggregates)
    newest = catalog.newest()
    assert newest is not None
    operator = newest.operators["w"]
    assert operator.watermark_us == END_US
    assert operator.entries == 0
    entries = read_entries(catalog.storage, operator, now_us=newest.now_us)
    assert entries is None or entries.num_rows == 0


@pytest.mark.parametrize("size", [170, 10_000])
def test_sessions_are_those_of_a_batch(
    spark: SparkSession, tmp_path: Path, size: int
) -> None:
    out = rl.sinks.memory()
    flow = rl.Flow("sessions")
    keyed = numbers(flow).key_by("name", "k")
    aggregates = {**AGGREGATES, "all": "count(v)", "first": "first(at)"}
    del aggregates["high"]
    keyed.window(rl.sessions("25 seconds")).agg(aggregates, uid="w").write(out)

    catalog = run(flow, tmp_path / "store", spark, max_rows_per_epoch=size)

    aggregates["first"] = "min(at)"
    window = F.session_window("at", "25 seconds")
    found = Counter(comparable(row) for row in out.rows())
    assert found == expected(batch(spark), ["name", "k"], window, aggregates)
    assert len(found) > 100
    newest = catalog.newest()
    assert newest is not None
    assert newest.operators["w"].entries == 0


def test_windows_that_are_apart_leave_records_out(
    spark: SparkSession, tmp_path: Path
) -> None:
    out = rl.sinks.memory()
    flow = rl.Flow("windows")
    window = rl.sliding("20 seconds", "1 minute")
    numbers(flow).key_by("k").window(window).agg(n="count(*)", uid="w").write(out)

    catalog = run(flow, tmp_path / "store", spark)

    inside = batch(spark).where("pmod(unix_seconds(at), 60) < 20")
    rows = inside.groupBy("k", F.window("at", "1 minute").start).count().collect()
    assert Counter(r[3] for r in out.rows()) == Counter(r["count"] for r in rows)
    assert late_rows(catalog) == 0


def test_windows_over_all_records(spark: SparkSession, tmp_path: Path) -> None:
    out = rl.sinks.memory()
    flow = rl.Flow("windows")
    numbers(flow).window(rl.tumbling("1 minute")).agg(AGGREGATES, uid="w").write(out)

    run(flow, tmp_path / "store", spark)

    window = F.window("at", "1 minute")
    found = Counter(comparable(row) for row in out.rows())
    assert found == expected(batch(spark), [], window, AGGREGATES)


def late_rows(catalog: Catalog) -> int:
    manifests = [catalog.manifest(e) for e in catalog.epochs()]
    return int(sum(m.metrics["stages"]["w"].get("late_rows", 0) for m in manifests))


def write(spark: SparkSession, folder: Path, name: str, rows: list[Any]) -> None:
    """Add a file of ``k, at`` rows; times are seconds."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder.mkdir(exist_ok=True)
    times = [None if t is None else t * 1_000_000 for _, t in rows]
    table = pa.table(
        {
            "k": pa.array([k for k, _ in rows], "string"),
            "at": pa.array(times, "int64").cast(pa.timestamp("us", tz="UTC")),
        }
    )
    pq.write_table(table, folder / name)


def files(flow: rl.Flow, folder: Path, *, bounded: bool = False) -> rl.Stream:
    source = rl.sources.files(
        str(folder), format="parquet", schema="k string, at timestamp", bounded=bounded
    )
    return flow.read(source, uid="in").event_time("at", delay="0 seconds")


def epoch_seconds(value: Any) -> int:
    seconds: int = round(value.timestamp())
    return seconds


def iso_seconds(text: str | None) -> int | None:
    return None if text is None else epoch_seconds(datetime.fromisoformat(text))


def test_late_records_correct_windows_or_go_to_late(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Each file is an epoch; windows are 10 s, kept for 20 s more."""

    seen: Counter[Any] = Counter()
    counted: list[int] = []

    def fresh(name: str) -> list[Any]:
        """Return rows that a sink has more than at the last step."""
        lines = [
            line
            for path in (tmp_path / name).glob("epoch=*/*.json")
            for line in path.read_text().splitlines()
        ]
        new = Counter((name, line) for line in lines) - seen
        seen.update(new)
        return [json.loads(line) for _, line in new.elements()]

    def step(name: str, rows: list[Any]) -> tuple[list[Any], list[Any], list[Any]]:
        write(spark, tmp_path / "in", name, rows)
        flow = rl.Flow("late")
        keyed = files(flow, tmp_path / "in").key_by("k")
        counts = keyed.window(rl.tumbling("10 seconds"), lateness="20 seconds").agg(
            n="count(*)", uid="w"
        )
        counts.write(rl.sinks.files(str(tmp_path / "final"), format="json"), uid="a")
        counts.write(
            rl.sinks.files(str(tmp_path / "every"), format="json"),
            mode="update",
            uid="b",
        )
        counts.late.write(
            rl.sinks.files(str(tmp_path / "late"), format="json"), uid="c"
        )
        status = flow.run(str(tmp_path / "store"), spark=spark, available_now=True)
        counted.append(status.late_rows)
        return windows(fresh("final")), windows(fresh("every")), late(fresh("late"))

    def windows(rows: list[Any]) -> list[Any]:
        return sorted((r["k"], iso_seconds(r["window_end"]), r["n"]) for r in rows)

    def late(rows: list[Any]) -> list[Any]:
        return sorted((r["k"], iso_seconds(r.get("at"))) for r in rows)

    # Nothing is over; what is counted so far is an update.
    assert step("1", [("a", 1), ("a", 2), ("b", 3)]) == (
        [],
        [("a", 10, 2), ("b", 10, 1)],
        [],
    )
    # The watermark is 15 after this epoch, and the first window ends with the next.
    assert step("2", [("a", 15)]) == (
        [("a", 10, 2), ("b", 10, 1)],
        [("a", 20, 1)],
        [],
    )
    # Late for the first window, which is kept until 30.
    assert step("3", [("a", 5), ("b", 16)]) == (
        [("a", 10, 3)],
        [("a", 10, 3), ("b", 20, 1)],
        [],
    )
    assert step("4", [("a", 31)])[0] == [("a", 20, 1), ("b", 20, 1)]
    # Too late, and without a time: never lost, never counted.
    assert step("5", [("a", 6), ("c", None), ("b", 32)]) == (
        [],
        [("b", 40, 1)],
        [("a", 6), ("c", None)],
    )
    assert counted == [0, 0, 0, 0, 2]


def test_windows_of_windows_and_the_end_of_input(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The second window must wait for rows that the first gives at the watermark."""
    out = rl.sinks.memory()
    flow = rl.Flow("chain")
    fine = numbers(flow).key_by("k").window(rl.tumbling("10 seconds"))
    coarse = fine.agg(n="count(*)", uid="w").window(rl.tumbling("1 minute"))
    coarse.agg(most="max(n)", windows="count(*)", uid="coarse").write(out)

    catalog = run(flow, tmp_path / "store", spark, max_rows_per_epoch=110)

    fine_rows = batch(spark).groupBy("k", F.window("at", "10 seconds").alias("w"))
    counted = fine_rows.agg(F.expr("count(*) as n")).withColumn("at", F.col("w.start"))
    aggregates = {"most": "max(n)", "windows": "count(*)"}
    window = F.window("at", "1 minute")
    assert Counter(map(comparable, out.rows())) == expected(
        counted, [], window, aggregates
    )
    newest = catalog.newest()
    assert newest is not None
    assert "late_rows" not in newest.metrics["stages"]["coarse"]


def test_keys_that_are_too_long_for_ids(spark: SparkSession, tmp_path: Path) -> None:
    rows = [("x" * 300 + str(n % 3), n) for n in range(40)]
    write(spark, tmp_path / "in", "1", rows)
    out = rl.sinks.memory()
    flow = rl.Flow("long")
    keyed = files(flow, tmp_path / "in", bounded=True).key_by("k")
    keyed.window(rl.sliding("20 seconds", "10 seconds")).agg(
        n="count(*)", uid="w"
    ).write(out)

    run(flow, tmp_path / "store", spark)

    found = Counter((k, epoch_seconds(e), n) for k, _, e, n in out.rows())
    wanted = Counter(
        (k, end) for k, t in rows for end in (t // 10 * 10 + 10, t // 10 * 10 + 20)
    )
    assert found == Counter((k, end, n) for (k, end), n in wanted.items())


def test_functions_over_windows(spark: SparkSession, tmp_path: Path) -> None:
    def total(key: int, window: Any, records: list[Any]) -> list[Any]:
        return [(key, *window, len(records), sum(r.v for r in records))]

    def greater(old: Any, new: Any) -> Any:
        return max(old, new, key=lambda r: (r.v, r.at, r.name))

    columns = "k int, s timestamp, e timestamp, n bigint, total bigint"
    sinks = [rl.sinks.memory() for _ in range(3)]
    flow = rl.Flow("functions")
    keyed = numbers(flow).key_by("k")
    window = rl.sliding("1 minute", "20 seconds")
    keyed.window(window).apply(total, columns, uid="a").write(sinks[0])
    keyed.window(window).reduce(greater, uid="r").write(sinks[1])
    keyed.window(window).top(1, by="v", uid="t").write(sinks[2])

    run(flow, tmp_path / "store", spark)

    spark_window = F.window("at", "60 seconds", "20 seconds")
    sums = {"n": "count(*)", "total": "sum(v)"}
    found = Counter(comparable(row) for row in sinks[0].rows())
    assert found == expected(batch(spark), ["k"], spark_window, sums)
    most = {"v": "max(v)"}
    folded = Counter(comparable((r[0], *r[-2:], r[2])) for r in sinks[1].rows())
    assert folded == expected(batch(spark), ["k"], spark_window, most)
    best = Counter(comparable((r[0], *r[-2:], r[2])) for r in sinks[2].rows())
    assert best == folded
    assert {row[-3] for row in sinks[2].rows()} == {1}


def test_what_cannot_be_is_refused(spark: SparkSession) -> None:
    flow = rl.Flow("refused")
    keyed = numbers(flow).key_by("k")
    with pytest.raises(InvalidFlowError, match=r"top\(\) over windows"):
        keyed.window(rl.sessions("1 minute")).top(1, by="v")

    for aggregates in (
        {"v": "avg(v)", "v_count": "count(*)"},
        {"window_end": "max(at)"},
        {"long_key": "max(v)"},
        {"odd": "percentile(v, 0.5)"},
    ):
        flow = rl.Flow("refused")
        keyed = numbers(flow).key_by("k")
        keyed.window(rl.tumbling("1 minute")).agg(aggregates, uid="w")
        with pytest.raises(InvalidFlowError):
            flow.check(spark=spark)


def test_another_window_needs_another_uid(spark: SparkSession, tmp_path: Path) -> None:
    write(spark, tmp_path / "in", "1", [("a", 1)])
    for size in ("10 seconds", "20 seconds"):
        flow = rl.Flow("changed")
        keyed = files(flow, tmp_path / "in").key_by("k")
        keyed.window(rl.tumbling(size)).count(uid="w")
        if size == "10 seconds":
            run(flow, tmp_path / "store", spark)
        else:
            with pytest.raises(
                StateSchemaError, match="windows of 20 seconds, was 10 seconds"
            ):
                run(flow, tmp_path / "store", spark)
