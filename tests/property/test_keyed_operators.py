"""Keyed operators against plain loops, for any input, order and epochs."""

from __future__ import annotations

from datetime import timedelta
from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.property.arrivals import COLUMNS, DELAY, Row, arrivals, cuts, drive, second

from riverlock.core.types import schema_of
from riverlock.operators.by_key.deduplicate import Deduplicate
from riverlock.operators.by_key.top import Ranking, Top
from riverlock.program.time_basis import Timing
from riverlock.testing.harness import Harness, harness

SCHEMA = schema_of(COLUMNS)
KEYS = schema_of("k string")
END = second(1_000)


def started(process: Any) -> Harness:
    bound = process.bound(KEYS, SCHEMA)
    return harness(bound, key="k", input=SCHEMA, event_time="at")


def first_of_each(rows: list[Row], within: timedelta) -> list[Row]:
    """Keep what is far from all that was kept, remembering everything for ever."""
    kept: list[Row] = []
    for row in rows:
        if all(o[0] != row[0] or abs(o[3] - row[3]) >= within for o in kept):
            kept.append(row)
    return kept


@given(st.data(), arrivals(), st.integers(1, 20))
def test_deduplicate_equals_a_loop_that_forgets_nothing(
    data: st.DataObject, rows: list[Row], seconds: int
) -> None:
    within = timedelta(seconds=seconds)
    h = started(Deduplicate(within, Timing(has_event_time=True)))

    drive(h, rows, data.draw(cuts(len(rows))))

    assert sorted(h.output) == sorted(first_of_each(rows, within))
    assert h.side("late") == []
    if h.watermark is not None:
        oldest = h.watermark - within
        left = [t for key in "ab" for t in h.state("kept", key=key) or ()]
        assert all(t > oldest for t in left)
    h.advance_watermark(END)
    assert h.keys() == []


@given(st.data(), arrivals(), st.integers(1, 20))
def test_deduplicate_of_records_in_order_keeps_what_the_first_kept_one_leaves(
    data: st.DataObject, rows: list[Row], seconds: int
) -> None:
    rows.sort(key=lambda r: r[3])
    within = timedelta(seconds=seconds)
    h = started(Deduplicate(within, Timing(has_event_time=True)))

    drive(h, rows, data.draw(cuts(len(rows))))

    last: dict[str, Any] = {}
    expected = []
    for row in rows:
        if row[0] not in last or row[3] - last[row[0]] >= within:
            last[row[0]] = row[3]
            expected.append(row)
    assert sorted(h.output) == sorted(expected)


@given(st.data(), st.lists(st.tuples(st.integers(0, 40), st.integers(0, 60))))
def test_deduplicate_never_keeps_close_records_that_are_not_late(
    data: st.DataObject, drawn: list[tuple[int, int]]
) -> None:
    """Any order at all: what is later than the delay allows is told apart."""
    rows = [("a", n, 0, second(at)) for n, (at, _) in enumerate(drawn)]
    within = timedelta(seconds=10)
    h = started(Deduplicate(within, Timing(has_event_time=True)))

    drive(h, rows, data.draw(cuts(len(rows))))

    times = sorted(row[3] for row in h.output)
    assert all(b - a >= within for a, b in pairwise(times))
    newest = second(-1_000)
    for row in rows:
        newest = max(newest, row[3])
        if row in h.side("late"):
            assert row[3] < newest - timedelta(seconds=DELAY)


@given(st.data(), arrivals(), st.integers(1, 4), st.booleans())
def test_top_upserted_by_rank_equals_sorting_all_records(
    data: st.DataObject, rows: list[Row], n: int, descending: bool
) -> None:
    h = started(Top(Ranking(n, "v", descending=descending)))
    table: dict[tuple[str, int], Row] = {}
    for begin, end in pairwise(data.draw(cuts(len(rows)))):
        changed = h.send(*rows[begin:end])

        # Sorting is stable: the earlier record wins.
        places = {(row[0], row[4]): row[:4] for row in changed}
        assert len(places) == len(changed)
        assert all(table.get(place) != row for place, row in places.items())
        table |= places
        seen: dict[tuple[str, int], Row] = {}
        for key in "ab":
            mine = [row for row in rows[:end] if row[0] == key]
            mine.sort(key=lambda r: -r[2] if descending else r[2])
            seen |= {(key, rank): row for rank, row in enumerate(mine[:n], 1)}
        assert table == seen
