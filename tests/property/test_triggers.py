"""Windows with triggers against a model that keeps every record."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import riverlock as rl
from riverlock.core.errors import InvalidConfigError, InvalidFlowError
from riverlock.core.times import END_US, from_micros, micros
from riverlock.core.types import schema_of
from riverlock.operators.windows.window_contents import Fold, Kept
from riverlock.operators.windows.window_operator import Gathering
from riverlock.program.triggers import Trigger
from riverlock.program.windows import GlobalWindow, SessionWindows, TimeWindows, Windows
from riverlock.testing import harness, run_local
from riverlock.testing.harness import Harness

COLUMNS = schema_of("k string, at timestamp, v long")
OUTPUT = (
    "k string, window_start timestamp, window_end timestamp, firing string,"
    " values array<bigint>"
)
DELAY, GAP, EVERY = 15, 10, 5
Record = tuple[str, int, int]
RECORDS = st.tuples(
    st.sampled_from("ab"), st.integers(0, 20).map(lambda n: n * 5), st.integers(0, 9)
)


def listed(key: str, window: Any, records: list[Any]) -> list[Any]:
    return [(key, *window, [r.v for r in records])]


def operator(window: Windows, *, updates: bool = False, **options: Any) -> Harness:
    kept = Kept(listed, OUTPUT, by_time=isinstance(window, SessionWindows))
    process = Gathering(window=window, **options).operator(kept)
    return harness(process, key="k", input=COLUMNS, event_time="at", updates=updates)


def rows(records: list[Record]) -> list[Any]:
    return [(k, from_micros(t), v) for k, t, v in records]


def shown(made: list[Any]) -> Counter[Any]:
    return Counter(
        (k, begin and micros(begin), end and micros(end), why, tuple(values))
        for k, begin, end, why, values in made
    )


def newest(firings: Counter[Any]) -> Counter[Any]:
    """Return the last firing of each window, which has the most records."""
    ordered = sorted(firings, key=lambda row: len(row[-1]))
    return Counter({row[:3]: row for row in ordered}.values())


@dataclass
class Seen:
    """All records of a window, and how many had been given."""

    values: list[int] = field(default_factory=list)
    given: int = 0
    is_over: bool = False
    since: int | None = None  # when the first came that was not given, by the clock


@dataclass
class Model:
    window: TimeWindows
    lateness: int
    trigger: Trigger
    accumulates: bool
    windows: dict[Any, Seen] = field(default_factory=lambda: defaultdict(Seen))
    found: Counter[Any] = field(default_factory=Counter)

    def epoch(self, records: list[Record], mark: int, now: int) -> Counter[Any]:
        self.found = Counter[Any]()
        for at, seen in self.windows.items():
            if at[1] <= mark and not seen.is_over:
                seen.is_over = True
                self.give(at, "on time")
        for k, t, v in records:
            for end in self.ends(t):
                if end + self.lateness > mark:
                    self.add((k, end), v, mark, now)
        for at, seen in self.windows.items():
            if seen.since is None:
                continue
            if seen.is_over:
                self.give(at, "late")
            elif self.trigger.every_us and seen.since + EVERY <= now:
                self.give(at, "early")
        return self.found

    def ends(self, t: int) -> range:
        w = self.window
        first = t + 1 + (w.phase_us - t - 1) % w.slide_us
        return range(first, t + w.size_us + 1, w.slide_us)

    def add(self, at: Any, value: int, mark: int, now: int) -> None:
        seen = self.windows[at]
        seen.is_over = at[1] <= mark
        seen.values.append(value)
        if seen.since is None:
            seen.since = now
        fresh = len(seen.values) - seen.given
        if fresh == self.trigger.count and not seen.is_over:
            self.give(at, "early")

    def give(self, at: Any, why: str) -> None:
        seen = self.windows[at]
        values = tuple(seen.values[0 if self.accumulates else seen.given :])
        seen.given, seen.since = len(seen.values), None
        if values:
            self.found[at[0], at[1] - self.window.size_us, at[1], why, values] += 1


@settings(max_examples=40)
@given(
    st.sampled_from([(20, 20), (30, 10), (20, 30)]),
    st.sampled_from([0, 10, 25]),
    st.sampled_from([(2, None), (None, EVERY), (3, EVERY), (None, None)]),
    st.booleans(),
    st.lists(
        st.tuples(st.lists(RECORDS, max_size=6), st.integers(0, 7)),
        min_size=1,
        max_size=8,
    ),
)
def test_triggers_give_windows_early_on_time_and_late(
    sizes: tuple[int, int],
    lateness: int,
    when: tuple[int | None, int | None],
    accumulates: bool,
    epochs: list[tuple[list[Record], int]],
) -> None:
    window = TimeWindows(size_us=sizes[0], slide_us=sizes[1])
    trigger = Trigger(count=when[0], every_us=when[1])
    model = Model(window, lateness, trigger, accumulates)
    h = operator(
        window,
        lateness_us=lateness,
        trigger=trigger,
        accumulates=accumulates,
        updates=accumulates,
    )
    mark = -(1 << 40)
    for records, later in [*epochs, ([], 0)]:
        is_last = not records and later == 0
        mark = END_US if is_last else mark
        h.watermark = from_micros(mark)
        h.clock.set_us(h.clock.now_us() + later)
        before = {name: len(h.side(name)) for name in h.outputs}
        with h.epoch():
            h.send(*rows(records))
        # A window is over when its last instant is.
        expected = model.epoch(records, mark + 1, h.clock.now_us())
        assert shown(h.output[before["main"] :]) == expected
        if accumulates:
            found = h.side("updates")[before["updates"] :]
            assert shown(found) == newest(expected)
        mark = max([mark, *(t - DELAY - 1 for _, t, _ in records)])
        if is_last:
            break
    if lateness == 0:
        for key in "ab":
            assert h.state("windows", key=key) is None
            assert h.state("chunks", key=key) == {}
            assert h.timers(key) == h.timers(key, processing=True) == []


KINDS = st.sampled_from(
    [
        TimeWindows(size_us=20, slide_us=20),
        SessionWindows(gap_us=GAP),
        GlobalWindow(),
    ]
)


@settings(max_examples=25)
@given(
    KINDS,
    st.integers(1, 4),
    st.lists(RECORDS, max_size=25),
    st.randoms(use_true_random=False),
    st.booleans(),
)
def test_counting_triggers_do_not_depend_on_splits_and_lose_nothing(
    window: Windows, count: int, drawn: list[Record], chance: Any, accumulates: bool
) -> None:
    arrived = sorted(drawn, key=lambda r: r[1] + chance.randint(0, DELAY))
    records = [(k, t, n) for n, (k, t, _) in enumerate(arrived)]
    trigger = Trigger(count=count)

    def run(cuts: list[int]) -> Counter[Any]:
        h = operator(window, trigger=trigger, accumulates=accumulates)
        newest = -(1 << 40)
        for begin, end in pairwise(cuts):
            h.send(*rows(records[begin:end]))
            newest = max([newest, *(t for _, t, _ in records[begin:end])])
            h.watermark = from_micros(newest - DELAY - 1)
        h.advance_watermark(from_micros(END_US))
        for key in "ab":
            assert h.state("windows", key=key) is None
            assert h.state("chunks", key=key) == {}
        return shown(h.output)

    inner = {chance.randrange(len(records) + 1) for _ in range(4)}
    whole = run([0, len(records)])
    assert run(sorted({0, len(records), *inner})) == whole

    # Each record once: in the last firing of its window, or in one that discards.
    ways = [way for way in whole if not accumulates or way[3] == "on time"]
    given_once = Counter(n for way in ways for n in way[4])
    assert given_once == Counter(n for _, _, n in records)
    assert all(m == 1 for m in whole.values())
    assert all(len(w[4]) % count == 0 for w in whole if w[3] == "early") or (
        isinstance(window, SessionWindows)  # two that become one have more
    )


def test_a_fold_over_all_records_is_given_by_the_clock_and_at_the_end() -> None:
    added = Fold(lambda old, new: {"k": old.k, "at": old.at, "v": old.v + new.v})
    windows = Gathering(window=rl.global_window(), trigger=rl.early(every="1 minute"))
    h = harness(windows.operator(added), key="k", input=COLUMNS)
    start = from_micros(0)
    assert h.send(("a", start, 1), ("b", start, 10), ("a", start, 2)) == []
    h.advance_clock("59 seconds")
    assert h.output == []
    h.advance_clock("1 second")
    assert h.output == [("a", start, 3, "early"), ("b", start, 10, "early")]
    assert h.timers("a", processing=True) == []

    # Nothing came since: time alone gives nothing.
    h.advance_clock("1 hour")
    assert len(h.output) == 2
    h.send(("a", start, 4))
    h.advance_watermark(from_micros(END_US))
    assert h.output[2:] == [("a", start, 7, "on time"), ("b", start, 10, "on time")]


def source(*, bounded: bool) -> Any:
    return rl.sources.files("in", format="json", schema=COLUMNS, bounded=bounded)


def test_a_global_window_is_given_at_the_end_of_the_input() -> None:
    flow = rl.Flow("all")
    keyed = flow.read(source(bounded=True)).key_by("k")
    counted = "k string, n long"
    keyed.window(rl.global_window()).apply(
        lambda key, _, records: [(key, len(records))], counted, uid="n"
    ).write(rl.sinks.memory())
    sent = rows([("a", 1, 1), ("b", 2, 2), ("a", 3, 3)])

    for size in (1, 2, 3):
        assert run_local(flow, sent, epoch_rows=size).rows() == [("a", 2), ("b", 1)]


def test_what_cannot_be_triggered_is_refused() -> None:
    keyed = rl.Flow("refused").read(source(bounded=False)).key_by("k")
    with pytest.raises(InvalidFlowError, match="never emit"):
        keyed.window(rl.global_window(), accumulate=False)
    with pytest.raises(InvalidFlowError, match="emit more than once"):
        keyed.window(rl.count_windows(3), trigger=rl.early(count=2))
    with pytest.raises(InvalidFlowError, match=r"rl\.early"):
        keyed.window(rl.tumbling("1 hour"), trigger="early")  # type: ignore[arg-type]
    for wrong in ({}, {"count": 0}, {"every": "0 seconds"}):
        with pytest.raises(InvalidConfigError):
            rl.early(**wrong)
