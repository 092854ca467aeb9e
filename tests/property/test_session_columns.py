"""Sessions by the column are those of the loop over records, bit for bit."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from riverlock.core.errors import StateTypeError
from riverlock.core.hidden_columns import GAP as GAP_COLUMN
from riverlock.core.times import END_US, from_micros
from riverlock.core.types import Field, Schema, Type, schema_of, type_of
from riverlock.operators.aggregates.partial import Merge, PartialAggregate
from riverlock.operators.aggregates.sketches import Percentiles
from riverlock.operators.sessions.session_windows import Sessions
from riverlock.operators.windows.window_contents import Aggregates
from riverlock.program.windows import SessionWindows
from riverlock.state.keys import timer_slot
from riverlock.state.store import EVENT
from riverlock.testing import harness
from riverlock.testing.harness import Harness

GAP, ENDLESS = 10, (1 << 63) - 1
LONG, DOUBLE, INSTANT = Type("long"), Type("double"), Type("timestamp")
LISTS, MONEY = type_of("array<bigint>"), type_of("decimal(20,2)")
MIDDLE = Percentiles(4, 0.5, DOUBLE)
# Name, columns with their types, how they are merged, and the result.
PARTS: list[tuple[str, dict[str, Type], Any, Any]] = [
    ("n", {"n": LONG}, "sum", "count"),
    ("total", {"total": DOUBLE}, "sum", "same"),
    ("low", {"low": DOUBLE}, "min", "same"),
    ("high", {"high": Type("float")}, "max", "same"),
    ("least", {"least": Type("int")}, "min", "same"),
    ("every", {"every": Type("boolean")}, "min", "same"),
    ("last", {"last": INSTANT}, "max", "same"),
    ("money", {"money": MONEY}, "sum", "same"),
    ("all", {"all": LISTS}, "concat", "list"),
    ("first", {"first_time": LONG, "first": Type("string")}, "earliest", "second"),
    ("spread", {"m_n": LONG, "m_mean": DOUBLE, "m_sq": DOUBLE}, "moments", "var_pop"),
    ("middle", {"middle": MIDDLE.kept}, MIDDLE, MIDDLE),
]
TYPES = {"spread": DOUBLE, "first": Type("string"), "middle": DOUBLE}
FLOATS = st.none() | st.floats(width=32) | st.sampled_from([0.0, -0.0, math.nan, 0.1])
RECORDS = st.fixed_dictionaries(
    {
        "k": st.sampled_from(["a", "b", None, "long" * 80]),
        "at": st.integers(0, 20).map(lambda n: n * 5) | st.integers(-9, 100),
        "n": st.none() | st.integers(-9, 9),
        "total": FLOATS,
        "money": st.none() | st.integers(-99, 99).map(lambda n: Decimal(n) / 4),
        "word": st.none() | st.sampled_from("pqr"),
        "gap": st.none() | st.integers(-1, 25) | st.just(ENDLESS),
    }
)
COLUMNS = Schema(
    (
        *schema_of("k string, at timestamp").fields,
        *(Field(n, t) for _, parts, _, _ in PARTS for n, t in parts.items()),
    )
)
# Spark collects values for sketches.
INPUT = Schema(
    tuple(
        Field(f.name, type_of("array<double>") if f.name == "middle" else f.type)
        for f in COLUMNS.fields
    )
)


def row(record: dict[str, Any]) -> tuple[Any, ...]:
    """Return a record as Spark gives it: its partial aggregates, and the gap."""
    n, x, at = record["n"], record["total"], from_micros(record["at"])
    some = [] if n is None else [n]
    moments = (0, None, None) if n is None else (1, float(n), 0.0)
    return (
        *(record["k"], at, 1, x, x, x, n, None if n is None else n > 0),
        *(at if some else None, record["money"], some, record["at"], record["word"]),
        *(*moments, [] if x is None or math.isnan(x) else [x], record["gap"]),
    )


def operator_of(
    lateness: int = 0,
    *,
    keys: list[str] = ["k"],  # noqa: B006 - only read
    by_record: bool = False,
    follows_keyed: bool = False,
    updates: bool = False,
) -> Harness:
    aggregates = {
        name: PartialAggregate(
            type=TYPES.get(name, next(iter(columns.values()))),
            merges=(Merge(columns=columns, how=how),),
            result=result,
        )
        for name, columns, how, result in PARTS
    }
    window = SessionWindows(gap_expr="gap") if by_record else SessionWindows(gap_us=GAP)
    process = Sessions(Aggregates(aggregates), window, lateness)
    columns = Schema((*INPUT.fields, Field(GAP_COLUMN, LONG)))
    return harness(
        process,
        key=keys,
        input=columns,
        event_time="at",
        follows_keyed=follows_keyed,
        updates=updates,
    )


@contextmanager
def watched(*, is_loop: bool) -> Iterator[list[int | None]]:
    """Forbid columns, or make sure of them; gives the timers that come next."""
    heads: list[int | None] = []

    at_once = Sessions.at_once

    def by_column(*args: Any) -> Any:
        effects = at_once(*args)
        assert effects is not None, "columns declined"
        heads.append(effects.timers.event_us)
        return effects

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Sessions, "at_once", (lambda *_: None) if is_loop else by_column)
        yield heads


def bits(value: Any) -> Any:
    """Return a value so that NaN equals NaN and zeros differ."""
    if isinstance(value, float):
        return "nan" if math.isnan(value) else struct.pack(">d", value)
    if isinstance(value, dict):
        value = tuple(value.items())
    return tuple(map(bits, value)) if isinstance(value, list | tuple) else value


def stored(h: Harness) -> Any:
    """Return all that a store holds, and what the last epoch wrote to the snapshot."""
    entries = [(i, bits(msgspec.msgpack.decode(p))) for i, p in h._store.scan(b"")]
    timers = list(h._store.due_timers(EVENT, 1 << 62))
    changes = pq.read_table(pa.BufferReader(h.snapshot().changes[-1]))
    return entries, timers, changes.schema, bits(changes.to_pylist())


_ODD = (math.nan, 0.2, 0.3, 0.0, -0.0, None)
_PLAIN = {"n": 1, "total": 0.1, "money": None, "word": "p", "gap": 3}


@settings(max_examples=12)
@given(
    st.lists(st.lists(RECORDS, max_size=9), min_size=1, max_size=4),
    st.lists(st.integers(-20, 130), min_size=5, max_size=5).map(sorted),
    st.sampled_from([0, 20]),
    st.sampled_from([["k"], ["k", "m_n"], []]),
    st.booleans(),
    st.booleans(),
    st.booleans(),
)
# A long session within which others lie, and records that join two that were given.
@example(
    [
        [{"k": "a", "at": at, **_PLAIN} for at in (0, 30, 33, 60)],
        [
            {"k": "a", "at": at, **_PLAIN, "total": x}
            for at, x in zip((20, 2, 5, 7, 11, 45), _ODD, strict=True)
        ],
        [
            {"k": key, "at": 70, **_PLAIN, "total": x}
            for key, order in (("c", _ODD), ("d", _ODD[::-1]))
            for x in order
        ],
        [{"k": "a", "at": 13, **_PLAIN}, {"k": "b", "at": 1, **_PLAIN, "gap": 90}],
    ],
    [-20, 25, 44, 50, 60],
    20,
    ["k"],
    False,
    False,
    True,
)
def test_columns_are_the_loop(
    epochs: list[list[dict[str, Any]]],
    marks: list[int],
    lateness: int,
    keys: list[str],
    by_record: bool,
    follows_keyed: bool,
    updates: bool,
) -> None:
    ours, loop = (
        operator_of(
            lateness,
            keys=keys,
            by_record=by_record,
            follows_keyed=follows_keyed,
            updates=updates,
        )
        for _ in range(2)
    )
    if lateness:
        # Such a session is kept until after the end of time.
        epochs = [[r for r in part if r["gap"] != ENDLESS] for part in epochs]
    steps = [([row(r) for r in part], marks[n]) for n, part in enumerate(epochs)]
    for rows, mark in [*steps, ([], END_US)]:
        for h in (ours, loop):
            h.watermark = from_micros(mark)
            with watched(is_loop=h is loop) as heads, h.epoch():
                h.send(*rows)
            assert heads == ([] if h is loop else [h._store.first_timer(EVENT)])
        assert stored(ours) == stored(loop)
        for name in ours.outputs:
            assert bits(ours.timed(name)) == bits(loop.timed(name))
        assert ours.late_rows == loop.late_rows
    assert list(ours._store.scan(b"")) == []


def test_a_sum_beyond_64_bits_is_refused_as_by_the_loop() -> None:
    record = {"k": "a", "at": 0, **_PLAIN}
    great = (*row(record)[:2], (1 << 63) - 1, *row(record)[3:])
    h = operator_of()

    with pytest.raises(StateTypeError):
        h.send(great, great)

    assert h.state("sessions", key="a") is None
    h.send(great)
    h.advance_watermark(from_micros(END_US))
    assert [r[3] for r in h.output] == [(1 << 63) - 1]


@pytest.mark.parametrize("is_loop", [False, True])
def test_timers_that_older_versions_set_for_each_session_are_forgotten(
    is_loop: bool,
) -> None:
    h = operator_of()
    h.send(*(row({"k": "a", "at": at, **_PLAIN}) for at in (0, 30, 60)))
    (at, key_id, key), *_ = h._store.due_timers(EVENT, 1 << 62)
    assert at == GAP - 1
    for end in (30 + GAP, 60 + GAP):
        h._store._timers[timer_slot(EVENT, end - 1)[1:] + key_id] = key
        h._rebuilt._timers[timer_slot(EVENT, end - 1)[1:] + key_id] = key

    h.send(row({"k": "a", "at": 65, **_PLAIN}))
    given = []
    for mark in (15, 45, 72, 80):
        with watched(is_loop=is_loop):
            h.advance_watermark(from_micros(mark))
        given.append(len(h.output))

    # One of the timers says nothing any more: the session has grown.
    assert given == [1, 2, 2, 3]
    assert h.timers("a") == []
