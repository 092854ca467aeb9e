"""Every record is in a result or in ``late``, however late it comes (faults 37, 38)."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

import riverlock as rl
from riverlock.testing import run_local
from riverlock.testing.local import LocalRun

T = datetime(2026, 1, 1, tzinfo=UTC)
COLUMNS = "k string, n long, at timestamp"
# When it is read, everything before it is over.
END = ("end", -1, T + timedelta(days=1))
Record = tuple[str, int, datetime | None]
# Far more out of order than the delay allows, and on its very edge.
TIMES = st.none() | st.integers(0, 12).map(lambda n: T + timedelta(seconds=5 * n))
RECORDS = st.lists(st.tuples(st.sampled_from("ab"), TIMES), max_size=16).map(
    lambda drawn: [(k, n, at) for n, (k, at) in enumerate(drawn)]
)


def numbers(key: Any, window: Any, records: list[Any]) -> list[Any]:
    return [(key, window.start, [r.n for r in records])]


def renamed(record: Any) -> Any:
    return record.k, record.n, record.at


def any_event(pattern: str) -> Any:
    return rl.pattern(pattern, lambda e: True).within("1 second")


def operators() -> rl.Flow:
    """All that can find a record too late, each with its ``late``."""
    flow = rl.Flow("late")
    source = rl.sources.files("in", format="json", schema=COLUMNS)
    rows = flow.read(source, uid="in").event_time("at", delay="10 seconds")
    keyed = rows.key_by("k")
    others = rows.map(renamed, "k2 string, n2 long, at2 timestamp").key_by("k2")
    windows = keyed.window(rl.tumbling("10 seconds"), lateness="10 seconds")
    made = {
        "window": windows.apply(
            numbers, "k string, start timestamp, n array<long>", uid="window"
        ),
        "match": keyed.match(
            any_event("e"), "n long", lambda m: (m["e"].n,), uid="match"
        ),
        "join": keyed.join(others, within=("0s", "5s"), how="full", uid="join"),
        "latest": keyed.join_latest(others, how="left", uid="latest"),
    }
    for uid, stream in made.items():
        stream.write(rl.sinks.memory(), uid=f"{uid}-out")
        stream.late.write(rl.sinks.memory(), uid=f"{uid}-late")
    return flow


def played(records: list[Record], size: int) -> LocalRun:
    return run_local(operators(), {"in": [*records, END]}, epoch_rows=size)


@settings(max_examples=15)
@given(RECORDS, st.integers(1, 6))
def test_results_and_late_records_are_the_input(
    records: list[Record], size: int
) -> None:
    run = played(records, size)

    every = Counter(n for _, n, _ in records)
    # A window that is corrected is given again, whole: the last one counts.
    last = {(k, start): ns for k, start, ns in run.rows("window-out")}
    in_windows = Counter(n for ns in last.values() for n in ns)
    assert in_windows + Counter(n for _, n, _ in run.rows("window-late")) == every
    matched = Counter(n for (n,) in run.rows("match-out"))
    assert matched + Counter(n for _, n, _ in run.rows("match-late")) == every
    both = {"left": Counter[int](), "right": Counter[int]()}
    for side, _, left, right in run.rows("join-late"):
        both[side][left.n if side == "left" else right.n2] += 1
    lefts = {row[1] for row in run.rows("join-out")} - {None, -1}
    rights = {row[3] for row in run.rows("join-out")} - {None, -1}
    assert Counter(lefts) + both["left"] == every
    assert Counter(rights) + both["right"] == every
    of_latest = Counter(row[1] for row in run.rows("latest-out"))
    of_latest += Counter(x.n for s, _, x, _ in run.rows("latest-late") if s == "left")
    assert of_latest - Counter([-1]) == every
    for uid in ("window", "match", "join", "latest"):
        assert run.operator(uid).late_rows == len(run.rows(f"{uid}-late"))


@settings(max_examples=8)
@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 40)), max_size=10),
    st.lists(st.integers(0, 9), max_size=12),
    st.integers(1, 5),
)
def test_duplicates_are_data_unless_they_are_asked_to_go(
    drawn: list[tuple[str, int]], again: list[int], size: int
) -> None:
    once = [(k, n, T + timedelta(seconds=t)) for n, (k, t) in enumerate(drawn)]
    sent = [*once, *(once[place] for place in again if place < len(once))]
    flow = rl.Flow("twice")
    source = rl.sources.files("in", format="json", schema=COLUMNS)
    rows = flow.read(source, uid="in").event_time("at", delay="40 seconds")
    distinct = rows.key_by("n").deduplicate("1 hour", uid="once")
    for name, stream in (("all", rows), ("distinct", distinct)):
        counted = stream.key_by("k").window(rl.tumbling("20 seconds"))
        counted.apply(
            numbers, "k string, start timestamp, n array<long>", uid=name
        ).write(rl.sinks.memory(), uid=f"{name}-out")

    run = run_local(flow, {"in": [*sent, END]}, epoch_rows=size)

    def counted_in(sink: str) -> Counter[int]:
        return Counter(n for _, _, ns in run.rows(sink) for n in ns)

    assert counted_in("all-out") == Counter(n for _, n, _ in sent)
    assert counted_in("distinct-out") == Counter(range(len(once)))
