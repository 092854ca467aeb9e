"""Flows that every engine must run alike, each with an oracle in plain Python.

No oracle looks at engines, tasks or stores: it is given the rows of each epoch, and
says which rows sinks get and which values operators keep.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import riverlock as rl
from riverlock.testing import rows

Row = tuple[Any, ...]
Epochs = Sequence[Sequence[Row]]
Streams = Mapping[str, Any]
COLUMNS = "k string, n long, at timestamp"
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


def at(second: float) -> datetime:
    return BEGIN + timedelta(seconds=second)


# Out of order by up to three seconds, keys of different length, a null, a late one.
EVENTS: list[Row] = [
    ("ann", 1, at(0)),
    ("bob", 2, at(1)),
    ("", 3, at(4)),
    ("ann", 4, at(2)),
    ("cid", 5, at(9)),
    ("bob", 6, at(7)),
    ("ann", 7, at(12)),
    ("ann", 8, at(11)),
    ("ü", 9, at(14)),
    ("bob", 10, at(21)),
    ("bob", 11, at(1)),  # late for windows of ten seconds
    ("cid", 12, at(19)),
    (None, 13, at(24)),
    ("ann", 14, at(33)),
    ("ü", 15, at(31)),
    ("bob", 16, at(48)),
    ("cid", 17, at(47)),
]
OTHERS: list[Row] = [
    ("ann", 100, at(1)),
    ("cid", 200, at(8)),
    ("bob", 300, at(20)),
    ("zoe", 400, at(21)),
    ("ü", 500, at(33)),
]


@dataclass(frozen=True, kw_only=True)
class Case:
    """A flow over ``main`` (and perhaps ``other``), and what it must give."""

    name: str
    build: Callable[[rl.Flow, Streams], Mapping[str, Any]]
    expected: Callable[[Epochs], Mapping[str, Counter[Any]]]
    # Values that operators keep, by operator and key.
    state: Callable[[Epochs], Mapping[str, dict[Any, Any]]] = lambda _: {}
    inputs: Mapping[str, list[Row]] = field(default_factory=lambda: {"main": EVENTS})
    epoch_rows: int = 4

    def flow(self, sink: Callable[[str], Any]) -> rl.Flow:
        """Return the flow; ``sink`` makes one for each uid."""
        flow = rl.Flow("conformance", key_groups=16)
        streams = {
            uid: flow.read(rows(COLUMNS, given, bounded=True), uid=uid)
            for uid, given in self.inputs.items()
        }
        for uid, stream in self.build(flow, streams).items():
            stream.write(sink(uid), uid=uid)
        return flow

    @property
    def epochs(self) -> Epochs:
        """The rows of ``main`` by epoch; other inputs are read beside it."""
        given, size = self.inputs["main"], self.epoch_rows
        return [given[i : i + size] for i in range(0, len(given), size)]


def everything(epochs: Epochs) -> list[Row]:
    return [row for epoch in epochs for row in epoch]


# Steps without state.


def _stateless(flow: rl.Flow, streams: Streams) -> dict[str, Any]:
    kept = streams["main"].filter(lambda r: r.n % 2 == 0)
    doubled = kept.map(lambda r: (r.k, r.n * 2), "k string, n long")
    spread = doubled.flat_map(
        lambda r: [(r.k, r.n + i) for i in range(r.n % 3)], "k string, n long"
    )
    return {"out": doubled.union(spread)}


def _stateless_rows(epochs: Epochs) -> dict[str, Counter[Any]]:
    doubled = [(k, n * 2) for k, n, _ in everything(epochs) if n % 2 == 0]
    spread = [(k, n + i) for k, n in doubled for i in range(n % 3)]
    return {"out": Counter(doubled + spread)}


# A process: state, timers, a side output.


class Sums(rl.Process):
    output = "k string, total long"
    total = rl.Value("long", default=0)
    seen = rl.List("long")
    echoes = rl.SideOutput("k string, at timestamp")

    def on_event(self, event: Any, ctx: Any) -> Any:
        self.total += event.n
        self.seen.append(event.n)
        # A microsecond of its own each, so that no two timers are one.
        ctx.set_timer(event.at + timedelta(seconds=2, microseconds=event.n))
        yield ctx.key, self.total

    def on_timer(self, when: datetime, ctx: Any) -> None:
        ctx.emit(self.echoes, (ctx.key, when))


def _process(flow: rl.Flow, streams: Streams) -> dict[str, Any]:
    timed = streams["main"].event_time("at", delay="5 seconds")
    summed = timed.key_by("k").process(Sums(), uid="sums")
    return {"out": summed, "echoes": summed.side("echoes")}


def _process_rows(epochs: Epochs) -> dict[str, Counter[Any]]:
    sums, out = Counter[Any](), Counter[Any]()
    for k, n, _ in everything(epochs):
        sums[k] += n
        out[k, sums[k]] += 1
    echoes = [
        (k, when + timedelta(seconds=2, microseconds=n))
        for k, n, when in everything(epochs)
    ]
    return {"out": out, "echoes": Counter(echoes)}


def _sums(epochs: Epochs) -> dict[str, dict[Any, Any]]:
    found: Counter[Any] = Counter()
    for k, n, _ in everything(epochs):
        found[k] += n
    return {"sums": dict(found)}


# Windows: reduced, late rows aside, and an aggregator over all keys.


class Total(rl.Aggregator):
    acc = "long"
    output = "long"
    columns = ("n",)

    def create(self) -> int:
        return 0

    def add(self, acc: int, record: Any) -> int:
        return acc + int(record.n)

    def merge(self, a: int, b: int) -> int:
        return a + b

    def result(self, acc: int) -> int:
        return acc


def _windows(flow: rl.Flow, streams: Streams) -> dict[str, Any]:
    timed = streams["main"].event_time("at", delay="5 seconds")
    tumbling = timed.key_by("k").window(rl.tumbling("10 seconds"))
    summed = tumbling.reduce(
        lambda a, b: {"k": a.k, "n": a.n + b.n, "at": min(a.at, b.at)}, uid="windows"
    )
    totals = timed.window(rl.tumbling("10 seconds")).agg(total=Total(), uid="totals")
    listed = tumbling.agg(total=Total(), uid="per-key")
    columns = "k string, n long, s timestamp"
    return {
        "out": summed.map(lambda r: (r.k, r.n, r.window_start), columns),
        "late-rows": summed.late,
        "all": totals.map(lambda r: (r.total, r.window_start), "n long, s timestamp"),
        "each": listed.map(lambda r: (r.k, r.total, r.window_start), columns),
    }


def _start(when: datetime) -> datetime:
    return BEGIN + (when - BEGIN) // timedelta(seconds=10) * timedelta(seconds=10)


def _windows_rows(epochs: Epochs) -> dict[str, Counter[Any]]:
    windows: Counter[Any] = Counter()
    totals: Counter[Any] = Counter()
    late: Counter[Any] = Counter()
    newest: datetime | None = None
    for epoch in epochs:
        for k, n, when in epoch:
            start = _start(when)
            over = start + timedelta(seconds=10)
            if newest is not None and over <= newest - timedelta(seconds=5):
                late[k, n, when] += 1
                continue
            windows[k, start] += n
            totals[start] += n
        newest = max([when for *_, when in epoch] + ([newest] if newest else []))
    per_key = Counter((k, n, start) for (k, start), n in windows.items())
    return {
        "out": per_key,
        "late-rows": late,
        "all": Counter((n, start) for start, n in totals.items()),
        "each": per_key,
    }


# Sessions.


def _sessions(flow: rl.Flow, streams: Streams) -> dict[str, Any]:
    timed = streams["main"].event_time("at", delay="1 hour")
    sessions = timed.key_by("k").window(rl.sessions("6 seconds"))
    found = sessions.reduce(
        lambda a, b: {"k": a.k, "n": a.n + b.n, "at": min(a.at, b.at)}, uid="sessions"
    )
    columns = "k string, n long, s timestamp, e timestamp"
    return {
        "out": found.map(lambda r: (r.k, r.n, r.window_start, r.window_end), columns)
    }


def _sessions_rows(epochs: Epochs) -> dict[str, Counter[Any]]:
    gap, found = timedelta(seconds=6), Counter[Any]()
    by_key: dict[Any, list[tuple[datetime, int]]] = {}
    for k, n, when in everything(epochs):
        by_key.setdefault(k, []).append((when, n))
    for k, events in by_key.items():
        events.sort()
        begin, last, total = events[0][0], events[0][0], 0
        for when, n in events:
            if when - last > gap:
                found[k, total, begin, last + gap] += 1
                begin, total = when, 0
            last, total = when, total + n
        found[k, total, begin, last + gap] += 1
    return {"out": found}


# Two inputs: a join by time, and a process of the user's own.


def _join(flow: rl.Flow, streams: Streams) -> dict[str, Any]:
    left = streams["main"].event_time("at", delay="1 hour").key_by("k")
    columns = "k string, m long, t timestamp"
    others = streams["other"].map(lambda r: (r.k, r.n, r.at), columns)
    right = others.event_time("t", delay="1 hour").key_by("k")
    joined = left.join(right, within=("-3 seconds", "3 seconds"), uid="join")
    return {"out": joined.map(lambda r: (r.k, r.n, r.m), "k string, n long, m long")}


def _join_rows(epochs: Epochs) -> dict[str, Counter[Any]]:
    near = timedelta(seconds=3)
    return {
        "out": Counter(
            (k, n, m)
            for k, n, when in everything(epochs)
            for other, m, then in OTHERS
            if k == other and abs(when - then) <= near
        )
    }


class Debts(rl.TwoInputProcess):
    output = "k string, owed long"
    owed = rl.Value("long", default=0)

    def on_left(self, record: Any, ctx: Any) -> None:
        self.owed += record.n

    def on_right(self, record: Any, ctx: Any) -> None:
        self.owed -= record.n


def _connect(flow: rl.Flow, streams: Streams) -> dict[str, Any]:
    left, right = (streams[uid].key_by("k") for uid in ("main", "other"))
    return {"out": left.connect(right).process(Debts(), uid="debts")}


def _debts(epochs: Epochs) -> dict[str, dict[Any, Any]]:
    found: Counter[Any] = Counter()
    for k, n, _ in everything(epochs):
        found[k] += n
    for k, n, _ in OTHERS:
        found[k] -= n
    return {"debts": dict(found)}


# Records that make user code raise.


class Refusing(Sums):
    def on_event(self, event: Any, ctx: Any) -> Any:
        self.total += 1_000  # taken back
        if event.n % 5 == 0:
            raise ValueError(event.n)
        self.total -= 1_000
        return super().on_event(event, ctx)


def _halved(record: Any) -> tuple[Any, ...]:
    if record.n % 7 == 0:
        raise ValueError(record.n)
    return record.k, record.n, record.at


def _dead_letters(flow: rl.Flow, streams: Streams) -> dict[str, Any]:
    made = streams["main"].map(_halved, COLUMNS, uid="halved", on_error=DEAD["halved"])
    timed = made.event_time("at", delay="5 seconds")
    summed = timed.key_by("k").process(Refusing(), uid="sums", on_error=DEAD["sums"])
    return {"out": summed}


# Filled by the test: sinks of dead letters are part of the flow.
DEAD: dict[str, Any] = {}


def _well(epochs: Epochs) -> list[Row]:
    return [r for r in everything(epochs) if r[1] % 7 and r[1] % 5]


def _dead_rows(epochs: Epochs) -> dict[str, Counter[Any]]:
    dead = [r[1] for r in everything(epochs)]
    return {
        "out": _process_rows([_well(epochs)])["out"],
        "halved": Counter(("halved", f"ValueError: {n}") for n in dead if n % 7 == 0),
        "sums": Counter(
            ("sums", f"ValueError: {n}") for n in dead if n % 5 == 0 and n % 7
        ),
    }


# A broadcast stream, initial state.


class Scaled(rl.Process):
    output = "k string, n long"
    factor = rl.Value("long", default=1, scope="broadcast")
    base = rl.Value("long", default=0)

    def on_broadcast(self, record: Any, ctx: Any) -> None:
        self.factor = record.n

    def on_initial(self, record: Any, ctx: Any) -> None:
        self.base = record.base

    def on_event(self, event: Any, ctx: Any) -> Any:
        yield ctx.key, self.base + event.n * self.factor


def _broadcast(flow: rl.Flow, streams: Streams) -> dict[str, Any]:
    initial = ("k string, base long", [("ann", 1_000), ("ü", 2_000), ("new", 3_000)])
    keyed = streams["main"].key_by("k")
    scaled = keyed.process(
        Scaled(), broadcast=streams["rules"], initial=initial, uid="scaled"
    )
    return {"out": scaled}


def _broadcast_rows(epochs: Epochs) -> dict[str, Counter[Any]]:
    base = {"ann": 1_000, "ü": 2_000}
    found = [(k, base.get(k, 0) + n * 3) for k, n, _ in everything(epochs)]
    return {"out": Counter(found)}


# Operators behind operators, a step of the user's between them, read twice.


def _chain(flow: rl.Flow, streams: Streams) -> dict[str, Any]:
    timed = streams["main"].event_time("at", delay="5 seconds")
    summed = timed.key_by("k").process(Sums(), uid="sums")
    parity = summed.map(lambda r: (r.total % 2, r.total), "odd long, total long")
    counted = parity.key_by("odd").process(Counts(), uid="counts")
    return {"out": counted, "totals": parity}


class Counts(rl.Process):
    output = "odd long, times long"
    times = rl.Value("long", default=0)

    def on_event(self, event: Any, ctx: Any) -> Any:
        self.times += 1
        yield ctx.key, self.times


def _chain_rows(epochs: Epochs) -> dict[str, Counter[Any]]:
    totals = list(_process_rows(epochs)["out"].elements())
    parity = [(total % 2, total) for _, total in totals]
    times = Counter(odd for odd, _ in parity)
    return {
        "out": Counter((odd, i + 1) for odd, n in times.items() for i in range(n)),
        "totals": Counter(parity),
    }


CASES = [
    Case(name="stateless", build=_stateless, expected=_stateless_rows),
    Case(name="process", build=_process, expected=_process_rows, state=_sums),
    Case(name="windows", build=_windows, expected=_windows_rows),
    Case(name="sessions", build=_sessions, expected=_sessions_rows),
    Case(
        name="join",
        build=_join,
        expected=_join_rows,
        inputs={"main": EVENTS, "other": OTHERS},
    ),
    Case(
        name="connect",
        build=_connect,
        expected=lambda _: {"out": Counter()},
        state=_debts,
        inputs={"main": EVENTS, "other": OTHERS},
    ),
    Case(name="dead letters", build=_dead_letters, expected=_dead_rows),
    Case(
        name="broadcast",
        build=_broadcast,
        expected=_broadcast_rows,
        inputs={"main": EVENTS, "rules": [("all", 3, at(0))]},
    ),
    Case(name="chain", build=_chain, expected=_chain_rows, state=_sums),
]
