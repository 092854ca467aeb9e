"""Functions over sessions, keyed and not, against lists of all records."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import riverlock as rl
from riverlock.core.errors import (
    InvalidConfigError,
    InvalidFlowError,
    UserCodeError,
)
from riverlock.core.hidden_columns import GAP as GAP_COLUMN
from riverlock.core.times import END_US, from_micros, micros
from riverlock.core.types import schema_of
from riverlock.operators.sessions.session_windows import Sessions
from riverlock.operators.windows.window_contents import Content, Fold, Kept
from riverlock.operators.windows.window_operator import Gathering
from riverlock.program.triggers import Trigger
from riverlock.program.windows import SessionWindows
from riverlock.testing import harness, run_local
from riverlock.testing.harness import Harness

GAP, DELAY = 10, 15
COLUMNS = schema_of("k string, at timestamp, v long")
OUTPUT = "k string, start timestamp, end timestamp, values array<bigint>"
Record = tuple[str, int, int]
RECORDS = st.tuples(
    st.sampled_from("ab"), st.integers(0, 20).map(lambda n: n * 4), st.integers(0, 9)
)


def listed(key: str | None, window: Any, records: list[Any]) -> list[Any]:
    assert all(window.start <= r.at < window.end for r in records)
    return [(key, *window, [r.v for r in records])]


def added(old: Any, new: Any) -> Any:
    return {"k": old.k, "at": min(old.at, new.at), "v": old.v + new.v}


def operator(content: Content, keys: list[str], **options: Any) -> Harness:
    process = Sessions(content, SessionWindows(gap_us=GAP), 0)
    return harness(process, key=keys, input=COLUMNS, event_time="at", **options)


def rows(records: list[Record]) -> list[Any]:
    return [(k, from_micros(t), v) for k, t, v in records]


def batch(arrived: list[Record], *, is_keyed: bool) -> list[Any]:
    """Return key, begin, end and values of all sessions, in the order of times."""
    found: list[Any] = []
    keys: list[Any] = sorted({k for k, _, _ in arrived}) if is_keyed else [None]
    for key in keys:
        mine = [(t, v) for k, t, v in arrived if key in (k, None)]
        mine.sort(key=lambda each: each[0])  # stable: then in the order of arrival
        last = None
        for t, v in mine:
            if last is None or t > last + GAP:
                found.append((key, t, 0, []))
            found[-1] = (*found[-1][:2], t + GAP, [*found[-1][3], v])
            last = t
    return sorted(found, key=repr)


@settings(max_examples=25)
@given(
    st.lists(RECORDS, min_size=1, max_size=25),
    st.randoms(use_true_random=False),
    st.booleans(),
)
def test_functions_over_sessions_see_what_a_batch_has(
    records: list[Record], chance: Any, is_keyed: bool
) -> None:
    arrived = sorted(records, key=lambda r: r[1] + chance.randint(0, DELAY))
    keys = ["k"] if is_keyed else []
    applied = operator(Kept(listed, OUTPUT, by_time=True), keys)
    reduced = operator(Fold(added), keys)
    at, newest = 0, -(1 << 60)
    while at < len(arrived):
        part = arrived[at : at + chance.randrange(1, 6)]
        at += len(part)
        newest = max([newest, *(t for _, t, _ in part)])
        for h in (applied, reduced):
            h.send(*rows(part))
            h.watermark = from_micros(newest - DELAY - 1)
    for h in (applied, reduced):
        h.advance_watermark(from_micros(END_US))

    expected = batch(arrived, is_keyed=is_keyed)
    lists = [(k, micros(b), micros(e), v) for k, b, e, v in applied.output]
    assert sorted(lists, key=repr) == expected
    sums = [(micros(at), v, micros(b), micros(e)) for _, at, v, b, e in reduced.output]
    assert sorted(sums) == sorted((b, sum(v), b, e) for _, b, e, v in expected)
    for key in "ab" if is_keyed else [None]:
        assert applied.state("chunks", key=key) == {}
        assert reduced.state("sessions", key=key) is None


@settings(max_examples=20)
@given(
    st.lists(st.tuples(RECORDS, st.integers(-1, 25)), min_size=1, max_size=20),
    st.randoms(use_true_random=False),
    st.booleans(),
)
def test_sessions_end_when_the_gaps_of_all_their_records_are_over(
    drawn: list[tuple[Record, int]], chance: Any, is_triggered: bool
) -> None:
    arrived = sorted(drawn, key=lambda r: r[0][1] + chance.randint(0, DELAY))
    trigger = Trigger(count=1000) if is_triggered else None
    windows = Gathering(window=rl.sessions(gap_expr="gap"), trigger=trigger)
    process = windows.operator(
        Kept(lambda k, w, rs: [(k, *w[:2], [r.v for r in rs])], OUTPUT, by_time=True)
    )
    columns = schema_of(f"{COLUMNS.ddl}, {GAP_COLUMN} bigint")
    h = harness(process, key="k", input=columns, event_time="at")
    at, newest = 0, -(1 << 60)
    while at < len(arrived):
        part = arrived[at : at + chance.randrange(1, 6)]
        at += len(part)
        h.send(*((k, from_micros(t), v, gap) for (k, t, v), gap in part))
        newest = max([newest, *(t for (_, t, _), _ in part)])
        h.watermark = from_micros(newest - DELAY - 1)
    h.advance_watermark(from_micros(END_US))

    # Records without a gap are in no session.
    expected = []
    for key in "ab":
        mine = [(t, gap, v) for (k, t, v), gap in arrived if k == key and gap > 0]
        mine.sort(key=lambda each: each[0])
        sessions: list[Any] = []
        for t, gap, v in mine:
            if not sessions or t > sessions[-1][2]:
                sessions.append((key, t, 0, []))
            _, begin, end, values = sessions[-1]
            sessions[-1] = (key, begin, max(end, t + gap), [*values, v])
        expected += sessions
    found = [(k, micros(b), micros(e), v) for k, b, e, v in h.output]
    assert sorted(found, key=repr) == sorted(expected, key=repr)


def test_a_session_has_one_gap_or_an_expression() -> None:
    for wrong in ({}, {"gap": "1 hour", "gap_expr": "g"}, {"gap": "0 seconds"}):
        with pytest.raises(InvalidConfigError):
            rl.sessions(**wrong)
    flow = rl.Flow("gaps")
    source = rl.sources.files("in", format="json", schema=COLUMNS)
    stream = flow.read(source).event_time("at")
    stream.window(rl.sessions(gap_expr="v")).reduce(added, uid="r")
    with pytest.raises(InvalidFlowError, match="gap_expr"):
        run_local(flow, rows([("a", 0, 1)]))


def odd(key: str, window: Any, records: list[Any]) -> list[Any]:
    if any(r.v == 7 for r in records):
        message = "seven"
        raise ValueError(message)
    return listed(key, window, records)


def not_seven(old: Any, new: Any) -> Any:
    return odd(old.k, None, [new]) if new.v == 7 else added(old, new)


def test_what_functions_raise_goes_to_dead_letters() -> None:
    sent = rows([("a", 0, 1), ("a", 3, 7), ("a", 5, 2), ("b", 0, 3)])
    applied = operator(Kept(odd, OUTPUT, by_time=True), ["k"], on_error="dead_letter")
    reduced = operator(Fold(not_seven), ["k"], on_error="dead_letter")
    for h in (applied, reduced):
        h.send(*sent)
        h.advance_watermark(from_micros(END_US))

    # The window of the function that raised, and the record that was not folded in.
    assert [row[0] for row in applied.output] == ["b"]
    (letter,) = applied.dead_letters
    assert letter["key"] == "'a'"
    assert letter["error"] == "ValueError: seven"
    assert sorted((row[0], row[2]) for row in reduced.output) == [("a", 3), ("b", 3)]
    (letter,) = reduced.dead_letters
    assert "v=7" in letter["record"]
    for h in (applied, reduced):
        assert h.timers("a") == []
        assert h.state("sessions", key="a") is None

    failing = operator(Fold(not_seven), ["k"])
    with pytest.raises(UserCodeError, match="seven"):
        failing.send(*sent)
