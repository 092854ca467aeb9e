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
from tests.interpreted import interpreted

import riverlock as rl
from riverlock.core.errors import InvalidFlowError
from riverlock.snapshot.catalog import Catalog
from riverlock.snapshot.verbs.verify import verify
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
    options = {"available_now": True, "max_rows_per_epoch": 100, **options}
    flow.run(str(store), spark=spark, **options)
    catalog = Catalog(open_storage(str(store)))
    assert all(report.is_whole for report in verify(catalog))
    assert catalog.resolve(None).epoch >= 2 or options["max_rows_per_epoch"] > 1_000


def rows_of(frame: DataFrame) -> Counter[str]:
    with interpreted(frame.sparkSession):
        rows = frame.toArrow().to_pylist()
    return Counter(repr(tuple(r.values())) for r in rows)


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


def test_stream_can_be_connected_with_itself(
    spark: SparkSession, tmp_path: Path, tables: tuple[str, str], orders: list[Row]
) -> None:
    flow, out = rl.Flow("self"), rl.sinks.memory()
    stream = flow.read(source(tables[0], ORDERS)).event_time("at", delay="20 seconds")
    small = stream.select("user as twin", "n as m", "at as twin_at").where("m < 30")
    large = stream.where("n < 30")
    large.key_by("user").join(small.key_by("twin"), within=("0s", "0s")).write(out)

    run(flow, tmp_path, spark)

    expected = [
        (x, y)
        for x in orders[:30]
        for y in orders[:30]
        if x[0] is not None and x[0] == y[0] and x[2] == y[2]
    ]
    assert sorted((r[1], r[4]) for r in out.rows()) == [
        (x[1], y[1]) for x, y in expected
    ]


SQL_JOINS = {
    "inner": "inner join",
    "left": "left join",
    "right": "right join",
    "full": "full join",
    "semi": "left semi join",
    "anti": "left anti join",
}


def interval_sql(how: str) -> str:
    columns = (
        "o.*"
        if how in ("semi", "anti")
        else ("coalesce(o.user, p.account) as user, o.n, o.at, o.tags, p.p, p.paid")
    )
    return f"""
        select {columns} from orders_j o {SQL_JOINS[how]} payments_j p
        on o.user = p.account
        and p.paid >= o.at - interval 5 seconds
        and p.paid <= o.at + interval 10 seconds
        """


@pytest.fixture(scope="module")
def views(spark: SparkSession, tables: tuple[str, str]) -> None:
    left = spark.read.parquet(tables[0]).where("user <=> 'end' = false")
    right = spark.read.parquet(tables[1]).where("account <=> 'end' = false")
    left.createOrReplaceTempView("orders_j")
    right.createOrReplaceTempView("payments_j")


def windowed_sql(how: str) -> str:
    columns = "o.user, o.n, o.at, o.tags, o.w.start, o.w.end"
    if how == "full":
        columns = (
            "coalesce(o.user, p.account) as user, o.n, o.at, o.tags, p.p, p.paid,"
            " coalesce(o.w.start, p.w.start), coalesce(o.w.end, p.w.end)"
        )
    window = "10 seconds', '5 seconds"
    return f"""
        select {columns}
        from (select *, window(at, '{window}') as w from orders_j) o
        {SQL_JOINS[how]}
        (select *, window(paid, '{window}') as w from payments_j) p
        on o.user = p.account and o.w = p.w
        """


def latest_sql(how: str) -> str:
    return f"""
        select o.user, o.n, o.at, o.tags, p.p, p.paid from (
          select o.*, (
            select max(paid) from payments_j q
            where q.account = o.user and q.paid <= o.at) as held
          from orders_j o) o
        {SQL_JOINS[how]} payments_j p on p.account = o.user and p.paid = o.held
        """


@pytest.mark.usefixtures("views")
def test_joins_equal_spark_sql(
    spark: SparkSession, tmp_path: Path, tables: tuple[str, str]
) -> None:
    flow = rl.Flow("joins")
    left, right = streams(flow, tables)
    late = rl.sinks.memory()
    sinks = {}
    for how in SQL_JOINS:
        within = ("-5 seconds", rl.seconds(10))
        joined = left.join(right, within=within, how=how, uid=f"join-{how}")
        joined.late.write(late)
        sinks[interval_sql(how)] = rl.sinks.memory()
        joined.write(sinks[interval_sql(how)])
    for how in ("full", "semi"):
        window = rl.sliding("10 seconds", "5 seconds")
        joined = left.join(right, window=window, how=how, uid=f"windowed-{how}")
        joined.late.write(late)
        sinks[windowed_sql(how)] = rl.sinks.memory()
        joined.write(sinks[windowed_sql(how)])
    for how in ("inner", "left"):
        joined = left.join_latest(right, how=how, uid=f"latest-{how}")
        sinks[latest_sql(how)] = rl.sinks.memory()
        joined.write(sinks[latest_sql(how)])

    run(flow, tmp_path, spark, parallelism=2)

    assert late.rows() == []
    for query, sink in sinks.items():
        assert decided(sink.rows()) == rows_of(spark.sql(query)), query


