"""Queries over streams against the same text in plain Spark SQL."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from functools import reduce
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from tests.integration.sql_queries import (
    GROUPED,
    METHODS,
    ROW_BY_ROW,
    RUNNING,
    comparable,
    events,
    of_methods,
    table,
    users,
    views,
)
from tests.interpreted import interpreted

import riverlock as rl
from riverlock.core.hidden_columns import HIDDEN, SEQ, TIME
from riverlock.engines.jobs.frames.static_tables import join_static
from riverlock.flow.inside import node_of
from riverlock.program.graph import Relational

pytestmark = pytest.mark.spark


STATELESS = {**ROW_BY_ROW, "join_static": METHODS["joined"]}


@pytest.fixture(scope="module", autouse=True)
def names(spark: SparkSession) -> Iterator[None]:
    with views(spark):
        yield


def stage_of(spark: SparkSession, name: str) -> Callable[[DataFrame], DataFrame]:
    """Return what Spark does with the rows of an epoch."""
    if name == "join_static":
        known = users(spark).withColumnRenamed("id", "user")
        columns = ["user", "action", "amount", "tags", "at", "name", SEQ, TIME]

        def joined(rows: DataFrame) -> DataFrame:
            return join_static(spark, rows, known, ("user",), "inner").select(columns)

        return joined
    flow = rl.Flow("sql")
    events(flow)
    node = node_of(flow.sql(ROW_BY_ROW[name], users=users(spark)))
    assert isinstance(node, Relational)
    stage: Callable[[DataFrame], DataFrame] = node.arguments[0]
    return stage


@pytest.mark.parametrize("name", STATELESS)
def test_parts_give_the_rows_of_the_whole_and_keep_their_place(
    spark: SparkSession, name: str
) -> None:
    stage, batch = stage_of(spark, name), spark.sql(STATELESS[name])
    rows = table(spark).withColumn(TIME, F.unix_micros("at"))
    rows = rows.withColumn(SEQ, F.col(TIME) * 2)
    with interpreted(spark):
        expected = Counter(comparable(row) for row in batch.collect())

    @settings(max_examples=2)
    @given(st.integers(2, 4), st.integers(0, 1 << 31))
    def check(parts: int, seed: int) -> None:
        part = F.pmod(F.xxhash64("amount", "at", F.lit(seed)), F.lit(parts))
        each = [stage(rows.where(part == n)) for n in range(parts)]
        found = reduce(DataFrame.union, each)
        with interpreted(spark):
            collected = [row.asDict() for row in found.collect()]
        shown = [c for c in found.columns if c not in HIDDEN]
        assert shown == batch.columns
        given_rows = [comparable([r[c] for c in shown]) for r in collected]
        assert Counter(given_rows) == expected
        assert all(r[SEQ] == r[TIME] * 2 for r in collected)
        assert all(comparable(r["AT"]) == r[TIME] for r in collected if "AT" in r)

    check()


def test_groups_of_many_epochs_are_those_of_a_batch(
    spark: SparkSession, tmp_path: Path
) -> None:
    flow = rl.Flow("sql")
    made = of_methods(events(flow))
    for name, query in {**GROUPED, "running": RUNNING}.items():
        made[name] = flow.sql(query, users=users, uid=f"of {name}".replace(" ", "-"))
    found = {name: rl.sinks.memory() for name in made}
    for name, rows in made.items():
        rows.write(found[name], uid=name.replace(" ", "-"))
    updates, whole, merged = (rl.sinks.memory() for _ in range(3))
    made["example"].write(updates, mode="update", uid="updates")
    # With HAVING: what no longer fits is no longer in the table.
    made["without keys"].write(whole, mode="complete", uid="whole")
    made["sessions"].write(merged, mode="complete", uid="merged")

    flow.run(
        str(tmp_path / "store"), spark=spark, available_now=True, max_rows_per_epoch=160
    )

    with interpreted(spark):
        batch = {
            name: Counter(comparable(row) for row in spark.sql(query).collect())
            for name, query in {**GROUPED, **METHODS, "running": RUNNING}.items()
        }
    for name in {**GROUPED, **METHODS}:
        assert Counter(map(comparable, found[name].rows())) == batch[name], name
        assert batch[name], name
    newest = {row[0]: comparable(row) for row in found["running"].rows()}
    assert len(found["running"].rows()) > len(newest)
    assert set(newest.values()) == batch["running"].keys()
    table = Counter(map(comparable, found["without keys"].rows()))
    assert Counter(map(comparable, whole.rows())) == table
    table = Counter(map(comparable, found["sessions"].rows()))
    assert Counter(map(comparable, merged.rows())) == table
    every = list(map(comparable, updates.rows()))
    last = {row[:2]: row for row in every}
    assert Counter(last.values()) == Counter(map(comparable, found["example"].rows()))
    assert len(every) > len(last)
