"""Modes update and complete of all kinds of windows against lists of all records.

What a sink has that takes rows for those of the same key and window before, and away
where they are gone, is at the end of each epoch what a batch has of all records so far.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import riverlock as rl
from riverlock.core.clock import ManualClock
from riverlock.core.errors import InvalidFlowError
from riverlock.core.times import from_micros, micros
from riverlock.program.windows import SessionWindows, TimeWindows, Windows
from riverlock.testing.local import LocalRun

GAP, LATEST = 10, 15
COLUMNS = "k string, at timestamp, v long"
SPAN = "window_start timestamp, window_end timestamp"
Record = tuple[str, int, int]
Table = dict[tuple[Any, ...], list[int]]
RECORDS = st.tuples(
    st.sampled_from("ab"), st.integers(0, 20).map(lambda n: n * 4), st.integers(0, 9)
)
EPOCHS = st.lists(st.lists(RECORDS, max_size=6), min_size=1, max_size=8)


def listed(key: str | None, window: Any, records: list[Any]) -> list[Any]:
    bounds = [each for each in window[:2] if each is not None]
    return [(key, *bounds, sorted(r.v for r in records))]


def added(old: Any, new: Any) -> Any:
    return old.k, min(old.at, new.at), old.v + new.v


def sessions_of(records: list[Record]) -> Table:
    found: Table = {}
    for key in sorted({k for k, _, _ in records}):
        begin, last, values = 0, None, list[int]()
        for _, t, v in sorted(r for r in records if r[0] == key):
            if last is None or t > last + GAP:
                begin, values = t, []
            else:
                del found[key, begin, last + GAP]
            values, last = sorted([*values, v]), t
            found[key, begin, last + GAP] = values
    return found


def by_key(records: list[Record]) -> dict[str, list[int]]:
    keys = sorted({k for k, _, _ in records})
    return {key: [v for k, _, v in records if k == key] for key in keys}


def counted_of(size: int, slide: int) -> Callable[[list[Record]], Table]:
    def found(records: list[Record]) -> Table:
        return {
            (key, max(last - size, 0) + 1, last): sorted(
                values[max(last - size, 0) : last]
            )
            for key, values in by_key(records).items()
            for last in range(slide, len(values) + 1, slide)
        }

    return found


def global_of(count: int) -> Callable[[list[Record]], Table]:
    def found(records: list[Record]) -> Table:
        given = {
            key: values[: len(values) // count * count]
            for key, values in by_key(records).items()
        }
        return {(key,): sorted(values) for key, values in given.items() if values}

    return found


@dataclass
class Session:
    """Records of a key, how many came since they were given, and the rows of it."""

    begin: int
    end: int
    values: list[int]
    fresh: int = 0
    rows: set[tuple[Any, ...]] = field(default_factory=set)
    is_over: bool = False


@dataclass
class EarlySessions:
    """Sessions that are given after so many records, and when they are over."""

    count: int
    live: dict[str, list[Session]] = field(default_factory=dict)
    table: Table = field(default_factory=dict)
    seen: int = 0

    def __call__(self, records: list[Record]) -> Table:
        before, fresh = records[: self.seen], records[self.seen :]
        self.seen = len(records)
        is_open = max((t for _, t, _ in before), default=0) - LATEST
        for key, sessions in self.live.items():
            for session in sessions:
                if session.end <= is_open and not session.is_over:
                    session.is_over = True
                    self.give(key, session)
        for key, t, v in fresh:
            every = self.live.setdefault(key, [])
            mine = [s for s in every if s.begin <= t + GAP and t <= s.end]
            assert not any(s.is_over for s in mine)
            made = Session(
                min([t, *(s.begin for s in mine)]),
                max([t + GAP, *(s.end for s in mine)]),
                sorted([v, *(v for s in mine for v in s.values)]),
                1 + sum(s.fresh for s in mine),
                {row for s in mine for row in s.rows},
            )
            self.live[key] = [*(s for s in every if s not in mine), made]
            if made.fresh >= self.count:
                self.give(key, made)
        return dict(self.table)

    def give(self, key: str, session: Session) -> None:
        for row in session.rows:
            del self.table[row]
        row = key, session.begin, session.end
        self.table[row], session.rows, session.fresh = session.values, {row}, 0


def run_of(
    window: Windows, bounds: str, *, delay: int = LATEST, **options: Any
) -> LocalRun:
    """Return the run of a flow that lists and adds up the records of each window."""
    flow = rl.Flow("updates")
    source = rl.sources.files("in", format="json", schema=COLUMNS)
    stream = flow.read(source, uid="in").event_time(
        "at", delay=timedelta(microseconds=delay)
    )
    windows = stream.key_by("k").window(window, **options)
    columns = ", ".join(each for each in ("k string", bounds, "vs array<long>") if each)
    made = {
        "lists": windows.apply(listed, columns, uid="lists"),
        "sums": windows.reduce(added, uid="sums"),
    }
    for name, rows in made.items():
        for mode in ("update", "complete"):
            rows.write(rl.sinks.memory(), mode=mode, uid=f"{name}-{mode}")
    return LocalRun(flow, ManualClock())


def plain(values: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(micros(v) if hasattr(v, "tzinfo") else v for v in values)


def check(
    run: LocalRun,
    epochs: list[list[Record]],
    expected: Callable[[list[Record]], Table],
    identity: dict[str, list[int]],
) -> None:
    """Run epochs; compare what upserts leave, and whole tables, with a batch."""
    tables: dict[str, dict[Any, Any]] = {name: {} for name in identity}
    arrived: list[Record] = []
    takes_back = any(name == "gone" for name in run_columns(run))
    for records in epochs:
        before = {name: len(run.rows(f"{name}-update")) for name in identity}
        run.epoch({"in": [(k, from_micros(t), v) for k, t, v in records]})
        arrived += records
        batch = expected(arrived)
        for name, places in identity.items():
            table, fresh = tables[name], run.rows(f"{name}-update")[before[name] :]
            keys = [tuple(plain(row)[p] for p in places) for row in fresh]
            assert len(keys) == len(set(keys)), "a window twice in an epoch"
            for key, row in zip(keys, fresh, strict=True):
                if takes_back and row[-1]:
                    del table[key]  # it was there
                else:
                    table[key] = row[:-1] if takes_back else row
            assert sorted(run.rows(f"{name}-complete"), key=repr) == sorted(
                table.values(), key=repr
            )
            assert table.keys() == batch.keys()
        assert {k: row[-1] for k, row in tables["lists"].items()} == batch
        assert {k: row[2] for k, row in tables["sums"].items()} == {
            key: sum(values) for key, values in batch.items()
        }


def run_columns(run: LocalRun) -> tuple[str, ...]:
    run.epoch({})
    return run.operator("lists").outputs["updates"].names


def in_epochs(records: list[Record], chance: Any) -> list[list[Record]]:
    """Return records, shuffled within the delay; the last epochs bring only time."""
    arrived = sorted(records, key=lambda r: r[1] + chance.randint(0, LATEST))
    epochs = []
    while arrived:
        size = chance.randrange(1, 6)
        epochs.append(arrived[:size])
        arrived = arrived[size:]
    return [*epochs, [], []]


SPANS = {"lists": [0, 1, 2], "sums": [0, 3, 4]}


@settings(max_examples=12)
@given(
    st.lists(RECORDS, min_size=1, max_size=25),
    st.randoms(use_true_random=False),
    st.sampled_from([(LATEST, 0), (5, LATEST)]),
)
def test_updated_sessions_are_those_of_a_batch(
    records: list[Record], chance: Any, late: tuple[int, int]
) -> None:
    delay, lateness = late
    run = run_of(
        SessionWindows(gap_us=GAP),
        SPAN,
        delay=delay,
        lateness=timedelta(microseconds=lateness),
    )

    check(run, in_epochs(records, chance), sessions_of, SPANS)


@settings(max_examples=12)
@given(
    st.lists(RECORDS, min_size=1, max_size=25),
    st.randoms(use_true_random=False),
    st.integers(1, 4),
)
def test_sessions_that_are_given_early_are_taken_back_when_they_are_given_again(
    records: list[Record], chance: Any, count: int
) -> None:
    run = run_of(SessionWindows(gap_us=GAP), SPAN, trigger=rl.early(count=count))

    check(run, in_epochs(records, chance), EarlySessions(count), SPANS)

    run.epoch({"in": [("z", from_micros(1000), 0)]})
    run.epoch({})
    assert run.operator("lists").state("shown", key="a") is None


@settings(max_examples=6)
@given(EPOCHS, st.sampled_from([(1, 1), (2, 2), (3, 2), (5, 1)]))
def test_count_windows_are_there_when_they_are_full(
    epochs: list[list[Record]], sizes: tuple[int, int]
) -> None:
    numbers = "first_record long, last_record long"
    run = run_of(rl.count_windows(*sizes), numbers)

    check(run, epochs, counted_of(*sizes), SPANS)


@settings(max_examples=6)
@given(EPOCHS, st.integers(1, 4))
def test_a_global_window_is_one_row_per_key(
    epochs: list[list[Record]], count: int
) -> None:
    run = run_of(rl.global_window(), "", trigger=rl.early(count=count))

    check(run, epochs, global_of(count), {"lists": [0], "sums": [0]})


def test_a_window_that_fires_often_is_one_row_of_an_epoch() -> None:
    run = run_of(TimeWindows(size_us=20, slide_us=20), SPAN, trigger=rl.early(count=1))

    run.epoch({"in": [("a", from_micros(t), 1) for t in (1, 2, 25)]})

    spans = [(from_micros(t), from_micros(t + 20)) for t in (0, 20)]
    expected = [("a", *spans[0], [1, 1]), ("a", *spans[1], [1])]
    assert run.rows("lists-update") == run.rows("lists-complete") == expected
    firings = [row[-1] for row in run.rows("sums-complete")]
    assert firings == ["early", "early"]


def test_a_table_without_key_has_one_row() -> None:
    flow = rl.Flow("total")
    source = rl.sources.files("in", format="json", schema=COLUMNS)
    every = flow.read(source, uid="in").window(
        rl.global_window(), trigger=rl.early(count=2)
    )
    every.reduce(added).write(rl.sinks.memory(), mode="complete")
    run, at = LocalRun(flow, ManualClock()), from_micros(0)

    tables = []
    for values in ([1], [2, 4, 8], [16], []):
        run.epoch({"in": [("a", at, v) for v in values]})
        tables.append([v for _, _, v, _ in run.rows()])

    assert tables == [[], [15], [15], [15]]


def test_a_column_of_sessions_must_not_be_called_gone() -> None:
    flow = rl.Flow("gone")
    columns = "k string, gone boolean, at timestamp"
    source = rl.sources.files("in", format="json", schema=columns)
    timed = flow.read(source).event_time("at")
    windows = timed.key_by("k").window(rl.sessions("1 hour"))
    windows.reduce(added).write(rl.sinks.memory(), mode="update")

    with pytest.raises(InvalidFlowError, match="columns other than 'gone'"):
        LocalRun(flow, ManualClock()).epoch({})
