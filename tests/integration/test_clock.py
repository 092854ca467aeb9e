"""The time of day and chance in Spark's functions: none is missed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, date, datetime
from typing import Any

import pytest
from py4j import java_gateway
from py4j.protocol import Py4JError, get_return_value
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from riverlock.core.errors import InvalidFlowError
from riverlock.engines.jobs.frames.nodes import as_column
from riverlock.spark.epoch_clock import STEADY, TIMES, at_time, has_clock
from riverlock.spark.plan_trees import Trees, below, kind, sequence
from riverlock.spark.repeatable import is_sure

pytestmark = pytest.mark.spark

NOW = datetime(2001, 2, 3, 4, 5, 6, 789012, tzinfo=UTC)
NOW_US = 981_173_106_789_012
LOCAL = NOW.replace(tzinfo=None)
# What asks for the time, and what it must be told.
ASKED: dict[str, Any] = {
    "unix_micros(now())": NOW_US,
    "unix_micros(current_timestamp())": NOW_US,
    "unix_micros(current_timestamp)": NOW_US,
    "current_date()": LOCAL.date(),
    "current_date": LOCAL.date(),
    "curdate()": LOCAL.date(),
    "localtimestamp()": LOCAL,
    "unix_timestamp()": NOW_US // 1_000_000,
    "cast(current_time() AS string)": "04:05:06.789012",
    "cast(current_time(3) AS string)": "04:05:06.789",
    "date_add(current_date(), 1)": date(2001, 2, 4),
    "transform(array(1, 2), x -> x + year(now()))": [2002, 2003],
    "(SELECT max(year(now())) FROM range(3))": 2001,
    "(SELECT max((SELECT year(now()))) FROM range(3))": 2001,
    "EXISTS (SELECT 1 FROM range(3) WHERE year(now()) = 2001)": True,
    "2001 IN (SELECT year(current_date()) FROM range(3))": True,
    "id IN (SELECT 0 * year(now()) FROM range(3))": True,
}
# Time of day that is no function, or whose type we do not know.
REFUSED = (
    "timestamp 'now'",
    'DATE "Today"',
    "timestamp_ntz ' yesterday '",
    "cast('now' AS timestamp)",
    "cast(concat('to', 'day') AS date)",
    "to_date('today')",
    "to_timestamp('now')",
    "(SELECT max(cast('tomorrow' AS date)) FROM range(3))",
    "cast(time '10:00:00' AS timestamp_ntz)",
    "cast(current_time() AS timestamp_ntz)",
)
# Arguments are not those of a function; or it is not replaced.
UNFIT = (Py4JError, PySparkException)
CHANCE = {
    *("rand", "randn", "random", "randstr", "uniform", "uuid", "shuffle"),
    *("monotonically_increasing_id", "spark_partition_id"),
    *("input_file_name", "input_file_block_start", "input_file_block_length"),
    *("reflect", "java_method", "try_reflect"),
}


def test_functions_of_the_time_are_told_that_of_the_epoch(spark: SparkSession) -> None:
    columns = [F.expr(text).alias(f"c{n}") for n, text in enumerate(ASKED)]
    frame = spark.range(1).select(*columns)

    assert has_clock(frame)
    (row,) = at_time(frame, NOW_US).collect()

    assert dict(zip(ASKED, row, strict=True)) == ASKED


def test_the_time_is_told_in_queries(spark: SparkSession) -> None:
    text = """
        WITH t AS (SELECT id, year(now()) AS y FROM range(5) WHERE year(now()) = 2001)
        SELECT y, count(*) FILTER (WHERE year(now()) = y), max(year(now())) OVER ()
        FROM t LEFT JOIN range(2) USING (id)
        GROUP BY y HAVING max(year(now())) = 2001 ORDER BY year(now())
    """

    rows = at_time(spark.sql(text), NOW_US).collect()

    assert [tuple(row) for row in rows] == [(2001, 5, 2001)]


@pytest.mark.parametrize("zone", ["PST", "+8", "UTC", "Europe/Berlin"])
def test_names_of_zones_are_those_of_spark(spark: SparkSession, zone: str) -> None:
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        local = "localtimestamp() = cast(now() AS timestamp_ntz) AS h"
        day = "current_date() = cast(now() AS date) AS d"
        frame = at_time(spark.range(1).selectExpr(local, day), NOW_US)

        assert tuple(frame.collect()[0]) == (True, True)
    finally:
        spark.conf.set("spark.sql.session.timeZone", before or "UTC")


@pytest.mark.parametrize("text", REFUSED)
def test_other_times_of_day_are_refused(spark: SparkSession, text: str) -> None:
    with pytest.raises(InvalidFlowError, match="time of day"):
        has_clock(spark.range(1).select(as_column(text)))
    with pytest.raises(InvalidFlowError, match="time of day"):
        has_clock(spark.range(1).select(as_column(F.expr(text))))


@pytest.mark.parametrize("text", ["date '2026-01-01'", "'now'", "upper('today')"])
def test_other_texts_are_not_refused(spark: SparkSession, text: str) -> None:
    assert not has_clock(spark.range(1).select(as_column(text)))


def built(spark: SparkSession) -> Iterator[tuple[str, Any]]:
    """Give every function of Spark, called in all ways that can be built."""
    session: Any = spark
    registry = session._jsparkSession.sessionState().functionRegistry()
    trees = Trees(spark)
    number, text = trees.expression("1"), trees.expression("'a'")
    some = [[value] * count for value in (number, text) for count in (1, 2, 3)]
    for name in sequence(registry.listFunction()):
        build = registry.lookupFunctionBuilder(name).get()
        for given in ([], *some):
            with suppress(*UNFIT):
                yield name.funcName(), build.apply(trees.seq(given))


def replaced(expression: Any) -> Any:
    """Return what Spark puts in place of a function, if it does."""
    with suppress(*UNFIT):
        return expression.replacement()
    return expression


def test_no_function_of_time_or_chance_is_missed(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Thousands of calls do not fit: to find PySpark's own error for each takes longer
    # than all the rest.
    monkeypatch.setattr(java_gateway, "get_return_value", get_return_value)
    trees, jvm = Trees(spark), spark._jvm
    assert jvm is not None
    catalyst = jvm.org.apache.spark.sql.catalyst
    asks = catalyst.trees.TreePattern.CURRENT_LIKE()
    nothing = catalyst.plans.logical.OneRowRelation()
    names, unknown, by_chance, wrong = set(), set(), set(), set()

    for name, expression in built(spark):
        names.add(name)
        for each in (expression, replaced(expression)):
            if each.containsPattern(asks):
                own = {
                    kind(e)
                    for e in below(each)
                    if any(map(asks.equals, sequence(e.nodePatterns())))
                }
                unknown |= own - TIMES - STEADY
            if not each.deterministic():
                by_chance.add(name)
                plan = trees.project([trees.alias(expression, "x")], nothing)
                if is_sure(spark, plan):
                    wrong.add(name)

    assert len(names) > 450
    assert unknown <= {"CurrentTimestampNanos", "LocalTimestampNanos"}  # refused
    assert not wrong
    assert by_chance >= CHANCE