def test_lookup_sees_what_came_before_or_with_a_record(
    spark: SparkSession, tmp_path: Path
) -> None:
    flow, out = rl.Flow("lookup"), rl.sinks.memory()
    orders, cities = tmp_path / "orders", tmp_path / "cities"
    left = flow.read(source(str(orders), "user string, n bigint"))
    right = flow.read(source(str(cities), "name string, city string"))
    left.key_by("user").lookup(right.key_by("name"), how="left", uid="l").write(out)
    epochs: list[tuple[list[Row], list[Row]]] = [
        ([("ann", 1), ("bob", 2)], [("ann", "Rome")]),
        ([("ann", 3), ("bob", 4)], [("bob", "Oslo"), ("bob", "Bern")]),
        ([("ann", 5)], [("ann", "Kyiv")]),
    ]

    for number, (more_orders, more_cities) in enumerate(epochs):
        for folder, rows, names in (
            (orders, more_orders, "user string, n bigint"),
            (cities, more_cities, "name string, city string"),
        ):
            folder.mkdir(exist_ok=True)
            table = spark.createDataFrame(rows, names).toArrow()
            pq.write_table(table, folder / f"{number}.parquet")
        flow.run(str(tmp_path / "store"), spark=spark, available_now=True)

    assert sorted(out.rows(), key=lambda r: r[1]) == [
        ("ann", 1, "Rome"),
        ("bob", 2, None),
        ("ann", 3, "Rome"),
        ("bob", 4, "Bern"),
        ("ann", 5, "Kyiv"),
    ]


def test_late_records_and_those_without_time_go_to_the_side_output(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows: list[Row] = [
        ("ann", 1, at(0), []),
        ("ann", 2, at(100), []),
        ("ann", 3, at(5), ["x"]),
        ("ann", 4, None, []),
    ]
    left = write_rows(spark, tmp_path / "l", rows, ORDERS)
    right = write_rows(
        spark, tmp_path / "r", [("ann", p, at(100 * p)) for p in range(4)], PAYMENTS
    )
    flow, late = rl.Flow("late"), rl.sinks.memory()
    mine, theirs = streams(flow, (left, right))
    joined = mine.join(theirs, within=("0s", "0s"), uid="join")
    joined.late.write(late)

    run(flow, tmp_path / "store", spark, max_rows_per_epoch=2)

    assert [(s, t, tuple(x.values()), y) for s, t, x, y in late.rows()] == [
        ("left", at(5), ("ann", 3, at(5), ["x"]), None),
        ("left", None, ("ann", 4, None, []), None),
    ]


def test_joined_rows_can_be_joined_again(
    spark: SparkSession, tmp_path: Path, tables: tuple[str, str], orders: list[Row]
) -> None:
    flow, out = rl.Flow("chain"), rl.sinks.memory()
    left, right = streams(flow, tables)
    first = left.join_latest(right, how="left", uid="first")
    again = first.select("user", "n", "p", "at as t")
    twins = left._whole.select("user as twin", "n as m").key_by("twin", "m")
    again.key_by("user", "n").join(
        twins, within=("0s", "0s"), how="inner", uid="second"
    ).write(out)

    run(flow, tmp_path, spark)

    named = [o for o in orders if o[0] not in (None, "end")]
    found = [r[1] for r in out.rows() if r[0] != "end"]
    assert sorted(found) == [o[1] for o in named]


def test_bounded_inputs_end_for_one_join_after_the_other(
    spark: SparkSession, tmp_path: Path
) -> None:
    """What the first gives at the end of its input must not be late for the second."""

    def events(flow: rl.Flow, number: str, key: str, time: str) -> Any:
        columns = {
            number: "id",
            key: "id % 7",
            time: "timestamp_seconds(1767225600 + id)",
        }
        stream = flow.read(
            rl.sources.generator(columns, rows=90, bounded=True), uid=number
        )
        return stream.event_time(time, delay="5 seconds")

    flow, out, late = rl.Flow("ends"), rl.sinks.memory(), rl.sinks.memory()
    orders = events(flow, "n", "user", "at").key_by("user")
    rates = events(flow, "r", "account", "since").key_by("account")
    first = orders.join_latest(rates, how="left", uid="first")
    again = first.key_by("user")
    payments = events(flow, "p", "payer", "paid").key_by("payer")
    second = again.join(payments, within=("-7s", "0s"), how="left", uid="second")
    second.write(out)
    second.late.write(late)

    run(flow, tmp_path, spark)

    assert late.rows() == []
    found = Counter((n, r, p) for n, _, _, r, _, p, _ in out.rows())
    expected = [(n, n, p) for n in range(90) for p in (n, n - 7) if p >= 0]
    assert found == Counter(expected)


def test_pairs_have_the_later_time_of_their_records(
    spark: SparkSession, tmp_path: Path, tables: tuple[str, str]
) -> None:
    class Times(rl.Process):
        output = "at timestamp, paid timestamp, time timestamp"

        def on_event(self, pair: Any, ctx: Any) -> Any:
            yield pair.at, pair.paid, ctx.time

    flow, out = rl.Flow("times"), rl.sinks.memory()
    left, right = streams(flow, tables)
    pairs = left.join(right, within=("-5s", "10s"), uid="join")
    pairs.key_by("user").process(Times(), uid="times").write(out)

    run(flow, tmp_path, spark)

    assert len(out.rows()) > 50
    assert all(time == max(at, paid) for at, paid, time in out.rows())


def test_what_only_spark_knows_is_checked_before_anything_runs(
    spark: SparkSession, tables: tuple[str, str]
) -> None:
    def check(build: Any) -> InvalidFlowError:
        flow = rl.Flow("bad")
        build(*streams(flow, tables))
        with pytest.raises(InvalidFlowError) as caught:
            flow.check(spark=spark)
        return caught.value

    within = ("0s", "1s")

    def cast(left: Any, right: Any) -> Any:
        wide = right._whole.with_column("id", "p")
        left.join(wide.key_by("id"), within=within)

    def gone(left: Any, right: Any) -> Any:
        less = right._whole.with_column("x", "1").select("p")
        left.join(less.key_by("account"), within=within)

    def clash(left: Any, right: Any) -> Any:
        right = right._whole.with_column("n", "p").key_by("account")
        left.join(right, within=within)

    assert "equal types: string" in str(check(cast))
    assert "one of p" in str(check(gone))
    assert "n on both sides" in str(check(clash))
