"""Functions over windows against a model that keeps every record."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from riverlock.core.times import END_US, from_micros, micros
from riverlock.core.types import schema_of
from riverlock.flow.ranking import Ranking
from riverlock.flow.sliding_reduce import SlidingReduce
from riverlock.flow.window_functions import WindowApply, WindowFunction, WindowReduce
from riverlock.flow.window_top import WindowTop
from riverlock.flow.windows import TimeWindows
from riverlock.testing import harness
from riverlock.testing.harness import Harness

COLUMNS = schema_of("k string, at timestamp, v long")
OUTPUT = "k string, start timestamp, end timestamp, n long, total long"
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


def operator(process: WindowFunction) -> Harness:
    bound = process.bound(schema_of("k string"), COLUMNS)
    return harness(bound, key="k", input=COLUMNS, event_time="at")


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

    def epoch(self, records: list[Record], watermark: int | None) -> Counter[Any]:
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
        return Counter(
            (k, e - self.window.size_us, e, *self.result(every[(k, e)]))
            for k, e in given_now
        )


def run(
    h: Harness, model: Model, epochs: list[list[Record]], shown: Any
) -> list[tuple[Counter[Any], Counter[Any]]]:
    found = []
    watermark: int | None = None
    for records in [*epochs, []]:
        if not records:
            watermark = END_US
        before = len(h.output)
        with h.epoch():
            if watermark is not None:
                h.watermark = from_micros(watermark)
            h.send(*rows(records))
        found.append((shown(h.output[before:]), model.epoch(records, watermark)))
        if records:
            newest = max(t for _, t, _ in records) - DELAY - 1
            watermark = newest if watermark is None else max(newest, watermark)
    return found


@settings(max_examples=100)
@given(WINDOWS, st.sampled_from([0, 10, 25]), EPOCHS)
def test_apply_gets_all_records_of_each_window(
    window: TimeWindows, lateness: int, epochs: list[list[Record]]
) -> None:
    h = operator(WindowApply(total, OUTPUT, window, lateness))

    def shown(made: list[Any]) -> Counter[Any]:
        return Counter((k, micros(s), micros(e), n, v) for k, s, e, n, v in made)

    for found, expected in run(h, Model(window, lateness), epochs, shown):
        assert found == expected
    for key in "ab":
        assert h.state("chunks", key=key) == {}
        assert h.timers(key) == []


@settings(max_examples=60)
@given(WINDOWS, st.sampled_from([0, 10]), EPOCHS, st.integers(1, 3))
def test_top_is_the_best_of_all_records_of_each_window(
    window: TimeWindows, lateness: int, epochs: list[list[Record]], n: int
) -> None:
    h = operator(WindowTop(Ranking(n, "v", descending=True), window, lateness))
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
@given(WINDOWS, st.sampled_from([0, 10]), EPOCHS)
def test_reduce_folds_panes(
    window: TimeWindows, lateness: int, epochs: list[list[Record]]
) -> None:
    h = operator(WindowReduce(added, window, lateness))

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
)
def test_an_inverse_makes_no_difference(
    sizes: tuple[int, int], lateness: int, epochs: list[list[Record]]
) -> None:
    window = TimeWindows(size_us=sizes[0], slide_us=sizes[1])
    h = operator(SlidingReduce(added, less, window, lateness))

    def shown(made: list[Any]) -> Counter[Any]:
        return Counter((k, micros(s), micros(e), v) for k, _, v, s, e in made)

    for found, expected in run(h, Model(window, lateness), epochs, shown):
        assert found == Counter((k, s, e, v) for k, s, e, _, v in expected)
    for key in "ab":
        assert h.state("folded", key=key) == {}
        assert h.state("common", key=key) is None
        assert h.state("last", key=key) is None


def test_an_inverse_saves_calls() -> None:
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
    h = operator(process)

    # One record per pane, one pane per epoch: the watermark follows at once.
    for n in range(30):
        h.watermark = from_micros(10 * n)
        h.send(*rows([("a", 10 * n + 5, n)]))
    h.advance_watermark(from_micros(300))

    assert [v for *_, v, _, _ in h.output] == [
        sum(range(max(0, n - 9), n + 1)) for n in range(30)
    ]
    # Two for each window, not nine.
    assert calls["added"] < 40
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
