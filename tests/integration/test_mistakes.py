"""Mistakes that only Spark can see: told in our words, with the user's own line."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import riverlock as rl
from riverlock.core.errors import DefinitionError, UserCodeError

pytestmark = pytest.mark.spark


def misspelt_in_where(flow: rl.Flow, stream: rl.Stream) -> rl.Stream:
    return stream.where("amont > 3")


def misspelt_in_select(flow: rl.Flow, stream: rl.Stream) -> rl.Stream:
    return stream.select("user", "amont * 2 as twice")


def misspelt_column(flow: rl.Flow, stream: rl.Stream) -> rl.Stream:
    return stream.with_column("twice", F.col("amont") * 2)


def misspelt_in_agg(flow: rl.Flow, stream: rl.Stream) -> rl.Stream:
    return stream.key_by("user").agg(total="sum(amont)")


def misspelt_in_a_window(flow: rl.Flow, stream: rl.Stream) -> rl.Stream:
    hourly = stream.event_time("at").key_by("user").window(rl.tumbling("1 hour"))
    return hourly.agg(total=F.sum("amont"))


def no_aggregate(flow: rl.Flow, stream: rl.Stream) -> rl.Stream:
    return stream.key_by("user").agg(total="amount + 1")


def no_sql(flow: rl.Flow, stream: rl.Stream) -> rl.Stream:
    return stream.where("amount >")


def unknown_function(flow: rl.Flow, stream: rl.Stream) -> rl.Stream:
    return stream.select("summ(amount) as x")


def text_as_time(flow: rl.Flow, stream: rl.Stream) -> rl.Stream:
    stream = stream.with_column("day", "date_format(at, 'yyyy')")
    return stream.event_time("day").key_by("user").count()


def misspelt_key(flow: rl.Flow, stream: rl.Stream) -> rl.Stream:
    return stream.with_column("x", "1").key_by("usr").count()


def misspelt_in_sql(flow: rl.Flow, stream: rl.Stream) -> rl.Stream:
    return flow.sql("SELECT amont FROM events", events=stream)


def misspelt_gap(flow: rl.Flow, stream: rl.Stream) -> rl.Stream:
    keyed = stream.event_time("at").key_by("user")
    return keyed.window(rl.sessions(gap_expr="amont")).agg(n="count(*)")


def no_frame(flow: rl.Flow, stream: rl.Stream) -> rl.Stream:
    return stream.transform(lambda df: df.columns)


MISTAKES: list[tuple[Callable[[rl.Flow, rl.Stream], rl.Stream], list[str]]] = [
    (misspelt_in_where, ["'amont'", "did you mean 'amount'?"]),
    (misspelt_in_select, ["'amont'", "did you mean 'amount'?"]),
    (misspelt_column, ["'amont'", "did you mean 'amount'?"]),
    (misspelt_in_agg, ["'total'", "'amont'", "did you mean 'amount'?"]),
    (misspelt_in_a_window, ["'total'", "'amont'", "did you mean 'amount'?"]),
    (no_aggregate, ["'total'"]),
    (no_sql, ["where()"]),
    (unknown_function, ["summ"]),
    (text_as_time, ["a timestamp", "string", "to_timestamp"]),
    (misspelt_key, ["'usr'", "user"]),
    (misspelt_in_sql, ["'amont'", "did you mean 'amount'?"]),
    (misspelt_gap, ["gap_expr", "'amont'", "did you mean 'amount'?"]),
    (no_frame, ["returns a DataFrame"]),
]


def _shop(folder: Path) -> tuple[rl.Flow, rl.Stream]:
    (folder / "in").mkdir()
    (folder / "in" / "a.json").write_text('{"user": "ann", "amount": 3.0}\n')
    columns = "user string, amount double, at timestamp"
    source = rl.sources.files(str(folder / "in"), format="json", schema=columns)
    flow = rl.Flow("shop")
    return flow, flow.read(source)


class Kept(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


@pytest.fixture
def logged() -> Iterator[list[logging.LogRecord]]:
    """What PySpark logs of errors: with our columns, and with Java's frames."""
    kept = Kept()
    names = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
    loggers = [PySparkLogger.getLogger(name) for name in names]
    for logger in loggers:
        logger.addHandler(kept)
    yield kept.records
    for logger in loggers:
        logger.removeHandler(kept)


@pytest.mark.parametrize(
    ("mistake", "words"), MISTAKES, ids=[m.__name__ for m, _ in MISTAKES]
)
def test_an_expression_that_spark_refuses_names_the_users_line(
    spark: SparkSession,
    tmp_path: Path,
    mistake: Callable[[rl.Flow, rl.Stream], rl.Stream],
    words: list[str],
    logged: list[logging.LogRecord],
) -> None:
    flow, stream = _shop(tmp_path)

    def build() -> None:
        mistake(flow, stream).write(rl.sinks.memory())
        flow.check()

    with pytest.raises(DefinitionError) as caught:
        build()

    told = str(caught.value)
    lines, first = inspect.getsourcelines(mistake)
    number = first + max(n for n, line in enumerate(lines) if "return" in line)
    assert f"{__file__}:{number} in {mistake.__name__}: return" in told
    assert [w for w in words if w not in told] == []
    for noise in ("__rl", "SQLSTATE", "org.apache", "[UNRESOLVED"):
        assert noise not in told
    assert logged == []


def test_a_lambda_that_raises_names_its_line(
    spark: SparkSession, tmp_path: Path
) -> None:
    flow, stream = _shop(tmp_path)
    broken: Callable[[Any], Any] = lambda r: (r.user, 1 / 0)  # noqa: E731
    stream.map(broken, "user string, n int", uid="halved").write(rl.sinks.memory())

    with pytest.raises(UserCodeError) as caught:
        flow.run(str(tmp_path / "store"), spark=spark, available_now=True)

    assert f"{__file__}:{broken.__code__.co_firstlineno} in <lambda>" in str(
        caught.value
    )
    assert "user='ann'" in str(caught.value.record)
    assert caught.value.operator == "halved"


def test_a_row_of_a_function_that_does_not_fit_names_the_function(
    spark: SparkSession, tmp_path: Path
) -> None:
    flow, stream = _shop(tmp_path)
    broken: Callable[[Any], Any] = lambda r: (r.user, "many")  # noqa: E731
    stream.map(broken, "user string, n int", uid="halved").write(rl.sinks.memory())

    with pytest.raises(UserCodeError) as caught:
        flow.run(str(tmp_path / "store"), spark=spark, available_now=True)

    told = str(caught.value)
    assert f"{__file__}:{broken.__code__.co_firstlineno} in <lambda>" in told
    assert "column 'n' needs int, got 'many'" in told
