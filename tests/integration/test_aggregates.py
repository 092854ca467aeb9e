"""All aggregate functions at once against plain Spark SQL over all rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import riverlock as rl
from riverlock.core.errors import InvalidFlowError

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
        ("sum(nothing)", "accepts"),
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
