"""All aggregate functions at once against plain Spark SQL over all rows."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from tests.integration.orders import ORDERS, Row, run, source
from tests.interpreted import interpreted

import riverlock as rl
from riverlock.core.errors import (
    InvalidFlowError,
)
from riverlock.core.hidden_columns import SEQ
from riverlock.engines.jobs.frames.aggregates import Combine
from riverlock.spark.session import job_conf

pytestmark = pytest.mark.spark

# A second per row, up to ten seconds late; some values are null.
COLUMNS = {
    "u": "id",
    "k": "cast(pmod(xxhash64(id), 3) as int)",
    "name": "concat('n', pmod(xxhash64(id, 1), 9))",
    "v": "nullif(pmod(xxhash64(id, 2), 1000) - 500, 3)",
    "d": "cast(pmod(xxhash64(id, 3), 10000) as decimal(10,2)) / 100",
    "at": "timestamp_seconds(1767225600 + id - pmod(xxhash64(id, 4), 10))",
}
ROWS = 300
EXACT = {
    "middle": "percentile_approx(v, 0.3)",
    "several": "approx_percentile(d, array(0.0, 0.5, 0.9), 1000)",
    "median": "median(v)",
    "names": "count(DISTINCT name)",
    "positive": "count_if(v > 0)",
    "high": "bool_and(v > -400)",
    "some": "any(v > 480)",
    "best": "max_by(name, u)",
    "worst": "min_by(v, u)",
    "gains": "sum(v) FILTER (WHERE v > 0)",
    "ones": "count(*) FILTER (WHERE name = 'n1')",
    "mean": "avg(d) FILTER (WHERE v < 0)",
}
ABOUT = {"users": "approx_count_distinct(u)", "kinds": "approx_count_distinct(v, 0.02)"}
# As sets, since several distinct counts in one query are slow to plan.
SETS = {
    "names": "size(collect_set(name))",
    "users": "size(collect_set(u))",
    "kinds": "size(collect_set(v))",
}


class Spread(rl.Aggregator):
    """The distance between the least and the greatest value."""

    acc = "struct<low:bigint,high:bigint>"
    output = "bigint"

    def __init__(self, column: str) -> None:
        self.columns = (column,)

    def create(self) -> Any:
        return None, None

    def add(self, acc: Any, record: Any) -> Any:
        (value,) = record
        return acc if value is None else self.merge(acc, type(acc)(value, value))

    def merge(self, a: Any, b: Any) -> Any:
        lows = [x.low for x in (a, b) if x.low is not None]
        highs = [x.high for x in (a, b) if x.high is not None]
        return min(lows, default=None), max(highs, default=None)

    def result(self, acc: Any) -> Any:
        return None if acc.low is None else acc.high - acc.low


AGGREGATES: dict[str, Any] = {**EXACT, **ABOUT, "spread": Spread("v")}
WINDOWS: dict[str, tuple[list[str], Any, str]] = {
    "sliding": (
        ["k"],
        rl.sliding("1 minute", "20 seconds"),
        "window(at, '60 seconds', '20 seconds')",
    ),
    "all": ([], rl.tumbling("1 minute"), "window(at, '60 seconds')"),
    "sessions": (
        ["name"],
        rl.sessions("15 seconds"),
        "session_window(at, '15 seconds')",
    ),
}


def expected(
    frame: DataFrame, keys: list[str], window: str | None = None
) -> dict[Any, Any]:
    """Return rows by key and window, with exact counts for the approximate ones."""
    texts = {**EXACT, **SETS, "spread": "max(v) - min(v)"}
    columns = [F.expr(text).alias(name) for name, text in texts.items()]
    with interpreted(frame.sparkSession):
        if window is None:
            rows = frame.groupBy(*keys).agg(*columns).collect()
            return by_key(rows, len(keys))
        grouped = frame.groupBy(*keys, F.expr(window).alias("w")).agg(*columns)
        rows = grouped.select(*keys, "w.start", "w.end", *texts).collect()
        return by_key(rows, len(keys) + 2)


def by_key(rows: list[Any], width: int) -> dict[Any, Any]:
    return {tuple(map(plain, r[:width])): tuple(r[width:]) for r in rows}


def plain(value: Any) -> Any:
    return value.timestamp() if hasattr(value, "timestamp") else value


def check(rows: list[Any], wanted: dict[Any, Any], width: int) -> None:
    found = by_key(rows, width)
    assert found.keys() == wanted.keys()
    exact = len(EXACT)
    for key, row in found.items():
        assert row[:exact] == wanted[key][:exact]
        assert row[-1] == wanted[key][-1]
        for error, guess, count in zip(
            (0.05, 0.02), row[exact:-1], wanted[key][exact:-1], strict=True
        ):
            assert abs(guess - count) <= max(1, 4 * error * count)


def test_aggregates_are_those_of_a_batch(spark: SparkSession, tmp_path: Path) -> None:
    flow = rl.Flow("aggregates")
    source = rl.sources.generator(COLUMNS, rows=ROWS, bounded=True)
    stream = flow.read(source, uid="in").event_time("at", delay="10 seconds")
    sinks = {name: rl.sinks.memory() for name in (*WINDOWS, "running")}
    for name, (keys, window, _) in WINDOWS.items():
        by = stream.key_by(*keys) if keys else stream
        by.window(window).agg(AGGREGATES, uid=name).write(sinks[name])
    stream.key_by("k").agg(AGGREGATES, uid="running").write(sinks["running"])

    flow.run(
        str(tmp_path / "store"),
        spark=spark,
        available_now=True,
        max_rows_per_epoch=ROWS // 2,
        parallelism=2,
    )

    frame = spark.range(ROWS).select(*(F.expr(t).alias(n) for n, t in COLUMNS.items()))
    for name, (keys, _, window) in WINDOWS.items():
        rows = [tuple(r) for r in sinks[name].rows()]
        check(rows, expected(frame, keys, window), len(keys) + 2)
    check(sinks["running"].rows()[-3:], expected(frame, ["k"]), 1)


@pytest.mark.parametrize(
    ("aggregate", "problem"),
    [
        ("mode(v)", "one of count"),
        ("sum(DISTINCT v)", "one of count"),
        ("count(DISTINCT v, k)", "one of count"),
        ("max_by(v, array(v))", "one of count"),
        ("percentile_approx(at, 0.5)", "one of count"),
        ("approx_count_distinct(v, 0.001)", "one of count"),
        ("sum(nothing)", "an existing column"),
    ],
)
def test_other_aggregates_are_refused(
    spark: SparkSession, aggregate: str, problem: str
) -> None:
    flow = rl.Flow("refused")
    stream = flow.read(rl.sources.generator(COLUMNS, rows=1), uid="in")
    stream.key_by("k").agg(x=aggregate, uid="agg")

    with pytest.raises(InvalidFlowError, match=problem) as caught:
        flow.check(spark=spark)

    assert "aggregate 'x' of operator 'agg'" in str(caught.value)


def test_aggregates_equal_spark_sql(
    spark: SparkSession, tmp_path: Path, orders_dir: str
) -> None:
    flow = rl.Flow("agg")
    out = rl.sinks.memory()
    stream = flow.read(source(orders_dir, ORDERS))
    stream = stream.with_column("money", "cast(amount as decimal(12,2))").with_column(
        "maybe", F.when(F.col("n") % 3 == 0, F.col("n"))
    )
    stream.key_by("user").agg(
        n="count(*)",
        some="count(maybe)",
        total=F.sum("amount"),
        low=F.min("maybe"),
        high="max(at)",
        mean=F.avg("n"),
        money=F.sum("money"),
        mean_money="avg(money)",
    ).write(out)

    run(flow, tmp_path, spark)

    newest: dict[Any, Row] = {r[0]: r for r in out.rows()}
    frame = spark.read.parquet(orders_dir)
    frame.createOrReplaceTempView("orders_agg")
    expected = spark.sql(
        """select user, count(*), count(if(n % 3 = 0, n, null)), sum(amount),
           min(if(n % 3 = 0, n, null)), max(at), avg(n),
           sum(cast(amount as decimal(12,2))), avg(cast(amount as decimal(12,2)))
           from orders_agg group by user"""
    ).toArrow()
    assert newest == {r["user"]: tuple(r.values()) for r in expected.to_pylist()}
    assert isinstance(newest["ann"][7], Decimal)


@pytest.mark.parametrize("rows_per_epoch", [1_000, 30])
def test_aggregates_by_the_column_equal_spark_sql(
    spark: SparkSession, tmp_path: Path, rows_per_epoch: int
) -> None:
    """Numbers only: merged by NumPy. NaN is the greatest of them."""
    columns = {
        "k": "id % 4",
        "x": "case id % 11 when 3 then double('NaN') when 5 then null"
        " else id / 8 - 20 end",
        "i": "cast(if(id % 5 = 0, null, id - 150) as int)",
    }
    aggregates = {
        "n": "count(*)",
        "some": "count(i)",
        "total": "sum(i)",
        "mean": "avg(i)",
        "low": "min(x)",
        "high": "max(x)",
        "least": "min(i)",
    }
    flow = rl.Flow("numbers")
    out = rl.sinks.memory()
    keyed = flow.read(rl.sources.generator(columns, rows=300)).key_by("k")
    keyed.agg(aggregates).write(out)
    flow.run(
        str(tmp_path),
        spark=spark,
        available_now=True,
        epoch_target=None,
        max_rows_per_epoch=rows_per_epoch,
    )

    frame = spark.range(300).selectExpr(*(f"{t} as {n}" for n, t in columns.items()))
    expected = frame.groupBy("k").agg(
        *(F.expr(t).alias(n) for n, t in aggregates.items())
    )
    newest = {r[0]: str(tuple(r)) for r in out.rows()}
    assert newest == {r["k"]: str(tuple(r)) for r in expected.collect()}


def test_aggregates_are_combined_without_an_exchange(spark: SparkSession) -> None:
    frame = spark.range(0, 100, 1, 4).selectExpr("id % 7 k", "id n", "'a' s")

    def exchanges(**parts: str) -> int:
        with job_conf(spark):
            combined = Combine(("k",), parts).apply(frame)
            plan = combined._jdf.queryExecution().executedPlan().toString()
        assert combined.groupBy("k").agg({SEQ: "count"}).collect()
        return str(plan).count("Exchange")

    assert exchanges(n="count(*)", total="sum(n)", low="min(n)") == 0
    assert exchanges(low="min(s)") == 0
    # Spark needs two columns for the sum, of which one is not in the result.
    assert exchanges(total="sum(cast(n as decimal(12,2)))") == 1
    # Spark computes equal expressions once: as many columns of the same types, but
    # not the same ones.
    twice = {"a": "max(n > 3)", "b": "max(n > 3)"}
    assert exchanges(total="sum(cast(n as decimal(12,2)))", **twice) == 1
    assert exchanges(a="sum(n)", b="sum(n)") == 1
