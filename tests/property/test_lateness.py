"""One rule of lateness: of a number, of NumPy's arrays and of SQL it says the same."""

from __future__ import annotations

import sqlite3
from typing import Any

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from riverlock.core.times import END_US, START_US
from riverlock.program.lateness import closed_at_us, pane_lateness, session_lateness
from riverlock.program.windows import TimeWindows
from riverlock.spark.sql_arithmetic import SqlNumber

SIZES = st.integers(1, 40) | st.sampled_from([3_600_000_000, 86_400_000_000])
TIMES = st.integers(-100, 100) | st.integers(START_US, END_US)
EDGES = st.sampled_from([START_US, START_US + 1, END_US, END_US - 1, -1, 0])


def window(size: int, slide: int, offset: int) -> TimeWindows:
    return TimeWindows(size_us=size, slide_us=slide, offset_us=offset)


def by_sql(text: str, columns: dict[str, list[int]]) -> list[Any]:
    """Evaluate a formula for each row, in a database whose remainders are Spark's."""
    database = sqlite3.connect(":memory:")
    database.create_function("pmod", 2, lambda a, n: ((a % n) + n) % n)
    names = ", ".join(columns)
    database.execute(f"CREATE TABLE t ({names})")
    marks = ", ".join("?" * len(columns))
    rows = zip(*columns.values(), strict=True)
    database.executemany(f"INSERT INTO t VALUES ({marks})", rows)
    # 64 bits are all that this database has.
    plain = text.replace("L)", ")").replace("L ", " ").removesuffix("L")
    found = database.execute(f"SELECT {plain} FROM t ORDER BY rowid")
    return [row[0] for row in found]


@given(
    st.builds(window, SIZES, SIZES, st.integers(-50, 50)),
    st.lists(TIMES | EDGES, min_size=1, max_size=20),
    st.none() | TIMES,
    st.integers(0, 30),
)
@example(window(10, 25, 3), list(range(-40, 40)), 20, 5)  # windows that are apart
def test_panes_are_late_by_one_rule(
    windows: TimeWindows, times: list[int], watermark: int | None, lateness: int
) -> None:
    closed_at = closed_at_us(watermark, lateness)

    one = [pane_lateness(windows, windows.pane_of(t), closed_at) for t in times]
    used, late = pane_lateness(windows, windows.pane_of(np.array(times)), closed_at)
    sql = pane_lateness(windows, windows.pane_of(SqlNumber("at")), closed_at)

    assert list(zip(used.tolist(), late.tolist(), strict=True)) == one
    columns = {"at": times}
    assert [tuple(map(bool, pair)) for pair in one] == [
        (bool(u), bool(w))
        for u, w in zip(*(by_sql(s.text, columns) for s in sql), strict=True)
    ]


@given(
    st.lists(st.tuples(TIMES | EDGES, st.integers(-2, 50)), min_size=1, max_size=20),
    st.none() | TIMES,
    st.integers(0, 30),
)
def test_sessions_are_late_by_one_rule(
    records: list[tuple[int, int]], watermark: int | None, lateness: int
) -> None:
    closed_at = closed_at_us(watermark, lateness)
    times, gaps = (list(column) for column in zip(*records, strict=True))

    one = [session_lateness(at, gap, closed_at) for at, gap in records]
    many = session_lateness(np.array(times), np.array(gaps), closed_at)
    sql = session_lateness(SqlNumber("at"), SqlNumber("gap"), closed_at)

    assert many.tolist() == one
    found = by_sql(sql.text, {"at": times, "gap": gaps})
    assert list(map(bool, found)) == one


def test_a_record_is_in_time_by_exactly_the_delay_and_the_lateness() -> None:
    hour = window(60, 60, 0)
    # The watermark is at 59: the window until 60 is over, to be corrected until 70.
    for lateness, watermark, expected in (
        (0, 58, False),
        (0, 59, True),
        (10, 68, False),
    ):
        closed_at = closed_at_us(watermark, lateness)
        assert pane_lateness(hour, hour.pane_of(30), closed_at) == (True, expected)
    assert pane_lateness(hour, hour.pane_of(30), closed_at_us(69, 10)) == (True, True)
