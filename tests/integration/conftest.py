"""Rows and their files, made once for all tests that only read them."""

from __future__ import annotations

import random
from datetime import timedelta

import pytest
from pyspark.sql import SparkSession
from tests.integration.orders import ORDERS, T0, Row, write_rows


@pytest.fixture(scope="session")
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


@pytest.fixture(scope="session")
def orders_dir(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, orders: list[Row]
) -> str:
    return write_rows(spark, tmp_path_factory.mktemp("orders"), orders, ORDERS)
