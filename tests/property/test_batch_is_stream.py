"""Batch = stream: neither where epochs end nor the order within the delay matters."""

from __future__ import annotations

from collections import Counter, defaultdict
from datetime import timedelta
from itertools import pairwise
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.property.arrivals import COLUMNS, DELAY, Row, arrivals, cuts, second

import riverlock as rl
from riverlock.core.clock import ManualClock
from riverlock.testing.local import LocalRun

OTHERS = "name string, m long, w long, time timestamp"
# Five panes, so that an inverse is used.
SIZE, SLIDE = 10, 2
FOLDED = ("whole", "by-key", "inverse")
Splits = tuple[list[int], list[int]]


class Balances(rl.TwoInputProcess):
    """What was paid in less what was paid out, at each instant at which it changed."""

    output = "k string, at timestamp, balance long"
    changes = rl.Map("timestamp", "long")
    balance = rl.Value("long", default=0)

    def on_left(self, record: Any, ctx: Any) -> None:
        self._change(record.v, ctx)

    def on_right(self, record: Any, ctx: Any) -> None:
        self._change(-record.w, ctx)

    def _change(self, by: int, ctx: Any) -> None:
        self.changes[ctx.time] = self.changes.get(ctx.time, 0) + by
        ctx.set_timer(ctx.time)

    def on_timer(self, at: Any, ctx: Any) -> Any:
        self.balance += self.changes.pop(at)
        yield ctx.key, at, self.balance


def added(old: Any, new: Any) -> Any:
    return {"k": "", "n": 0, "v": old.v + new.v, "at": max(old.at, new.at)}


def less(whole: Any, part: Any) -> Any:
    return {"k": "", "n": 0, "v": whole.v - part.v, "at": whole.at}


def numbers(key: Any, window: Any, records: list[Any]) -> list[Any]:
    return [(window.start, sorted(r.n for r in records))]


def built() -> rl.Flow:
    flow = rl.Flow("splits")

    def read(uid: str, columns: str, time: str) -> rl.Stream:
        source = rl.sources.files("in", format="json", schema=columns, bounded=True)
        rows = flow.read(source, uid=uid)
        return rows.event_time(time, delay=f"{DELAY} seconds", uid=f"{uid}-time")

    rows, others = read("in", COLUMNS, "at"), read("others", OTHERS, "time")
    keyed = rows.key_by("k")
    sizes = (timedelta(seconds=SIZE), timedelta(seconds=SLIDE))
    made = {
        "connect": keyed.connect(others.key_by("name")).process(Balances()),
        "window": rows.window(rl.sliding(*sizes)).apply(
            numbers, "start timestamp, numbers array<bigint>"
        ),
        "whole": rows.reduce_by_window(added, *sizes),
        "by-key": keyed.reduce_by_key_and_window(added, *sizes),
        "inverse": keyed.reduce_by_key_and_window(added, *sizes, inverse=less),
    }
    for uid, stream in made.items():
        stream.write(rl.sinks.memory(), uid=uid)
        if uid != "connect":
            stream.late.write(rl.sinks.memory(), uid=f"{uid}-late")
    return flow


def played(flow: rl.Flow, inputs: dict[str, list[Any]], splits: Splits) -> LocalRun:
    """Run records in epochs that end at these places of each input."""
    run = LocalRun(flow, ManualClock())
    parts = [
        [rows[begin:end] for begin, end in pairwise(ends)]
        for rows, ends in zip(inputs.values(), splits, strict=True)
    ]
    for number in range(max(map(len, parts))):
        each = [of[number] if number < len(of) else [] for of in parts]
        run.epoch(dict(zip(inputs, each, strict=True)))
    run.has_ended = True
    run.epoch({})
    return run


def balances(rows: list[Row], others: list[Row]) -> Counter[Any]:
    changes: dict[Any, int] = defaultdict(int)
    for k, _, v, at in rows:
        changes[(k, at)] += v
    for k, _, w, at in others:
        changes[(k, at)] -= w
    found: Counter[Any] = Counter()
    so_far: dict[str, int] = defaultdict(int)
    for (k, at), by in sorted(changes.items()):
        so_far[k] += by
        found[(k, at, so_far[k])] += 1
    return found


def windows(rows: list[Row]) -> dict[Any, list[Row]]:
    """Return the records of each window, of a key (None: of all)."""
    found: dict[Any, list[Row]] = defaultdict(list)
    for row in rows:
        at = int((row[3] - second(0)).total_seconds())
        first = at - at % SLIDE
        for start in range(first, first - SIZE, -SLIDE):
            if start <= at < start + SIZE:
                found[(row[0], second(start))].append(row)
                found[(None, second(start))].append(row)
    return found


@settings(max_examples=6)
@given(st.data(), arrivals(), arrivals())
def test_splits_and_order_within_the_delay_change_nothing(
    data: st.DataObject, rows: list[Row], others: list[Row]
) -> None:
    lengths = len(rows), len(others)
    one, each = ([0, n] for n in lengths), (list(range(n + 1)) for n in lengths)
    drawn = (data.draw(cuts(n)) for n in lengths)
    expected = windows(rows)
    flow = built()
    for ends in (tuple(one), tuple(each), tuple(drawn)):
        run = played(flow, {"in": rows, "others": others}, ends)  # type: ignore[arg-type]

        assert Counter(run.rows("connect")) == balances(rows, others)
        whole = {s: [r[1] for r in of] for (k, s), of in expected.items() if k is None}
        seen: dict[Any, Any] = dict(run.rows("window"))
        assert seen == {start: sorted(ns) for start, ns in whole.items()}
        assert len(run.rows("window")) == len(whole)
        sums = {
            (k, start, start + timedelta(seconds=SIZE)): sum(r[2] for r in of)
            for (k, start), of in expected.items()
        }
        of_all = Counter((*span, v) for (k, *span), v in sums.items() if k is None)
        of_keys = Counter((*span, v) for (k, *span), v in sums.items() if k is not None)
        for uid, wanted in zip(FOLDED, (of_all, of_keys, of_keys), strict=True):
            given_rows = [(s, e, v) for _, _, v, _, s, e in run.rows(uid)]
            assert Counter(given_rows) == wanted, uid
            assert run.rows(f"{uid}-late") == []


@settings(max_examples=8)
@given(st.data(), arrivals(), st.sets(st.sampled_from("ab")))
def test_a_lookup_of_what_is_there_before_depends_on_records_alone(
    data: st.DataObject, rows: list[Row], known: set[str]
) -> None:
    flow = rl.Flow("looked-up")

    def read(uid: str, columns: str) -> rl.Stream:
        source = rl.sources.files("in", format="json", schema=columns, bounded=True)
        return flow.read(source, uid=uid)

    names = read("names", "k2 string, name string").key_by("k2")
    for how in ("inner", "left"):
        keyed = read(f"in-{how}", COLUMNS).key_by("k")
        keyed.lookup(names, how=how, uid=how).write(rl.sinks.memory(), uid=f"{how}-out")
    table = {k: f"name of {k}" for k in known}
    for ends in (
        [0, len(rows)],
        list(range(len(rows) + 1)),
        data.draw(cuts(len(rows))),
    ):
        run = LocalRun(flow, ManualClock())
        run.epoch({"names": list(table.items())})
        for begin, end in pairwise(ends):
            run.epoch({f"in-{how}": rows[begin:end] for how in ("inner", "left")})

        expected = Counter((*row, table.get(row[0])) for row in rows)
        assert Counter(run.rows("left-out")) == expected
        found = Counter({r: n for r, n in expected.items() if r[-1] is not None})
        assert Counter(run.rows("inner-out")) == found
