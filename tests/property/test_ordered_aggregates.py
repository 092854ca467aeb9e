"""first, last and collect_list: order decides, but not where epochs end."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from datetime import datetime
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.property.arrivals import DELAY, Row, arrivals, cuts
from tests.property.prepared import PreparedOperator

from riverlock.core.hidden_columns import GROUP, ROWS, SEQ, TIME, WINDOW
from riverlock.core.times import END_US, duration_us, micros
from riverlock.core.types import Schema, Type, schema_of, type_of
from riverlock.operators.aggregates.partial import Merge, PartialAggregate, columns_of
from riverlock.operators.sessions.session_windows import Sessions
from riverlock.operators.shipped import MAIN, OperatorProgram
from riverlock.operators.windows.window_aggregate import WindowAggregate
from riverlock.operators.windows.window_contents import Aggregates
from riverlock.program.windows import SessionWindows, TimeWindows

LONG, LIST = Type("long"), type_of("array<bigint>")
KEYS = schema_of("k string")
SECOND = duration_us("1 second")
GAP = 5 * SECOND
# So many seconds are one instant: most records have others beside them.
TIE = 4
WINDOWS: dict[str, TimeWindows | SessionWindows] = {
    "tumbling": TimeWindows(size_us=10 * SECOND, slide_us=10 * SECOND),
    "sliding": TimeWindows(size_us=10 * SECOND, slide_us=4 * SECOND),
    "sessions": SessionWindows(gap_us=GAP),
}


def aggregate(kind: Type, columns: dict[str, Type], how: str, result: str) -> Any:
    return PartialAggregate(
        type=kind, merges=(Merge(columns=columns, how=how),), result=result
    )


AGGREGATES = {
    "a": aggregate(LONG, {"a_time": LONG, "a": LONG}, "earliest", "second"),
    "z": aggregate(LONG, {"z_time": LONG, "z": LONG}, "latest", "second"),
    "all": aggregate(LIST, {"all": LIST}, "concat", "list"),
}
PARTS = columns_of(AGGREGATES)


def operator(window: TimeWindows | SessionWindows) -> PreparedOperator:
    process: Any
    if isinstance(window, TimeWindows):
        process = WindowAggregate(AGGREGATES, window, 0).bound(KEYS, KEYS)
        keys, columns = process.state_keys(KEYS), KEYS
    else:
        keys = KEYS
        columns = Schema((*KEYS.fields, *schema_of(_ddl()).fields))
        process = Sessions(Aggregates(AGGREGATES), window, 0).bound(KEYS, columns)
    program = OperatorProgram(
        uid="w",
        process=process,
        keys=keys,
        input=columns,
        outputs={MAIN: schema_of(process.output)},
    )
    return PreparedOperator(program)


def _ddl() -> str:
    return ", ".join(f"`{name}` {kind.ddl}" for name, kind in PARTS.items())


def pane_of(at_us: int, window: TimeWindows) -> int:
    return at_us - at_us % window.pane_us + window.pane_us


def partial_rows(rows: list[Row], window: TimeWindows | SessionWindows) -> pa.Table:
    """Return what Spark makes of rows: by key, pane and partition, or of each row."""
    parts: dict[Any, list[tuple[int, int]]] = defaultdict(list)
    for place, (k, n, _, at) in enumerate(rows):
        at_us = micros(at)
        if isinstance(window, TimeWindows):
            # Two partitions, one behind the other.
            part = (2 * place // len(rows), k, pane_of(at_us, window))
        else:
            part = (place, k, 0)
        parts[part].append((at_us, n))
    firsts, lasts = map(min, parts.values()), map(max, parts.values())
    found = {
        "k": pa.array([k for _, k, _ in parts], pa.string()),
        SEQ: pa.array([seq for seq, _, _ in parts], pa.int64()),
        TIME: pa.array([max(t for t, _ in p) for p in parts.values()], pa.int64()),
        GROUP: pa.array([0] * len(parts), pa.int32()),
    }
    for name, pairs in (("a", list(firsts)), ("z", list(lasts))):
        found[f"{name}_time"] = pa.array([t for t, _ in pairs], pa.int64())
        found[name] = pa.array([n for _, n in pairs], pa.int64())
    lists = [[n for _, n in p] for p in parts.values()]
    found["all"] = pa.array(lists, LIST.to_arrow())
    if isinstance(window, TimeWindows):
        found[WINDOW] = pa.array([pane for _, _, pane in parts], pa.int64())
        found[ROWS] = pa.array([len(p) for p in parts.values()], pa.int64())
    return pa.table(found)


def spans(rows: list[Row], window: TimeWindows | SessionWindows) -> Iterator[Any]:
    """Yield the key, the bounds and the members of each window, in batch."""
    for key in {row[0] for row in rows}:
        mine = [(micros(at), n) for k, n, _, at in rows if k == key]
        if isinstance(window, TimeWindows):
            size, slide = window.size_us, window.slide_us
            lowest = (min(t for t, _ in mine) - size) // slide * slide
            for start in range(lowest, max(t for t, _ in mine) + 1, slide):
                inside = [m for m in mine if start <= m[0] < start + size]
                yield key, start, start + size, inside
        else:
            times = sorted({t for t, _ in mine})
            begins = [t for p, t in pairwise([-GAP * 9, *times]) if t - p > GAP]
            for begin, after in pairwise([*begins, END_US]):
                inside = [m for m in mine if begin <= m[0] < after]
                yield key, begin, max(inside)[0] + GAP, inside


def batch(rows: list[Row], window: TimeWindows | SessionWindows) -> Counter[Any]:
    found: Counter[Any] = Counter()
    for key, start, end, members in spans(rows, window):
        if not members:
            continue
        # Numbers are the order of arrival: what is listed is in it, pane by pane.
        listed = sorted(n for _, n in members)
        if isinstance(window, TimeWindows):
            panes = sorted((pane_of(t, window), n) for t, n in members)
            listed = [n for _, n in panes]
        ends = min(members)[1], max(members)[1]
        found[(key, start, end, *ends, tuple(listed))] += 1
    return found


def comparable(row: Any, window: TimeWindows | SessionWindows) -> tuple[Any, ...]:
    *values, listed = row
    times = [micros(v) if isinstance(v, datetime) else v for v in values]
    ordered = listed if isinstance(window, TimeWindows) else sorted(listed)
    return (*times, tuple(ordered))


@pytest.mark.parametrize("shape", WINDOWS)
@settings(max_examples=12)
@given(data=st.data(), rows=arrivals())
def test_splits_change_nothing(
    shape: str, data: st.DataObject, rows: list[Row]
) -> None:
    window = WINDOWS[shape]
    rows = [
        (k, n, v, at.replace(second=at.second // TIE * TIE)) for k, n, v, at in rows
    ]
    expected = batch(rows, window)
    drawn = data.draw(cuts(len(rows)))
    for ends in ([0, len(rows)], list(range(len(rows) + 1)), drawn):
        played = operator(window)
        newest: int | None = None
        for begin, end in pairwise(ends):
            reached = None if newest is None else newest - (DELAY + TIE) * SECOND - 1
            played.play(partial_rows(rows[begin:end], window), reached)
            newest = max((micros(row[3]) for row in rows[:end]), default=None)
        played.play(partial_rows([], window), END_US)

        assert Counter(comparable(row, window) for row in played.output) == expected
        assert played.late_rows == 0
        assert played.entries == 0
