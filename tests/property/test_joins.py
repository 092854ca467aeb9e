"""Joins equal a nested loop over all that came in time, however it came."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from riverlock.core.times import from_micros
from riverlock.operators.joins.interval_join import IntervalJoin
from riverlock.operators.joins.keyed_join import Join, LatestJoin, Lookup
from riverlock.testing import harness

LEFT = "k string, at timestamp, l long, tags array<string>"
RIGHT = "at_right timestamp, r long, name string, extra struct<x:long,y:timestamp>"
Row = tuple[Any, ...]
# (key, seconds or None for no event time, number)
Event = tuple[str | None, int | None, int]


def instant(seconds: int) -> Any:
    return from_micros(0) + timedelta(seconds=seconds)


def left_row(event: Event) -> Row:
    key, seconds, number = event
    at = None if seconds is None else instant(seconds)
    return key, at, number, [f"t{number}"]


def right_row(event: Event) -> Row:
    key, seconds, number = event
    at = None if seconds is None else instant(seconds)
    return at, number, key, {"x": number, "y": at}


@dataclass(frozen=True)
class Arrivals:
    """Two inputs as they arrive, epoch by epoch, and how late records may be."""

    lefts: list[list[Event]]
    rights: list[list[Event]]
    delay: int
    # Behind another keyed operator, what that gives at the watermark is not late yet.
    follows_keyed: bool

    @property
    def watermarks(self) -> list[int | None]:
        """What is not over in each epoch, by what both inputs had reached before."""
        found: list[int | None] = []
        for epoch in range(len(self.lefts)):
            sides = [
                [t for part in side[:epoch] for _, t, _ in part if t is not None]
                for side in (self.lefts, self.rights)
            ]
            known = all(sides)
            found.append(min(map(max, sides)) - self.delay if known else None)
        return found

    @property
    def late_at(self) -> list[int | None]:
        """Before which time records of each epoch are late."""
        reached = self.watermarks
        return [None, *reached[:-1]] if self.follows_keyed else reached

    def in_time(self, side: list[list[Event]]) -> list[Event]:
        """The records of a side that are not late, in order of arrival."""
        return [
            event
            for part, reached in zip(side, self.late_at, strict=True)
            for event in part
            if event[1] is not None and (reached is None or event[1] >= reached)
        ]

    def late(self, side: list[list[Event]]) -> Counter[int]:
        everything = Counter(n for part in side for _, _, n in part)
        return everything - Counter(n for _, _, n in self.in_time(side))


@st.composite
def arrivals(draw: st.DrawFn, *, jitter: int | None = None) -> Arrivals:
    """Inputs in order of time, shaken; without ``jitter`` by the delay at most."""
    delay = draw(st.integers(1, 8))
    shake = st.integers(0, jitter if jitter is not None else delay)
    epochs = draw(st.integers(1, 6))
    times = st.integers(-3, 30)
    keys = st.sampled_from(["a", "b", None] if jitter is not None else ["a", "b"])
    sides = []
    for first in (0, 1_000):
        drawn = draw(st.lists(st.tuples(keys, times, shake), max_size=12))
        drawn.sort(key=lambda e: e[1] + e[2])
        events: list[Event] = [(k, t, first + n) for n, (k, t, _) in enumerate(drawn)]
        if jitter is not None and draw(st.booleans()):
            events.append((draw(keys), None, first + len(events)))
        cuts = st.lists(
            st.integers(0, len(events)), min_size=epochs - 1, max_size=epochs - 1
        )
        edges = [0, *sorted(draw(cuts)), len(events)]
        sides.append([events[a:b] for a, b in pairwise(edges)])
    return Arrivals(sides[0], sides[1], delay, draw(st.booleans()))


def run(process: Join, case: Arrivals) -> Any:
    """Run all epochs, then let time run out; returns the harness."""
    h = harness(
        process,
        key="k",
        input=LEFT,
        event_time="at",
        right=RIGHT,
        right_key="name",
        right_event_time="at_right",
        follows_keyed=case.follows_keyed,
    )
    for lefts, rights, reached in zip(
        case.lefts, case.rights, case.watermarks, strict=True
    ):
        if reached is not None:
            h.watermark = instant(reached) - timedelta(microseconds=1)
        with h.epoch():
            h.send(*map(left_row, lefts))
            h.send_right(*map(right_row, rights))
        check_buffers(h, process)
    h.advance_watermark(instant(10_000))
    return h


def check_buffers(h: Any, process: Join) -> None:
    """Nothing is kept for which no partner can come any more."""
    if h.watermark is None or not isinstance(process, IntervalJoin):
        return
    for side in (process._left, process._right):
        for key in "ab":
            for at in h.state(f"{side.name}_rows", key=key):
                assert from_micros(at + side.high_us) > h.watermark


def summary(rows: list[Row]) -> Counter[Any]:
    """Rows by the numbers of their records, after a look at all their columns."""
    found: Counter[Any] = Counter()
    for key, at, number, tags, *rest in rows:
        if number is not None:
            assert tags == [f"t{number}"]
        else:
            assert (at, tags) == (None, None)
        right = None
        if rest:
            at_right, right, extra = rest
            assert right is None or (extra.x, extra.y) == (right, at_right)
        found[(key, number, right)] += 1
    return found


def late(h: Any, side: str) -> Counter[int]:
    mine = [(x, y) for s, _, x, y in h.side("late") if s == side]
    return Counter(x.l if side == "left" else y.r for x, y in mine)


def nested_loop(
    lefts: list[Event], rights: list[Event], bounds: tuple[int, int], how: str
) -> Counter[Any]:
    lower, upper = bounds
    pairs = [
        (x, y)
        for x in lefts
        for y in rights
        if x[0] is not None and x[0] == y[0] and lower <= y[1] - x[1] <= upper  # type: ignore[operator]
    ]
    matched_left = {x for x, _ in pairs}
    matched_right = {y for _, y in pairs}
    rows = [(x[0], x[2], y[2]) for x, y in pairs]
    alone = [(x[0], x[2], None) for x in lefts if x not in matched_left]
    if how in ("semi", "anti"):
        rows = [(x[0], x[2], None) for x in lefts if x in matched_left]  # type: ignore[misc]
        return Counter(rows if how == "semi" else alone)
    if how in ("left", "full"):
        rows += alone  # type: ignore[arg-type]
    if how in ("right", "full"):
        rows += [(y[0], None, y[2]) for y in rights if y not in matched_right]  # type: ignore[misc]
    return Counter(rows)


BOUNDS = st.tuples(st.integers(-6, 6), st.integers(0, 8)).map(
    lambda b: (b[0], b[0] + b[1])
)
HOWS = IntervalJoin.kinds


def interval_join(how: str, bounds: tuple[int, int]) -> IntervalJoin:
    lower, upper = (timedelta(seconds=b) for b in bounds)
    return IntervalJoin(how, ("name",), (lower, upper))


@pytest.mark.parametrize("how", HOWS)
@given(case=arrivals(jitter=20), bounds=BOUNDS)
@settings(max_examples=30)
def test_interval_join_equals_a_nested_loop_over_what_came_in_time(
    how: str, case: Arrivals, bounds: tuple[int, int]
) -> None:
    h = run(interval_join(how, bounds), case)

    lefts, rights = case.in_time(case.lefts), case.in_time(case.rights)
    assert summary(h.output) == nested_loop(lefts, rights, bounds, how)
    assert late(h, "left") == case.late(case.lefts)
    assert late(h, "right") == case.late(case.rights)
    assert h.late_rows == len(h.side("late"))
    for name in ("left_rows", "left_times", "right_rows", "right_times"):
        assert all(h.state(name, key=k) == {} for k in ("a", "b", None))
    assert h.timers("a") == h.timers("b") == []


@given(how=st.sampled_from(HOWS), case=arrivals(), bounds=BOUNDS)
def test_interval_join_loses_nothing_that_is_shaken_by_the_delay_at_most(
    how: str, case: Arrivals, bounds: tuple[int, int]
) -> None:
    h = run(interval_join(how, bounds), case)

    lefts, rights = (
        [e for part in side for e in part] for side in (case.lefts, case.rights)
    )
    assert summary(h.output) == nested_loop(lefts, rights, bounds, how)
    assert h.side("late") == []


def newest(left: Event, rights: list[Event], valid: int) -> int | None:
    """The number of the right record that held at a left record's time."""
    key, at, _ = left
    held = [
        (t, place, n)
        for place, (k, t, n) in enumerate(rights)
        if key is not None and k == key and t <= at  # type: ignore[operator]
    ]
    since, _, number = max(held, default=(None, 0, None))
    return number if since is not None and at - since < valid else None  # type: ignore[operator]


