"""Functions over windows against a model that keeps every record."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from riverlock.core.errors import UserCodeError
from riverlock.core.times import END_US, from_micros, micros
from riverlock.core.types import schema_of
from riverlock.operators.by_key.top import Ranking
from riverlock.operators.windows.sliding_reduce import SlidingReduce
from riverlock.operators.windows.window_functions import (
    WindowApply,
    WindowFunction,
    WindowReduce,
)
from riverlock.operators.windows.window_top import WindowTop
from riverlock.program.windows import TimeWindows
from riverlock.testing import harness
from riverlock.testing.harness import Harness

COLUMNS = schema_of("k string, at timestamp, v long")
SPAN = "window_start timestamp, window_end timestamp"
OUTPUT = f"k string, {SPAN}, n long, total long"
DELAY = 15
Record = tuple[str, int, int]
WINDOWS = st.builds(
    TimeWindows,
    size_us=st.sampled_from([10, 20, 30, 45]),
    slide_us=st.sampled_from([10, 20, 30]),
    offset_us=st.sampled_from([0, 7]),
)
RECORDS = st.tuples(
    st.sampled_from("ab"),
    st.integers(-6, 20).map(lambda n: n * 5) | st.integers(-30, 100),
    st.integers(0, 9),
)
EPOCHS = st.lists(st.lists(RECORDS, min_size=1, max_size=6), min_size=1, max_size=8)


def total(key: str, window: Any, records: list[Any]) -> list[Any]:
    assert all(window.start <= r.at < window.end for r in records)
    return [(key, *window, len(records), sum(r.v for r in records))]


def added(old: Any, new: Any) -> Any:
    return {"k": old.k, "at": max(old.at, new.at), "v": old.v + new.v}


def less(whole: Any, part: Any) -> Any:
    return {"k": whole.k, "at": whole.at, "v": whole.v - part.v}


def operator(process: WindowFunction, *, updates: bool = False) -> Harness:
    bound = process.bound(schema_of("k string"), COLUMNS)
    return harness(bound, key="k", input=COLUMNS, event_time="at", updates=updates)


def rows(records: list[Record]) -> list[Any]:
    return [(k, from_micros(t), v) for k, t, v in records]


class Model:
    """Every record, and which windows are given when."""

    def __init__(
        self,
        window: TimeWindows,
        lateness: int,
        result: Callable[[list[int]], Iterable[int]] = lambda vs: (len(vs), sum(vs)),
    ) -> None:
        self.window, self.lateness, self.result = window, lateness, result
        self.records: list[Record] = []
        self.previous = -(1 << 60)

    def ends(self, t: int) -> range:
        w = self.window
        first = t + 1 + (w.phase_us - t - 1) % w.slide_us
        return range(first, t + w.size_us + 1, w.slide_us)

    def epoch(
        self, records: list[Record], watermark: int | None
    ) -> tuple[Counter[Any], Counter[Any]]:
        """Return the windows that are given in an epoch, and those that changed."""
        # A window is over when its last instant is.
        reached = -(1 << 60) if watermark is None else watermark + 1
        touched = set()
        for k, t, v in records:
            ends = list(self.ends(t))
            if ends and ends[-1] + self.lateness > reached:
                self.records.append((k, t, v))
                touched |= {(k, e) for e in ends if e + self.lateness > reached}
        every: dict[Any, list[int]] = defaultdict(list)
        for k, t, v in self.records:
            for end in self.ends(t):
                every[(k, end)].append(v)
        given_now = {w for w in every if self.previous < w[1] <= reached}
        given_now |= {w for w in touched if w[1] <= reached}
        self.previous = reached
        return self._rows(given_now, every), self._rows(touched, every)

    def _rows(self, windows: Iterable[Any], every: dict[Any, list[int]]) -> Any:
        return Counter(
            (k, e - self.window.size_us, e, *self.result(every[(k, e)]))
            for k, e in windows
        )


def run(
    h: Harness, model: Model, epochs: list[list[Record]], shown: Any
) -> list[tuple[Counter[Any], Counter[Any]]]:
    found = []
    watermark: int | None = None
    for records in [*epochs, []]:
        if not records:
            watermark = END_US
        h.clear_output()
        with h.epoch():
            if watermark is not None:
                h.watermark = from_micros(watermark)
            h.send(*rows(records))
        ended, changed = model.epoch(records, watermark)
        found.append((shown(h.output), ended))
        if "updates" in h.outputs:
            found.append((shown(h.side("updates")), changed))
        if records:
            newest = max(t for _, t, _ in records) - DELAY - 1
            watermark = newest if watermark is None else max(newest, watermark)
    return found


@settings(max_examples=100)
@given(WINDOWS, st.sampled_from([0, 10, 25]), EPOCHS, st.booleans())
def test_apply_gets_all_records_of_each_window(
    window: TimeWindows, lateness: int, epochs: list[list[Record]], updates: bool
) -> None:
    h = operator(WindowApply(total, OUTPUT, window, lateness), updates=updates)

    def shown(made: list[Any]) -> Counter[Any]:
        return Counter((k, micros(s), micros(e), n, v) for k, s, e, n, v in made)

    for found, expected in run(h, Model(window, lateness), epochs, shown):
        assert found == expected
    for key in "ab":
        assert h.state("chunks", key=key) == {}
        assert h.timers(key) == []


@settings(max_examples=60)
@given(WINDOWS, st.sampled_from([0, 10]), EPOCHS, st.integers(1, 3), st.booleans())
def test_top_is_the_best_of_all_records_of_each_window(
    window: TimeWindows,
    lateness: int,
    epochs: list[list[Record]],
    n: int,
    updates: bool,
) -> None:
    process = WindowTop(Ranking(n, "v", descending=True), window, lateness)
    h = operator(process, updates=updates)
    model = Model(window, lateness, lambda vs: sorted(vs, reverse=True)[:n])

    def shown(made: list[Any]) -> Counter[Any]:
        best: dict[Any, list[int]] = defaultdict(list)
        for k, at, v, rank, start, end in made:
            assert start <= at < end
            best[(k, micros(start), micros(end))].append(v)
            assert rank == len(best[(k, micros(start), micros(end))])
        return Counter((*of, *values) for of, values in best.items())

    for found, expected in run(h, model, epochs, shown):
        assert found == expected
    assert h.state("best", key="a") == h.state("best", key="b") == {}


@settings(max_examples=60)
@given(WINDOWS, st.sampled_from([0, 10]), EPOCHS, st.booleans())
def test_reduce_folds_panes(
    window: TimeWindows, lateness: int, epochs: list[list[Record]], updates: bool
) -> None:
    h = operator(WindowReduce(added, window, lateness), updates=updates)

    def shown(made: list[Any]) -> Counter[Any]:
        return Counter((k, micros(s), micros(e), v) for k, _, v, s, e in made)

    for found, expected in run(h, Model(window, lateness), epochs, shown):
        assert found == Counter((k, s, e, v) for k, s, e, _, v in expected)
    for key in "ab":
        assert h.state("folded", key=key) == {}


@settings(max_examples=40)
@given(
    st.sampled_from([(60, 10), (45, 10), (50, 20)]),
    st.sampled_from([0, 10, 25]),
    EPOCHS,
    st.booleans(),
)
def test_an_inverse_makes_no_difference(
    sizes: tuple[int, int], lateness: int, epochs: list[list[Record]], updates: bool
) -> None:
    window = TimeWindows(size_us=sizes[0], slide_us=sizes[1])
    h = operator(SlidingReduce(added, less, window, lateness), updates=updates)

    def shown(made: list[Any]) -> Counter[Any]:
        return Counter((k, micros(s), micros(e), v) for k, _, v, s, e in made)

    for found, expected in run(h, Model(window, lateness), epochs, shown):
        assert found == Counter((k, s, e, v) for k, s, e, _, v in expected)
    for key in "ab":
        assert h.state("folded", key=key) == {}
        assert h.state("common", key=key) is None
        assert h.state("last", key=key) is None


@pytest.mark.parametrize("updates", [False, True])
def test_an_inverse_saves_calls(updates: bool) -> None:
    calls = Counter[str]()

    def counted(name: str, function: Any) -> Any:
        def call(a: Any, b: Any) -> Any:
            calls[name] += 1
            return function(a, b)

        return call

    window = TimeWindows(size_us=100, slide_us=10)
    process = SlidingReduce(
        counted("added", added), counted("less", less), window, lateness_us=0
    )
    h = operator(process, updates=updates)

    # One record per pane, one pane per epoch: the watermark follows at once.
    for n in range(30):
        h.watermark = from_micros(10 * n)
        h.send(*rows([("a", 10 * n + 5, n)]))
    h.advance_watermark(from_micros(300))

    assert [v for *_, v, _, _ in h.output] == [
        sum(range(max(0, n - 9), n + 1)) for n in range(30)
    ]
    # Two for each window, not nine; windows that are not over are folded as they are.
    assert updates or calls["added"] < 40
    assert calls["less"] == 21


def test_a_window_whose_function_raises_is_a_dead_letter() -> None:
    def odd(key: str, window: Any, records: list[Any]) -> list[Any]:
        return [(key, *window, len(records), 1 // (len(records) - 1))]

    window = TimeWindows(size_us=20, slide_us=10)
    h = harness(
        WindowApply(odd, OUTPUT, window, 0),
        key="k",
        input=COLUMNS,
        event_time="at",
        on_error="dead_letter",
    )
    h.send(*rows([("a", 0, 1), ("a", 10, 2), ("b", 0, 3)]))
    h.advance_watermark(from_micros(END_US))

    assert [(row[0], micros(row[2])) for row in h.output] == [("a", 20)]
    assert Counter(letter["key"] for letter in h.dead_letters) == {"'a'": 2, "'b'": 2}
    assert "ZeroDivisionError" in h.dead_letters[0]["error"]
    for key in "ab":
        assert h.state("chunks", key=key) == {}
        assert h.timers(key) == []


def test_a_function_that_is_updated_is_called_once_for_a_window() -> None:
    calls: list[int] = []

    def noted(key: str, window: Any, records: list[Any]) -> list[Any]:
        calls.append(micros(window.end))
        return total(key, window, records)

    window = TimeWindows(size_us=20, slide_us=10)
    h = operator(WindowApply(noted, OUTPUT, window, 100), updates=True)
    h.send(*rows([("a", 5, 1)]))
    h.watermark = from_micros(9)  # the first window is over
    h.send(*rows([("a", 6, 1)]))

    assert calls == [10, 20, 10, 20]
    assert len(h.output) == 1
    assert len(h.side("updates")) == 4


def renamed(old: Any, new: Any) -> Any:
    return {**added(old, new), "k": "other"}


def shifted(key: str, window: Any, records: list[Any]) -> list[Any]:
    return [(key, window.end, window.end, 0, 0)]


def of_each(key: str, window: Any, records: list[Any]) -> list[Any]:
    return [(key, *window, 1, r.v) for r in records]


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (renamed, "expected k='a', found 'other'"),
        (shifted, "expected window_start="),
        (of_each, "one row of each window.*found 2"),
    ],
)
def test_a_row_that_could_replace_another_is_refused(
    function: Any, message: str
) -> None:
    window = TimeWindows(size_us=20, slide_us=20)

    def made(on_error: Any) -> Harness:
        process: WindowFunction = WindowApply(function, OUTPUT, window, 0)
        if function is renamed:
            process = WindowReduce(function, window, 0)
        columns: dict[str, Any] = {"key": "k", "input": COLUMNS, "event_time": "at"}
        return harness(process, **columns, on_error=on_error, updates=True)

    sent = rows([("a", 5, 1), ("a", 6, 1)])
    with pytest.raises(UserCodeError, match=message):
        made("fail").send(*sent)
    h = made("dead_letter")
    h.send(*sent)

    assert h.side("updates") == []
    (letter,) = h.dead_letters
    assert re.search(message, letter["error"])


def test_a_key_that_is_not_a_number_is_kept() -> None:
    columns = "k double, at timestamp, v long"
    process = WindowReduce(added, TimeWindows(size_us=20, slide_us=20), 0)
    h = harness(process, key="k", input=columns, event_time="at", updates=True)

    h.send((math.nan, from_micros(5), 1), (math.nan, from_micros(6), 1))

    (row,) = h.side("updates")
    assert math.isnan(row[0])
    assert row[2] == 2
