"""What users hear of records that their code cannot handle, and where these go."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from tests.integration.orders import ORDERS, Row, run, source

import riverlock as rl
from riverlock.core.errors import (
    UndeclaredStateError,
    UserCodeError,
)
from riverlock.snapshot.catalog import Catalog
from riverlock.storage.open import open_storage

pytestmark = pytest.mark.spark


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
    assert "test_user_errors.py" in error.line
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
    assert "test_user_errors.py" in line
    assert "n=13" in record
    assert len(mapped.rows()) == len(orders) - 1
    assert dead_map.rows()[0][0] == "m"


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

    assert "test_user_errors.py" in caught.value.line
