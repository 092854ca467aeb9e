"""Every operator against an independent computation of the same rows."""

from __future__ import annotations

from collections import Counter, defaultdict
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from tests.integration.orders import ORDERS, T0, Row, run, source, state, write_rows

import riverlock as rl
from riverlock.core.clock import ManualClock
from riverlock.snapshot.catalog import Catalog
from riverlock.storage.open import open_storage
from riverlock.testing import run_local

pytestmark = pytest.mark.spark


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


def test_running_count_and_reduce_emit_the_running_value(
    spark: SparkSession, tmp_path: Path, orders: list[Row], orders_dir: str
) -> None:
    flow = rl.Flow("small")
    counts, sums = rl.sinks.memory(), rl.sinks.memory()
    keyed = flow.read(source(orders_dir, ORDERS)).key_by("user")
    keyed.running_count().write(counts)
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


def test_count_emits_a_row_per_changed_key_and_epoch(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows = [("a", 1, 1.0, T0), ("b", 1, 1.0, T0), ("a", 2, 1.0, T0)]
    path = write_rows(spark, tmp_path / "in", rows, ORDERS)
    out = rl.sinks.memory()

    def build() -> rl.Flow:
        flow = rl.Flow("counts")
        keyed = flow.read(source(path, ORDERS), uid="orders").key_by("user")
        keyed.count(uid="c").write(out, uid="out")
        return flow

    run(build(), tmp_path / "store", spark)
    write_rows(
        spark, tmp_path / "in" / "more", [("b", 3, 1.0, T0), ("c", 1, 1.0, T0)], ORDERS
    )
    run(build(), tmp_path / "store", spark)

    assert sorted(out.epochs[0]) == [("a", 2), ("b", 1)]
    assert sorted(out.epochs[1]) == [("b", 2), ("c", 1)]
    found: dict[str, int] = dict(state(tmp_path / "store", "c", "count"))
    assert found == {"a": 2, "b": 2, "c": 1}


def test_count_goes_on_from_what_older_versions_kept(
    spark: SparkSession, tmp_path: Path
) -> None:
    """They kept ``n``, as the running count does, and emitted a row per record."""
    path = write_rows(spark, tmp_path / "in", [("a", 7, 1.0, T0)] * 3, ORDERS)
    out = rl.sinks.memory()

    def build(method: str) -> rl.Flow:
        flow = rl.Flow("counts")
        # A key column of that name is no trouble.
        keyed = flow.read(source(path, ORDERS), uid="orders").key_by("n")
        getattr(keyed, method)(uid="c").write(out, uid="out")
        return flow

    run(build("running_count"), tmp_path / "store", spark)
    write_rows(
        spark, tmp_path / "in" / "more", [("b", 7, 1.0, T0), ("c", 8, 1.0, T0)], ORDERS
    )
    run(build("count"), tmp_path / "store", spark)

    assert out.epochs[0] == [(7, 1), (7, 2), (7, 3)]
    assert sorted(out.epochs[1]) == [(7, 4), (8, 1)]


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
    first = (
        flow.read(source(orders_dir, ORDERS)).key_by("user").running_count(uid="first")
    )
    first.write(plain)
    (
        first.where("count % 2 = 0")
        .with_column("tens", "count div 10")
        .key_by("tens")
        .running_count(uid="second")
        .write(out)
    )

    run(flow, tmp_path, spark)

    evens = [c for _, c in plain.rows() if c % 2 == 0]
    expected = Counter(c // 10 for c in evens)
    final: dict[int, int] = {}
    for tens, count in out.rows():
        final[tens] = max(count, final.get(tens, 0))
    assert final == dict(expected)


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
