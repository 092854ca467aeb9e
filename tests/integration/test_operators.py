"""Operators on Spark against an independent computation of the same rows."""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from tests.integration.everything import Everything, Sessions, fold
from tests.integration.orders import ORDERS, T0, Row, run, source, state, write_rows

import riverlock as rl
from riverlock.snapshot.catalog import Catalog
from riverlock.storage.open import open_storage
from riverlock.testing import run_local

pytestmark = pytest.mark.spark


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