@pytest.mark.parametrize("how", LatestJoin.kinds)
@given(case=arrivals(jitter=20), valid=st.none() | st.integers(1, 9))
def test_latest_join_equals_a_search_over_what_came_in_time(
    how: str, case: Arrivals, valid: int | None
) -> None:
    valid_for = None if valid is None else timedelta(seconds=valid)
    h = run(LatestJoin(how, ("name",), valid_for), case)

    lefts, rights = case.in_time(case.lefts), case.in_time(case.rights)
    found = [(x[0], x[2], newest(x, rights, valid or 1_000)) for x in lefts]
    expected = [r for r in found if how == "left" or r[2] is not None]
    assert summary(h.output) == Counter(expected)
    assert late(h, "left") == case.late(case.lefts)
    assert late(h, "right") == case.late(case.rights)
    assert h.late_rows == len(h.side("late"))
    for name in ("coming", "waiting"):  # only the newest version stays
        assert all(h.state(name, key=k) == {} for k in ("a", "b", None))
    assert valid is None or h.keys() == []
    assert h.timers("a") == h.timers("b") == []


@pytest.mark.parametrize("how", Lookup.kinds)
@given(case=arrivals(jitter=20))
def test_lookup_equals_a_dictionary(how: str, case: Arrivals) -> None:
    h = run(Lookup(how, ("name",)), case)

    expected: list[Row] = []
    table: dict[Any, int] = {}
    for lefts, rights in zip(case.lefts, case.rights, strict=True):
        table |= {k: n for k, _, n in rights if k is not None}
        expected += [(k, n, table.get(k)) for k, _, n in lefts]
    if how == "inner":
        expected = [r for r in expected if r[2] is not None]
    assert summary(h.output) == Counter(expected)
