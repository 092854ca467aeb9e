"""Streams joined with tables that are read whole in every epoch."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from functools import reduce
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import redis
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from tests.servers.redis import redis_server

import riverlock as rl
from riverlock.core.errors import InvalidFlowError
from riverlock.engines.jobs.frames.static_tables import join_static

pytestmark = pytest.mark.spark

T0 = datetime(2026, 1, 1, tzinfo=UTC)
ORDERS = "user bigint, n bigint, at timestamp"


def write(spark: SparkSession, folder: Path, rows: list[Any], number: int) -> None:
    folder.mkdir(exist_ok=True)
    table = spark.createDataFrame(rows, ORDERS).toArrow()
    pq.write_table(table, folder / f"{number:05d}.parquet")


def source(folder: Path) -> Any:
    return rl.sources.files(str(folder), format="parquet", schema=ORDERS)


def test_static_table_is_read_again_in_every_epoch(
    spark: SparkSession, tmp_path: Path
) -> None:
    cities, orders = tmp_path / "cities", tmp_path / "orders"

    def table(session: SparkSession) -> DataFrame:
        return session.read.schema("user bigint, city string").json(str(cities))

    def build(how: str, out: Any) -> rl.Flow:
        flow = rl.Flow("static")
        stream = flow.read(source(orders))
        stream.select("n", "user").join_static(table, on="user", how=how).write(out)
        return flow

    inner, left = rl.sinks.memory(), rl.sinks.memory()
    for number, city in enumerate(["Rome", "Oslo"]):
        spark.createDataFrame([(7, city)], "user bigint, city string").write.json(
            str(cities), mode="overwrite"
        )
        write(spark, orders, [(7, number, T0), (8, 10 + number, T0)], number)
        for how, sink in (("inner", inner), ("left", left)):
            run_store = str(tmp_path / how)
            build(how, sink).run(run_store, spark=spark, available_now=True)

    assert inner.rows() == [(0, 7, "Rome"), (1, 7, "Oslo")]
    assert sorted(left.rows()) == [
        (0, 7, "Rome"),
        (1, 7, "Oslo"),
        (10, 8, None),
        (11, 8, None),
    ]


def test_static_join_keeps_order_and_event_time(
    spark: SparkSession, tmp_path: Path
) -> None:
    orders = [(n % 3, n, T0 + timedelta(seconds=n)) for n in range(60)]
    for begin in range(0, 60, 20):
        write(spark, tmp_path / "in", orders[begin : begin + 20], begin)
    flow, out = rl.Flow("static-keyed"), rl.sinks.memory()
    table = spark.createDataFrame([(0, 1), (0, 2), (1, 3)], "user bigint, w int")
    stream = flow.read(source(tmp_path / "in")).event_time("at")

    class Seen(rl.Process):
        output = "user bigint, n bigint, w int, at timestamp"

        def on_event(self, r: Any, ctx: Any) -> Any:
            yield r.user, r.n, r.w, ctx.time

    stream.join_static(table, on=["user"]).key_by("user").process(Seen()).write(out)

    flow.run(
        str(tmp_path / "store"), spark=spark, available_now=True, max_rows_per_epoch=20
    )

    assert [r for r in out.rows() if r[0] == 1] == [
        (1, n, 3, when) for user, n, when in orders if user == 1
    ]
    assert len([r for r in out.rows() if r[0] == 0]) == 2 * 20


KEYS = st.none() | st.integers(0, 3)


def test_parts_of_a_stream_give_the_rows_of_the_whole(spark: SparkSession) -> None:
    @settings(max_examples=3)
    @given(
        st.lists(st.tuples(KEYS, st.integers(0, 2)), min_size=1, max_size=12),
        st.lists(st.tuples(KEYS, st.integers(0, 9)), max_size=6),
        st.sampled_from(["inner", "left"]),
    )
    def check(orders: list[Any], weights: list[Any], how: str) -> None:
        table = spark.createDataFrame(weights, "user bigint, w bigint")
        rows = spark.createDataFrame(orders, "user bigint, part int")
        parts = [rows.where(F.col("part") == n) for n in range(3)]
        joined = [join_static(spark, p, table, ("user",), how) for p in parts]

        found = Counter(tuple(row) for row in reduce(DataFrame.union, joined).collect())

        expected: Counter[Any] = Counter()
        for user, part in orders:
            mine = [w for u, w in weights if u == user and u is not None]
            nothing = [None] if how == "left" else []
            expected.update((user, part, w) for w in mine or nothing)
        assert found == expected

    check()


@pytest.mark.parametrize(
    ("on", "columns", "message"),
    [
        ("user", "user bigint, n int", "n on both sides"),
        ("user", None, "a DataFrame"),
        ("at", "user bigint, w int", "one of user, w"),
    ],
)
def test_tables_that_do_not_fit_are_refused_before_anything_runs(
    spark: SparkSession, tmp_path: Path, on: str, columns: str | None, message: str
) -> None:
    (tmp_path / "in").mkdir()
    flow = rl.Flow("bad")

    def table(session: SparkSession) -> Any:
        return None if columns is None else session.createDataFrame([], columns)

    flow.read(source(tmp_path / "in")).join_static(table, on=on).write(
        rl.sinks.memory()
    )

    with pytest.raises(InvalidFlowError, match=message):
        flow.check(spark=spark)


def test_rows_are_looked_up_in_redis_anew_in_every_run(
    spark: SparkSession, tmp_path: Path
) -> None:
    orders, out = tmp_path / "orders", rl.sinks.memory()
    with redis_server(tmp_path) as url:
        tiers = rl.tables.redis(
            url, key="user:{user}", schema="user bigint, tier string, since timestamp"
        )
        for number, tier in enumerate(["gold", "silver"]):
            redis.Redis.from_url(url).hset(
                "user:7", mapping={"tier": tier, "since": T0.isoformat()}
            )
            rows = [(7, number, T0), (8, number, T0)]
            write(spark, orders, rows, number)
            flow = rl.Flow("tiers")
            stream = flow.read(source(orders)).select("n", "user")
            stream.join_static(tiers, on="user", how="left").write(out)
            flow.run(str(tmp_path / "store"), spark=spark, available_now=True)

    assert sorted(out.rows(), key=str) == [
        (0, 7, "gold", T0),
        (0, 8, None, None),
        (1, 7, "silver", T0),
        (1, 8, None, None),
    ]
