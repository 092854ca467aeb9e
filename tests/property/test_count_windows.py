"""Count windows against lists of all records."""

from __future__ import annotations

from collections.abc import Iterable
from math import gcd
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import riverlock as rl
from riverlock.core.errors import InvalidConfigError, InvalidFlowError
from riverlock.core.times import END_US, from_micros, micros
from riverlock.core.types import Type, schema_of
from riverlock.operators.aggregates.partial import (
    Merge,
    PartialAggregate,
    PythonAggregate,
)
from riverlock.operators.base import BuiltIn
from riverlock.operators.windows.count_windows import Counted
from riverlock.operators.windows.window_contents import Aggregates, Content, Fold, Kept
from riverlock.operators.windows.window_operator import Gathering
from riverlock.program.triggers import Trigger
from riverlock.program.windows import TimeWindows
from riverlock.testing import harness, run_local
from riverlock.testing.harness import Harness

LONG = Type("long")
COLUMNS = schema_of("k string, v long")
TOTAL = PartialAggregate(
    type=LONG, merges=(Merge(columns={"v": LONG}, how="sum"),), result="same"
)
OUTPUT = "k string, first long, last long, values array<bigint>"


def listed(key: Any, window: Any, records: list[Any]) -> list[Any]:
    return [(key, window.first, window.last, [r.v for r in records])]


def added(old: Any, new: Any) -> Any:
    return {"k": old.k, "v": old.v + new.v}


def batch(values: list[int], size: int, slide: int, key: Any) -> list[Any]:
    """Return the windows of a key, from a list of all its records."""
    found = []
    for end in range(slide, len(values) + slide, slide):
        first, last = max(end - size + 1, 1), min(end, len(values))
        if first <= last:
            found.append((key, first, last, values[first - 1 : last]))
    return found


@settings(max_examples=25)
@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 9)), max_size=30),
    st.integers(1, 6),
    st.integers(1, 6),
    st.lists(st.integers(1, 7), max_size=8),
    st.booleans(),
)
def test_count_windows_are_those_of_a_batch(
    records: list[Any], size: int, slide: int, epochs: list[int], is_keyed: bool
) -> None:
    window = rl.count_windows(size, slide)

    def operator(content: Content) -> Harness:
        keys = ["k"] if is_keyed else []
        return harness(Counted(content, window), key=keys, input=COLUMNS)

    applied = operator(Kept(listed, OUTPUT, by_time=False))
    reduced, summed = operator(Fold(added)), operator(Aggregates({"v": TOTAL}))
    for h in (applied, reduced, summed):
        left = records
        for count in epochs:
            h.send(*left[:count])
            left = left[count:]
        h.send(*left)
        for key in "ab" if is_keyed else [None]:
            # No more than the next window needs.
            assert len(h.state("panes", key=key) or ()) <= size // gcd(size, slide)
        h.advance_watermark(from_micros(END_US))

    keys: list[Any] = ["a", "b"] if is_keyed else [None]
    expected = [
        row
        for key in keys
        for row in batch([v for k, v in records if key in (k, None)], size, slide, key)
    ]
    assert sorted(applied.output, key=repr) == sorted(expected, key=repr)
    totals = sorted((first, last, sum(v)) for _, first, last, v in expected)
    assert sorted(row[-3:] for row in summed.output) == totals
    assert sorted((*row[-2:], row[1]) for row in reduced.output) == totals
    for key in keys:
        assert applied.state("chunks", key=key) == {}
        assert summed.state("panes", key=key) is None
        assert summed.timers(key) == []


class Listed(PythonAggregate):
    """Changes an accumulator that is merged, as users may."""

    collects = LONG
    kept = Type("array", element=LONG)

    def fold(self, values: Iterable[Any]) -> list[Any]:
        return list(values)

    def merge(self, a: Any, b: Any) -> Any:
        a.extend(b)
        return a

    def result(self, kept: Any) -> Any:
        return kept


