"""Every operator against an independent computation of the same rows."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import riverlock as rl
from riverlock.core.clock import ManualClock
from riverlock.core.errors import (
    InvalidFlowError,
    UndeclaredStateError,
    UserCodeError,
)
from riverlock.core.hidden_columns import SEQ
from riverlock.engines.jobs.frames.aggregates import Combine
from riverlock.snapshot.catalog import Catalog
from riverlock.snapshot.state_reader import operator_of, read_entries, read_variable
from riverlock.snapshot.verbs.verify import verify
from riverlock.spark.session import job_conf
from riverlock.storage.open import open_storage
from riverlock.testing import run_local

pytestmark = pytest.mark.spark

T0 = datetime(2026, 1, 1, tzinfo=UTC)
Row = tuple[Any, ...]


def write_rows(spark: SparkSession, path: Path, rows: list[Row], schema: str) -> str:
    """Write rows as several Parquet files, in order; returns the directory."""
    path.mkdir(parents=True, exist_ok=True)
    size = max(1, len(rows) // 3)
    for number, begin in enumerate(range(0, len(rows), size)):
        table = spark.createDataFrame(rows[begin : begin + size], schema).toArrow()
        import pyarrow.parquet as pq

        pq.write_table(table, path / f"{number:05d}.parquet")
    return str(path)


def source(path: str, schema: str) -> Any:
    return rl.sources.files(path, format="parquet", schema=schema)


def run(flow: rl.Flow, store: Path, spark: SparkSession, **options: Any) -> None:
    options = {"available_now": True, "max_rows_per_epoch": 150, **options}
    flow.run(str(store), spark=spark, **options)
    assert all(report.is_whole for report in verify(Catalog(open_storage(str(store)))))


def state(store: Path, uid: str, name: str) -> list[Row]:
    catalog = Catalog(open_storage(str(store)))
    manifest = catalog.resolve(None)
    found = operator_of(manifest, uid, store="")
    entries = read_entries(catalog.storage, found, now_us=manifest.now_us)
    if entries is None:
        return []
    table = read_variable(entries, found, name)
    return [tuple(r.values()) for r in table.to_pylist()]


ORDERS = "user string, n bigint, amount double, at timestamp"


@pytest.fixture(scope="module")
def orders() -> list[Row]:
    rng = random.Random(7)
    users = ["ann", "bob", "zoë", "日本", "", None, "k" * 700]
    return [
        (
            rng.choice(users),
            i,
            float(rng.randrange(100)),
            T0 + timedelta(seconds=i + rng.randrange(-5, 5)),
        )
        for i in range(500)
    ]


@pytest.fixture(scope="module")
def orders_dir(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, orders: list[Row]
) -> str:
    return write_rows(spark, tmp_path_factory.mktemp("orders"), orders, ORDERS)


class Everything(rl.Process):
    """Uses every kind of state; gives a row per event."""

    output = (
        "user string, n bigint, spent double, best double, seen bigint, last bigint"
    )
    spent = rl.Value("double", default=0.0)
    best = rl.Reducing("double", max)
    recent = rl.List("bigint")
    by_digit = rl.Map("bigint", "bigint")
    odd = rl.SideOutput("user string, n bigint")

    def on_event(self, order: Any, ctx: Any) -> Any:
        self.spent += order.amount
        self.best.add(order.amount)
        self.recent = [*self.recent, order.n][-3:]
        digit = order.n % 10
        self.by_digit[digit] = self.by_digit.get(digit, 0) + 1
        if order.amount == 99.0:
            ctx.emit(self.odd, (order.user, order.n))
        yield (
            ctx.key,
            order.n,
            self.spent,
            self.best.value,
            self.by_digit[digit],
            self.recent[0],
        )


def fold(orders: list[Row]) -> tuple[list[Row], dict[Any, Any]]:
    """The same logic as Everything, written as a plain loop."""
    rows: list[Row] = []
    states: dict[Any, Any] = {}
    for user, n, amount, _ in orders:
        s = states.setdefault(
            user, {"spent": 0.0, "best": None, "recent": [], "digits": Counter()}
        )
        s["spent"] += amount
        s["best"] = amount if s["best"] is None else max(s["best"], amount)
        s["recent"] = [*s["recent"], n][-3:]
        s["digits"][n % 10] += 1
        rows.append(
            (user, n, s["spent"], s["best"], s["digits"][n % 10], s["recent"][0])
        )
    return rows, states


@pytest.mark.parametrize(("parallelism", "rows"), [(1, 10_000), (3, 150)])
def test_process_equals_a_plain_loop_whatever_epochs_and_tasks(
    spark: SparkSession,
    tmp_path: Path,
    orders: list[Row],
    orders_dir: str,
    parallelism: int,
    rows: int,
) -> None:
    flow = rl.Flow("everything", key_groups=16)
    stream = flow.read(source(orders_dir, ORDERS))
    out, odd = rl.sinks.memory(), rl.sinks.memory()
    done = stream.key_by("user").process(Everything(), uid="all")
    done.write(out)
    done.side("odd").write(odd)

    run(flow, tmp_path, spark, parallelism=parallelism, max_rows_per_epoch=rows)

    expected, states = fold(orders)
    assert Counter(out.rows()) == Counter(expected)
    for user in states:  # per key the order is that of the input
        mine = [r for r in out.rows() if r[0] == user]
        assert mine == [r for r in expected if r[0] == user]
    assert Counter(odd.rows()) == Counter((u, n) for u, n, a, _ in orders if a == 99.0)
    assert dict(state(tmp_path, "all", "spent")) == {
        u: s["spent"] for u, s in states.items()
    }
    assert dict(state(tmp_path, "all", "best")) == {
        u: s["best"] for u, s in states.items()
    }
    lists = defaultdict(list)
    for user, index, value in state(tmp_path, "all", "recent"):
        lists[user].append((index, value))
    assert {u: [v for _, v in sorted(x)] for u, x in lists.items()} == {
        u: s["recent"] for u, s in states.items()
    }
    maps: dict[Any, dict[Any, Any]] = defaultdict(dict)
    for user, key, value in state(tmp_path, "all", "by_digit"):
        maps[user][key] = value
    assert maps == {u: dict(s["digits"]) for u, s in states.items()}


def test_spark_equals_the_driver_of_one_thread(
    spark: SparkSession, tmp_path: Path, orders: list[Row], orders_dir: str
) -> None:
    def build(out: Any) -> rl.Flow:
        flow = rl.Flow("both")
        # On Spark rows that are filtered out do not move the watermark.
        stream = flow.read(source(orders_dir, ORDERS)).event_time("at", delay="9s")
        kept = stream.filter(lambda o: o.amount < 90)
        words = kept.flat_map(
            lambda o: [(o.user, o.n, o.at)] * (o.n % 3),
            "user string, n bigint, at timestamp",
        )
        words.key_by("user").process(Sessions(), uid="sessions").write(out)
        return flow

    out = rl.sinks.memory()
    flow = build(out)
    run(flow, tmp_path, spark, max_rows_per_epoch=100_000)

    local = run_local(build(rl.sinks.memory()), orders)
    assert Counter(out.rows()) == Counter(local.rows())
    assert out.rows()
    assert sorted(state(tmp_path, "sessions", "n"), key=repr) == sorted(
        (
            (k, local.operator("sessions").state("n", key=k))
            for k in local.operator("sessions").keys()  # noqa: SIM118 - a method
            if local.operator("sessions").state("n", key=k) is not None
        ),
        key=repr,
    )


class Sessions(rl.Process):
    """Counts events until 20 seconds pass without one."""

    output = "user string, n bigint, closed timestamp"
    n = rl.Value("bigint", default=0)
    last = rl.Value("timestamp")

    def on_event(self, e: Any, ctx: Any) -> None:
        if self.last is not None:
            ctx.delete_timer(self.last + rl.seconds(20))
        self.n += 1
        self.last = max(self.last or ctx.time, ctx.time)
        ctx.set_timer(self.last + rl.seconds(20))

    def on_timer(self, at: Any, ctx: Any) -> Any:
        yield ctx.key, self.n, at
        del self.n
        del self.last


def test_timers_fire_once_when_the_watermark_passes(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows = [("a", 0, 0.0, T0), ("a", 1, 0.0, T0 + timedelta(seconds=5))]
    rows += [("b", 2, 0.0, T0 + timedelta(seconds=100))]
    path = write_rows(spark, tmp_path / "in", rows, ORDERS)
    flow = rl.Flow("timers")
    out = rl.sinks.memory()
    stream = flow.read(source(path, ORDERS)).event_time("at", delay="10 seconds")
    stream.key_by("user").process(Sessions(), uid="s").write(out)

    run(flow, tmp_path / "store", spark)

    assert out.rows() == [("a", 2, T0 + timedelta(seconds=25))]
    assert state(tmp_path / "store", "s", "timers") == [
        ("b", "event", T0 + timedelta(seconds=120))
    ]


def test_processing_timers_and_timeouts_follow_the_clock(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows = [("a", 0, 1.0, T0), ("b", 1, 2.0, T0)]
    path = write_rows(spark, tmp_path / "in", rows, ORDERS)
    clock = ManualClock(1_000_000_000)
    out = rl.sinks.memory()

    def build() -> rl.Flow:
        flow = rl.Flow("timeouts")
        flow.read(source(path, ORDERS)).key_by("user").map_with_state(
            lambda r, s: (
                ("gone", s) if r is None else (r.user, (s or 0.0) + r.amount),
                None if r is None else (s or 0.0) + r.amount,
            ),
            "double",
            "user string, total double",
            timeout="1 minute",
            uid="m",
        ).write(out)
        return flow

    run(build(), tmp_path / "store", spark, clock=clock)
    assert sorted(out.rows()) == [("a", 1.0), ("b", 2.0)]
    run(build(), tmp_path / "store", spark, clock=clock)
    assert len(out.rows()) == 2  # nothing is due yet

    clock.advance("61 seconds")
    run(build(), tmp_path / "store", spark, clock=clock)

    assert sorted(out.rows())[2:] == [("gone", 1.0), ("gone", 2.0)]
    assert state(tmp_path / "store", "m", "state") == []
    assert state(tmp_path / "store", "m", "timers") == []


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


def test_count_and_reduce_give_the_running_value(
    spark: SparkSession, tmp_path: Path, orders: list[Row], orders_dir: str
) -> None:
    flow = rl.Flow("small")
    counts, sums = rl.sinks.memory(), rl.sinks.memory()
    keyed = flow.read(source(orders_dir, ORDERS)).key_by("user")
    keyed.count().write(counts)
    keyed.reduce(lambda a, b: (a.user, b.n, a.amount + b.amount, b.at)).write(sums)

    run(flow, tmp_path, spark)

    running: Counter[Any] = Counter()
    expected = []
    for user, *_ in orders:
        running[user] += 1
        expected.append((user, running[user]))
    assert Counter(counts.rows()) == Counter(expected)
    final = {r[0]: r[2] for r in sums.rows()}
    assert final == {
        u: sum(o[2] for o in orders if o[0] == u) for u in {o[0] for o in orders}
    }


def test_update_state_by_key_visits_every_key_in_every_epoch(
    spark: SparkSession, tmp_path: Path
) -> None:
    first = [("a", 1, 1.0, T0), ("k" * 600, 2, 5.0, T0)]
    path = write_rows(spark, tmp_path / "in", first, ORDERS)

    def build(out: Any) -> rl.Flow:
        flow = rl.Flow("update")
        flow.read(source(path, ORDERS)).key_by("user").update_state_by_key(
            lambda new, old: (
                None
                if not new and old == 1.0
                else (old or 0) + sum(r.amount for r in new)
            ),
            "double",
            uid="u",
        ).write(out)
        return flow

    out = rl.sinks.memory()
    run(build(out), tmp_path / "store", spark, max_rows_per_epoch=1000)
    assert sorted(out.epochs[max(out.epochs)]) == [("a", 1.0), ("k" * 600, 5.0)]
    write_rows(spark, tmp_path / "in" / "more", [("b", 3, 9.0, T0)], ORDERS)
    again = rl.sinks.memory()
    run(build(again), tmp_path / "store", spark, max_rows_per_epoch=1000)

    # "a" had no records and said None: it is forgotten. The long key is kept.
    assert sorted(again.epochs[max(again.epochs)]) == [("b", 9.0), ("k" * 600, 5.0)]


def test_stateless_steps_equal_spark_sql(
    spark: SparkSession, tmp_path: Path, orders: list[Row], orders_dir: str
) -> None:
    names = spark.createDataFrame(
        [("ann", "Ann A."), ("bob", "Bob B.")], "user string, full string"
    )
    flow = rl.Flow("stateless")
    out = rl.sinks.memory()
    stream = flow.read(source(orders_dir, ORDERS))
    big = stream.where("amount > 50").with_column("cents", F.col("amount") * 100)
    small = stream.where(F.col("amount") <= 50).with_column("cents", "0D")
    both = big.union(small).transform(lambda df: df.join(F.broadcast(names), "user"))
    both.select("full", "n", "cents").map(
        lambda r: {"name": r.full.upper(), "n": r.n, "cents": r.cents},
        "name string, n bigint, cents double",
    ).write(out)

    run(flow, tmp_path, spark)

    full = {"ann": "ANN A.", "bob": "BOB B."}
    assert Counter(out.rows()) == Counter(
        (full[u], n, a * 100 if a > 50 else 0.0) for u, n, a, _ in orders if u in full
    )


def test_keyed_stages_can_follow_each_other(
    spark: SparkSession, tmp_path: Path, orders: list[Row], orders_dir: str
) -> None:
    flow = rl.Flow("chain")
    out, plain = rl.sinks.memory(), rl.sinks.memory()
    first = flow.read(source(orders_dir, ORDERS)).key_by("user").count(uid="first")
    first.write(plain)
    (
        first.where("count % 2 = 0")
        .with_column("tens", "count div 10")
        .key_by("tens")
        .count(uid="second")
        .write(out)
    )

    run(flow, tmp_path, spark)

    evens = [c for _, c in plain.rows() if c % 2 == 0]
    expected = Counter(c // 10 for c in evens)
    final: dict[int, int] = {}
    for tens, count in out.rows():
        final[tens] = max(count, final.get(tens, 0))
    assert final == dict(expected)


def test_poison_records_fail_by_default_and_name_everything(
    spark: SparkSession, tmp_path: Path, orders_dir: str
) -> None:
    flow = rl.Flow("poison")
    flow.read(source(orders_dir, ORDERS)).key_by("user").process(
        Fragile(), uid="fragile"
    )

    with pytest.raises(UserCodeError) as caught:
        run(flow, tmp_path, spark)

    error = caught.value
    assert (error.operator, error.epoch) == ("fragile", 0)
    assert "ZeroDivisionError" in str(error)
    assert "test_operators.py" in error.line
    assert "n=13" in str(error.record)
    assert Catalog(open_storage(str(tmp_path))).epochs() == []


class Misspelt(rl.Process):
    cart_at = rl.Value("long", default=0)

    def on_event(self, row: Any, ctx: Any) -> None:
        self.carts_at = row.n


def test_an_attribute_that_is_not_declared_fails_the_epoch(
    spark: SparkSession, tmp_path: Path, orders_dir: str
) -> None:
    flow = rl.Flow("carts")
    flow.read(source(orders_dir, ORDERS)).key_by("user").process(
        Misspelt(), uid="carts"
    )

    with pytest.raises(UndeclaredStateError, match="did you mean 'cart_at'"):
        run(flow, tmp_path, spark)

    assert Catalog(open_storage(str(tmp_path))).epochs() == []


class Fragile(rl.Process):
    output = "user string, n bigint, total bigint"
    total = rl.Value("bigint", default=0)

    def on_event(self, e: Any, ctx: Any) -> Any:
        self.total += 1
        if e.n == 13:
            1 / 0  # noqa: B018
        yield e.user, e.n, self.total


def test_poison_records_go_to_a_dead_letter_sink_and_leave_no_trace(
    spark: SparkSession, tmp_path: Path, orders: list[Row], orders_dir: str
) -> None:
    flow = rl.Flow("dead")
    out, dead, dead_map = rl.sinks.memory(), rl.sinks.memory(), rl.sinks.memory()
    stream = flow.read(source(orders_dir, ORDERS))
    stream.key_by("user").process(Fragile(), uid="f", on_error=dead).write(out)
    mapped = rl.sinks.memory()
    stream.map(
        lambda o: (1 // (o.n - 5),), "x bigint", uid="m", on_error=dead_map
    ).write(mapped)

    run(flow, tmp_path, spark)

    totals: Counter[Any] = Counter()
    expected = []
    for user, n, *_ in orders:
        if n != 13:
            totals[user] += 1
            expected.append((user, n, totals[user]))
    assert Counter(out.rows()) == Counter(expected)
    ((operator, _, epoch, error, line, record),) = dead.rows()
    assert (operator, epoch) == ("f", 0)
    assert error.startswith("ZeroDivisionError")
    assert "test_operators.py" in line
    assert "n=13" in record
    assert len(mapped.rows()) == len(orders) - 1
    assert dead_map.rows()[0][0] == "m"


class Rules(rl.Process):
    output = "user string, n bigint, limit double"
    limits = rl.Map("string", "double", scope="broadcast")
    version = rl.Value("bigint", default=0, scope="broadcast")
    seen = rl.Value("bigint", default=0, scope="group")
    base = rl.Value("double", default=0.0)

    def on_initial(self, row: Any, ctx: Any) -> None:
        self.base = row.base

    def on_broadcast(self, rule: Any, ctx: Any) -> None:
        self.limits[rule.name] = rule.limit
        self.version += 1

    def on_event(self, e: Any, ctx: Any) -> Any:
        self.seen += 1
        yield e.user, e.n, self.limits.get("max", -1.0) + self.base


def test_broadcast_initial_and_group_state(
    spark: SparkSession, tmp_path: Path, orders: list[Row], orders_dir: str
) -> None:
    rules = write_rows(
        spark, tmp_path / "rules", [("max", 5.0)], "name string, limit double"
    )
    initial = spark.createDataFrame([("ann", 100.0)], "user string, base double")
    out = rl.sinks.memory()

    def build() -> rl.Flow:
        flow = rl.Flow("rules", key_groups=8)
        stream = flow.read(source(orders_dir, ORDERS), uid="orders")
        other = flow.read(source(rules, "name string, limit double"), uid="rules")
        stream.key_by("user").process(
            Rules(), uid="r", broadcast=other, initial=initial
        ).write(out)
        return flow

    run(build(), tmp_path / "store", spark, parallelism=4)
    run(build(), tmp_path / "store", spark, parallelism=2)

    assert Counter(out.rows()) == Counter(
        (u, n, 105.0 if u == "ann" else 5.0) for u, n, *_ in orders
    )
    store = tmp_path / "store"
    assert state(store, "r", "limits") == [("max", 5.0)]
    assert state(store, "r", "version") == [(1,)]
    assert sum(r[1] for r in state(store, "r", "seen")) == len(orders)


def test_a_star_is_all_columns_that_users_see(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows = [(1, "a", T0), (2, "b", T0)]
    schema = "n bigint, k string, at timestamp"
    path = write_rows(spark, tmp_path / "in", rows, schema)
    a, b, c, d = (rl.sinks.memory() for _ in range(4))
    flow = rl.Flow("star")
    stream = flow.read(source(path, schema), uid="rows").event_time("at")
    more = stream.select("*", "n * 2 AS twice", F.struct("*").alias("whole"))
    more.select("n", "twice", "to_json(whole)").write(a, uid="a")
    more.select(F.col("whole.*"), "k AS l").key_by("k").count(uid="n").write(b, uid="b")
    text = "to_json(struct(*))"
    stream.with_column("j", text).where(f"{text} LIKE '%j%'").write(c, uid="c")
    stream.select("* EXCEPT (at)", "explode(array(n, -n))").write(d, uid="d")
    flow.check(spark=spark)

    run(flow, tmp_path / "store", spark)

    at = "2026-01-01T00:00:00.000Z"
    texts = {n: f'{{"n":{n},"k":"{k}","at":"{at}"}}' for n, k, _ in rows}
    assert sorted(a.rows()) == [(n, 2 * n, texts[n]) for n in (1, 2)]
    assert sorted(b.rows()) == [("a", 1), ("b", 1)]
    assert [(n, k, j) for n, k, _, j in sorted(c.rows())] == [
        (n, k, texts[n]) for n, k, _ in rows
    ]
    assert sorted(d.rows()) == [(1, "a", -1), (1, "a", 1), (2, "b", -2), (2, "b", 2)]


class Heard(rl.Process):
    """Tells in which order it saw broadcast rows, and those of its key."""

    output = "k int, heard array<int>, seen array<int>"
    heard = rl.Value("array<int>", default=[], scope="broadcast")
    seen = rl.Value("array<int>", default=[])

    def on_broadcast(self, row: Any, ctx: Any) -> None:
        self.heard = [*self.heard, row.n]

    def on_event(self, e: Any, ctx: Any) -> Any:
        self.seen = [*self.seen, e.n]
        yield e.k, self.heard, self.seen


def test_rows_of_one_position_have_one_order_in_broadcasts_and_among_records(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = write_rows(spark, tmp_path / "in", [(1, 0), (2, 0)], "n int, k int")
    flow = rl.Flow("heard", key_groups=8)
    rows = flow.read(source(path, "n int, k int"), uid="rows")
    ten, hundred = (rows.select(f"n * {by} AS n", "k") for by in (10, 100))
    # Each row three times, from three tasks whose rows may come in any order.
    whole = rows.union(ten).union(hundred)
    out = rl.sinks.memory()
    whole.key_by("k").process(Heard(), uid="p", broadcast=whole).write(out, uid="out")

    run(flow, tmp_path / "store", spark, parallelism=2)

    _, heard, seen = max(out.rows(), key=lambda row: len(row[2]))
    assert [n // 10 ** (len(str(n)) - 1) for n in seen] == [1, 1, 1, 2, 2, 2]
    assert heard == seen


def test_state_follows_the_parallelism(
    spark: SparkSession, tmp_path: Path, orders: list[Row], orders_dir: str
) -> None:
    out = rl.sinks.memory()
    for parallelism in (1, 2, 7, 3, 1, 4):
        flow = rl.Flow("rescale", key_groups=16)
        flow.read(source(orders_dir, ORDERS)).key_by("user").process(
            Everything(), uid="all"
        ).write(out)
        run(
            flow,
            tmp_path,
            spark,
            parallelism=parallelism,
            max_rows_per_epoch=1,  # one file an epoch
            max_epochs=1,
        )

    expected, states = fold(orders)
    assert Counter(out.rows()) == Counter(expected)
    assert dict(state(tmp_path, "all", "spent")) == {
        u: s["spent"] for u, s in states.items()
    }


def test_two_runs_of_the_same_input_give_the_same_state_files(
    spark: SparkSession, tmp_path: Path, orders_dir: str
) -> None:
    checksums = []
    for name in ("one", "two"):
        flow = rl.Flow("same")
        flow.read(source(orders_dir, ORDERS)).key_by("user").process(
            Everything(), uid="all"
        ).write(rl.sinks.memory())
        run(flow, tmp_path / name, spark, parallelism=2)
        manifest = Catalog(open_storage(str(tmp_path / name))).resolve(None)
        checksums.append([f.checksum for f in manifest.operators["all"].files])

    assert checksums[0] == checksums[1]
    assert checksums[0]


class Useless(rl.Process):
    output = "x int"

    def on_event(self, e: Any, ctx: Any) -> Any:
        yield (1,)


class Silent(rl.Process):
    def on_event(self, e: Any, ctx: Any) -> None:
        pass


def _build(what: str, stream: Any) -> None:  # noqa: C901 - one arm per mistake
    match what:
        case "unknown key":
            stream.key_by("usr")
        case "unknown column":
            stream.where("nothing > 1").write(rl.sinks.memory())
            stream.flow.check()
        case "duplicate uid":
            stream.key_by("user").process(Useless(), uid="x")
            stream.key_by("user").process(Useless(), uid="x")
        case "class instead of instance":
            stream.key_by("user").process(Useless)
        case "nested key":
            stream.with_column("k", "array(user)").key_by("k").count()
            stream.flow.check()
        case "event time type":
            stream.event_time("n").write(rl.sinks.memory())
            stream.flow.check()
        case "unsupported aggregate":
            stream.key_by("user").agg(x="corr(n, n)").write(rl.sinks.memory())
            stream.flow.check()
        case "no output declared":
            stream.key_by("user").process(Silent()).write(rl.sinks.memory())
        case "union of other columns":
            stream.union(stream.select("user"))
        case "nothing to do":
            stream.flow.check()
        case "unpicklable":
            import threading

            process = Useless()
            process.lock = threading.Lock()  # type: ignore[attr-defined]
            stream.key_by("user").process(process)
            stream.flow.check()
        case other:
            raise AssertionError(other)


@pytest.mark.parametrize(
    "what",
    [
        "unknown key",
        "unknown column",
        "duplicate uid",
        "class instead of instance",
        "nested key",
        "event time type",
        "unsupported aggregate",
        "no output declared",
        "union of other columns",
        "nothing to do",
        "unpicklable",
    ],
)
def test_impossible_flows_are_refused_before_anything_runs(
    spark: SparkSession,
    orders_dir: str,
    what: str,
    capfd: pytest.CaptureFixture[str],
) -> None:
    stream = rl.Flow("bad").read(source(orders_dir, ORDERS))

    with pytest.raises(InvalidFlowError) as caught:
        _build(what, stream)

    assert "could not use" in str(caught.value)
    assert "org.apache.spark" not in str(caught.value) + capfd.readouterr().err


def test_a_udf_that_raises_is_the_users_error_and_is_not_tried_for_ever(
    spark: SparkSession, tmp_path: Path, orders_dir: str
) -> None:
    @F.udf("bigint")
    def broken(n: int) -> int:
        return 1 // (n - n)

    flow = rl.Flow("udf")
    stream = flow.read(source(orders_dir, ORDERS)).with_column("x", broken("n"))
    stream.key_by("x").count(uid="counted")

    with pytest.raises(UserCodeError, match="ZeroDivisionError") as caught:
        run(flow, tmp_path, spark)

    assert "test_operators.py" in caught.value.line


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
