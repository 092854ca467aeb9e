"""Operators with two inputs on Spark, against Spark's own batch joins."""

from __future__ import annotations

import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

import riverlock as rl
from riverlock.snapshot.catalog import Catalog
from riverlock.snapshot.verify import verify
from riverlock.storage.open import open_storage
from riverlock.testing import run_local

pytestmark = pytest.mark.spark

T0 = datetime(2026, 1, 1, tzinfo=UTC)
Row = tuple[Any, ...]
ORDERS = "user string, n bigint, at timestamp, tags array<string>"
PAYMENTS = "account string, p bigint, paid timestamp"
DELAY = 20


def write_rows(spark: SparkSession, path: Path, rows: list[Row], schema: str) -> str:
    """Write rows as four Parquet files, in order; returns the directory."""
    path.mkdir(parents=True, exist_ok=True)
    size = -(-len(rows) // 4)
    for number, begin in enumerate(range(0, len(rows), size)):
        table = spark.createDataFrame(rows[begin : begin + size], schema).toArrow()
        pq.write_table(table, path / f"{number:05d}.parquet")
    return str(path)


def source(path: str, schema: str) -> Any:
    return rl.sources.files(path, format="parquet", schema=schema)


def at(seconds: int) -> datetime:
    return T0 + timedelta(seconds=seconds)


@pytest.fixture(scope="module")
def orders() -> list[Row]:
    rng = random.Random(3)
    users = ["ann", "bob", "zoë", None, "cid"]
    rows: list[Row] = [
        (rng.choice(users), n, at(n + rng.randrange(DELAY)), [str(n)])
        for n in range(200)
    ]
    # Moves time far enough for all others to be decided.
    return [*rows, ("end", 200, at(1_000), [])]


@pytest.fixture(scope="module")
def payments() -> list[Row]:
    rng = random.Random(4)
    users = ["ann", "bob", "zoë", None, "dan"]
    # No two of one instant: which of them holds would be left open.
    rows: list[Row] = [
        (
            rng.choice(users),
            p,
            at(p + rng.randrange(DELAY)) + timedelta(microseconds=p),
        )
        for p in range(200)
    ]
    return [*rows, ("end", 200, at(1_000))]


@pytest.fixture(scope="module")
def tables(
    spark: SparkSession,
    tmp_path_factory: pytest.TempPathFactory,
    orders: list[Row],
    payments: list[Row],
) -> tuple[str, str]:
    folder = tmp_path_factory.mktemp("joins")
    left = write_rows(spark, folder / "orders", orders, ORDERS)
    right = write_rows(spark, folder / "payments", payments, PAYMENTS)
    return left, right


def streams(flow: rl.Flow, tables: tuple[str, str]) -> tuple[Any, Any]:
    left = flow.read(source(tables[0], ORDERS), uid="orders")
    right = flow.read(source(tables[1], PAYMENTS), uid="payments")
    return (
        left.event_time("at", delay=f"{DELAY} seconds").key_by("user"),
        right.event_time("paid", delay=f"{DELAY} seconds").key_by("account"),
    )


def run(flow: rl.Flow, store: Path, spark: SparkSession, **options: Any) -> None:
    options = {"available_now": True, "max_rows_per_epoch": 60, **options}
    flow.run(str(store), spark=spark, **options)
    catalog = Catalog(open_storage(str(store)))
    assert all(report.is_whole for report in verify(catalog))
    assert catalog.resolve(None).epoch >= 2 or options["max_rows_per_epoch"] > 1_000


def rows_of(frame: DataFrame) -> Counter[str]:
    return Counter(repr(tuple(r.values())) for r in frame.toArrow().to_pylist())


def decided(rows: list[Row]) -> Counter[str]:
    """Rows of all users but the one that only moves time."""
    return Counter(repr(r) for r in rows if r[0] != "end")


class Both(rl.TwoInputProcess):
    """Says what came from where, with the state that both share."""

    output = "user string, side string, n bigint, seen bigint, at timestamp"
    seen = rl.Value("bigint", default=0)
    odd = rl.SideOutput("user string, n bigint")

    def on_left(self, order: Any, ctx: Any) -> Any:
        self.seen += 1
        assert order.tags in ([str(order.n)], [])
        yield ctx.key, "left", order["n"], self.seen, ctx.time

    def on_right(self, payment: Any, ctx: Any) -> Any:
        self.seen += 1
        if payment.p % 2:
            ctx.emit(self.odd, (payment.account, payment.p))
        return [(ctx.key, "right", payment.p, self.seen, ctx.time)]


@pytest.mark.parametrize("parallelism", [1, 3])
def test_connect_equals_the_driver_of_one_thread(
    spark: SparkSession,
    tmp_path: Path,
    tables: tuple[str, str],
    orders: list[Row],
    payments: list[Row],
    parallelism: int,
) -> None:
    def build(out: Any, odd: Any) -> rl.Flow:
        flow = rl.Flow("both")
        left, right = streams(flow, tables)
        done = left.connect(right).process(Both(), uid="both")
        done.write(out, uid="out")
        done.side("odd").write(odd, uid="odd")
        return flow

    out, odd = rl.sinks.memory(), rl.sinks.memory()
    run(
        build(out, odd),
        tmp_path,
        spark,
        parallelism=parallelism,
        max_rows_per_epoch=10_000,
    )

    local = run_local(
        build(rl.sinks.memory(), rl.sinks.memory()),
        {"orders": orders, "payments": payments},
    )
    # Not only the same rows: per key in the same order.
    for user in {o[0] for o in orders}:
        mine = [r for r in out.rows() if r[0] == user]
        assert mine == [r for r in local.rows("out") if r[0] == user]
    assert Counter(odd.rows()) == Counter(local.rows("odd"))
    assert len(out.rows()) == len(orders) + len(payments)


def test_connect_over_several_epochs_sees_each_record_once(
    spark: SparkSession, tmp_path: Path, tables: tuple[str, str], orders: list[Row]
) -> None:
    flow, out = rl.Flow("both"), rl.sinks.memory()
    left, right = streams(flow, tables)
    left.connect(right).process(Both(), uid="both").write(out)

    run(flow, tmp_path, spark)

    found = out.rows()
    assert sorted(r[2] for r in found if r[1] == "left") == [o[1] for o in orders]
    for user in {r[0] for r in found}:
        mine = [r[3] for r in found if r[0] == user]
        assert mine == list(range(1, len(mine) + 1))
