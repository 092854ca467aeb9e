"""Records that come out of order within an allowed delay, in epochs of any size."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise

from hypothesis import strategies as st

from riverlock.testing.harness import Harness

T0 = datetime(2026, 1, 1, tzinfo=UTC)
DELAY = 7
Row = tuple[str, int, int, datetime]  # key, number, value, time
COLUMNS = "k string, n long, v long, at timestamp"


def second(number: int) -> datetime:
    return T0 + timedelta(seconds=number)


@st.composite
def arrivals(draw: st.DrawFn, values: int = 4) -> list[Row]:
    """Records in the order of arrival, none later than the delay allows."""
    drawn = draw(
        st.lists(
            st.tuples(
                st.sampled_from("ab"),
                st.integers(0, values - 1),
                st.integers(0, 40),
                st.integers(0, DELAY),
            ),
            max_size=30,
        )
    )
    # Who comes earlier is at most the delay younger.
    drawn.sort(key=lambda r: r[2] + r[3])
    return [(k, n, v, second(time)) for n, (k, v, time, _) in enumerate(drawn)]


def cuts(length: int) -> st.SearchStrategy[list[int]]:
    """Where epochs end."""
    return st.lists(st.integers(0, length), max_size=6).map(
        lambda inner: sorted({0, length, *inner})
    )


def drive(h: Harness, rows: list[Row], ends: list[int]) -> None:
    """Send rows in epochs; the watermark of each is that of the rows before it."""
    for begin, end in pairwise(ends):
        before = [row[3] for row in rows[:begin]]
        if before:
            h.watermark = max(before) - timedelta(seconds=DELAY, microseconds=1)
        h.send(*rows[begin:end])