@pytest.mark.parametrize("splits", [(4,), (2, 2), (1, 1, 1, 1)])
def test_an_accumulator_that_is_changed_does_not_spoil_other_windows(
    splits: tuple[int, ...],
) -> None:
    lists = Listed()
    merge = Merge(columns={"v": lists.kept}, how=lists)
    listed = PartialAggregate(type=lists.kept, merges=(merge,), result=lists)
    columns = schema_of("k string, at timestamp, v array<bigint>")
    sent = [("a", from_micros(n), [n]) for n in range(4)]

    def run(process: BuiltIn, **options: Any) -> list[Any]:
        h = harness(process, key="k", input=columns, **options)
        left = sent
        for count in splits:
            h.send(*left[:count])
            left = left[count:]
        h.advance_watermark(from_micros(END_US))
        return [row[-1] for row in h.output]

    counted = Counted(Aggregates({"v": listed}), rl.count_windows(3, 1))
    assert run(counted) == [[0], [0, 1], [0, 1, 2], [1, 2, 3]]
    window = TimeWindows(size_us=4, slide_us=2)
    early = Gathering(window=window, trigger=Trigger(count=100))
    triggered = early.operator(Aggregates({"v": listed}))
    assert run(triggered, event_time="at") == [[0, 1], [0, 1, 2, 3], [2, 3]]


def test_count_windows_need_no_event_time() -> None:
    flow = rl.Flow("counts")
    source = rl.sources.files("in", format="json", schema=COLUMNS, bounded=True)
    keyed = flow.read(source).key_by("k")
    keyed.window(rl.count_windows(2)).reduce(added, uid="pairs").write(
        rl.sinks.memory()
    )
    sent = [("a", 1), ("b", 5), ("a", 2), ("a", 4)]

    whole = run_local(flow, sent).rows()

    # The last window of a key is given at the end of the input, full or not.
    assert whole == [("a", 3, 1, 2), ("a", 4, 3, 3), ("b", 5, 1, 1)]
    split = run_local(flow, sent, epoch_rows=1)
    assert sorted(split.rows()) == sorted(whole)


def test_what_cannot_be_counted_is_refused() -> None:
    with pytest.raises(InvalidConfigError, match="size of a count window"):
        rl.count_windows(0)
    with pytest.raises(InvalidConfigError, match="slide of a count window"):
        rl.count_windows(3, True)
    flow = rl.Flow("counts")
    source = rl.sources.files("in", format="json", schema=COLUMNS)
    keyed = flow.read(source).key_by("k")
    with pytest.raises(InvalidFlowError, match="lateness"):
        keyed.window(rl.count_windows(2), lateness="1 hour")
    counts = keyed.window(rl.count_windows(2)).count()
    with pytest.raises(InvalidFlowError, match="late"):
        _ = counts.late


class Sums(rl.Process):
    """Sums up ten seconds, when they are over."""

    output = "k string, total long"
    totals = rl.Map("timestamp", "long")

    def on_event(self, record: Any, ctx: Any) -> Any:
        if ctx.time is None:
            return [(f"{record.k} has no time", record.v)]
        end = from_micros((micros(ctx.time) // 10_000_000 * 10 + 9) * 1_000_000)
        self.totals[end] = self.totals.get(end, 0) + record.v
        ctx.set_timer(end)
        return []

    def on_timer(self, at: Any, ctx: Any) -> Any:
        yield ctx.key, self.totals.pop(at)


@pytest.mark.parametrize("size", [1, 2, 100])
def test_time_goes_on_behind_rows_of_which_some_have_none(size: int) -> None:
    flow, columns = rl.Flow("mixed"), "k string, v long, at timestamp"

    def read(uid: str) -> rl.Stream:
        return flow.read(rl.sources.files(uid, format="json", schema=columns), uid=uid)

    rows = read("timed").event_time("at").union(read("untimed"))
    pairs = rows.key_by("k").window(rl.count_windows(2))
    folded = pairs.reduce(
        lambda old, new: (old.k, old.v + new.v, new.at or old.at), uid="pairs"
    )
    # A window would be refused, since some of the rows have no time.
    sums = folded.key_by("k").process(Sums(), uid="sums")
    sums.write(rl.sinks.memory(), uid="out")
    times = [from_micros(second * 1_000_000) for second in (1, 2, 3, 4, 30, 60)]
    timed = [("a", 1 << n, at) for n, at in enumerate(times)]
    untimed = [("b", 64, None), ("b", 128, None)]

    run = run_local(flow, {"timed": timed, "untimed": untimed}, epoch_rows=size)

    # Neither input ends, but all before 60 is over.
    assert sorted(run.rows("out")) == [("a", 1 + 2 + 4 + 8), ("b has no time", 192)]
