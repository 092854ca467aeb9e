"""Each function of the subset yields what Spark yields, row by row, errors included."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
from tests.integration.expressions.cases import CASES
from tests.integration.expressions.spark_side import (
    compiled,
    differences,
    of_spark,
    settings,
)
from tests.integration.expressions.typed_rows import typed_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def check(spark: SparkSession, texts: list[str], seed: int, size: int) -> None:
    table = typed_rows(seed, size)
    frame = spark.createDataFrame(table)
    mine = compiled(frame, texts)
    theirs = of_spark(frame, texts)
    # A time without a date is one of today, for Spark by the clock.
    now_us = time.time_ns() // 1_000
    wrong = {}
    for n, (text, expression) in enumerate(zip(texts, mine, strict=True)):
        found = differences(table, expression, theirs[f"c{n}"], now_us)
        if found:
            wrong[text] = found[:3]
    assert not wrong, "\n".join(f"{k}: {v}" for k, v in wrong.items())


@pytest.mark.parametrize("group", CASES)
def test_function_agrees_with_spark(spark: SparkSession, group: str) -> None:
    with settings(spark, spark__sql__session__timeZone="UTC"):
        check(spark, CASES[group], seed=len(group), size=200)
