"""Windows against plain Spark SQL over all rows at once."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import riverlock as rl
from riverlock.core.times import END_US
from riverlock.snapshot.catalog import Catalog
from riverlock.snapshot.reader import operator_of, read_entries
from riverlock.snapshot.verify import verify
from riverlock.storage.open import open_storage

pytestmark = pytest.mark.spark

# A second per row, up to ten seconds late.
COLUMNS = {
    "k": "cast(pmod(xxhash64(id), 7) as int)",
    "name": "concat('n', pmod(xxhash64(id, 1), 3))",
    "v": "pmod(xxhash64(id, 2), 1000) - 500",
    "d": "cast(pmod(xxhash64(id, 3), 1000) as decimal(10,2)) / 100",
    "at": "timestamp_seconds(1767225600 + id - pmod(xxhash64(id, 4), 10))",
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


def numbers(flow: rl.Flow, rows: int = ROWS) -> rl.Stream:
    stream = flow.read(rl.sources.generator(COLUMNS, rows=rows), uid="numbers")
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
    return Counter(comparable(row) for row in flat.collect())


def comparable(row: Any) -> tuple[Any, ...]:
    values = tuple(row.asDict().values()) if hasattr(row, "asDict") else tuple(row)
    return tuple(_plain(v) for v in values)


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, 6)
    if isinstance(value, list):
        return tuple(sorted(value))
    if hasattr(value, "timestamp"):
        return round(value.timestamp() * 1_000_000)
    return value


def run(flow: rl.Flow, store: Path, spark: SparkSession, **options: Any) -> Catalog:
    options = {"available_now": True, "max_rows_per_epoch": 90, **options}
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


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("size", [37, 10_000])
def test_windows_are_those_of_a_batch(
    spark: SparkSession, tmp_path: Path, shape: str, size: int
) -> None:
    window, text = SHAPES[shape]
    out = rl.sinks.memory()
    flow = rl.Flow("windows")
    numbers(flow).key_by("k").window(window).agg(AGGREGATES, uid="w").write(out)

    catalog = run(flow, tmp_path / "store", spark, max_rows_per_epoch=size)

    found = Counter(comparable(row) for row in out.rows())
    assert found == expected(batch(spark), ["k"], F.window("at", *text), AGGREGATES)
    newest = catalog.newest()
    assert newest is not None
    operator = newest.operators["w"]
    assert operator.watermark_us == END_US
    assert operator.entries == 0
    entries = read_entries(catalog.storage, operator, now_us=newest.now_us)
    assert entries is None or entries.num_rows == 0


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
