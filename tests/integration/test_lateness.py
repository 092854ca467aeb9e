"""What Spark gives as late is what tasks leave out: one rule, on two engines."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from riverlock.core.hidden_columns import GAP, TIME
from riverlock.core.times import END_US, START_US
from riverlock.engines.jobs.frames.nodes import is_too_late
from riverlock.operators.windows.lateness import late_rows_of
from riverlock.program.lateness import closed_at_us
from riverlock.program.windows import SessionWindows, TimeWindows

pytestmark = pytest.mark.spark

EDGES = [START_US, START_US + 9, END_US - 9, END_US]
TIMES = [*EDGES, *range(-40, 41), None]
WINDOWS = [
    TimeWindows(size_us=size, slide_us=slide, offset_us=offset)
    for size, slide in ((10, 10), (10, 4), (4, 10), (7, 3))
    for offset in (0, 3, -5)
]
SESSIONS = [SessionWindows(gap_us=5), SessionWindows(gap_expr="gap")]
EVERY: list[TimeWindows | SessionWindows] = [*WINDOWS, *SESSIONS]


def test_spark_and_tasks_leave_out_the_same_records(spark: SparkSession) -> None:
    gaps = [n % 9 - 1 if n % 7 else None for n in range(len(TIMES))]
    rows = list(zip(range(len(TIMES)), TIMES, gaps, strict=True))
    frame = spark.createDataFrame(rows, f"n int, {TIME} bigint, {GAP} bigint")
    table = pa.table({TIME: pa.array(TIMES, "int64"), GAP: pa.array(gaps, "int64")})
    cases = [
        (window, lateness, watermark)
        for window in EVERY
        for lateness in (0, 6)
        for watermark in (None, -11, 9, 10)
    ]

    conditions = [
        is_too_late(window, closed_at_us(watermark, lateness)).alias(f"c{n}")
        for n, (window, lateness, watermark) in enumerate(cases)
    ]
    found = frame.select("n", *conditions).orderBy("n").collect()

    for n, (window, lateness, watermark) in enumerate(cases):
        expected, _ = late_rows_of(table, window, lateness, watermark)
        assert [row[f"c{n}"] for row in found] == expected.tolist(), cases[n]
