"""Output modes: which rows can be replaced, and what is said of those that cannot."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

import riverlock as rl
from riverlock.core.errors import InvalidFlowError

HOURS = rl.tumbling("1 hour")
EARLY = rl.early(count=2)
# Windows without rows that could be replaced, why, and what the error says instead.
REFUSED: dict[str, tuple[Callable[[Any], rl.Stream], str, str]] = {
    "sessions": (
        lambda keyed: keyed.window(rl.sessions("1 hour")).count(),
        "would have to be deleted",
        "trigger=rl.early",
    ),
    "counted": (
        lambda keyed: keyed.window(rl.count_windows(2)).count(),
        "given once, when it is full",
        r"use \.key_by\(\.\.\.\)\.agg",
    ),
    "global": (
        lambda keyed: keyed.window(rl.global_window(), trigger=EARLY).count(),
        "each firing of a global window",
        "for a row per key",
    ),
    "triggered": (
        lambda keyed: keyed.window(HOURS, trigger=EARLY).count(),
        "each firing of a window",
        "leave the trigger out and keep the mode",
    ),
    "triggered sessions": (
        lambda keyed: keyed.window(rl.sessions("1 hour"), trigger=EARLY).count(),
        "each firing of a window",
        "leave the mode out",
    ),
    "joined": (
        lambda keyed: keyed.join(keyed, window=HOURS),
        "window of a join is given once",
        "leave the mode out",
    ),
    "applied": (
        lambda keyed: keyed.window(HOURS).apply(
            lambda *_: [], "k string, window_start timestamp, n long"
        ),
        "of which key and window they are: window_end missing",
        "add them to the columns of the function",
    ),
}


def stream(flow: rl.Flow) -> rl.Stream:
    columns = "k string, v long, at timestamp"
    source = rl.sources.files("in", format="json", schema=columns)
    return flow.read(source).event_time("at")


@pytest.mark.parametrize("mode", ["update", "complete"])
@pytest.mark.parametrize("name", REFUSED)
def test_windows_whose_rows_cannot_be_replaced_say_why(name: str, mode: str) -> None:
    made, why, instead = REFUSED[name]
    flow = rl.Flow("modes")
    rows = made(stream(flow).key_by("k"))
    uid = flow.keyed[-1].uid

    with pytest.raises(InvalidFlowError, match=f"mode '{mode}' of '{uid}'") as raised:
        rows.write(rl.sinks.memory(), mode=mode)

    assert re.search(why, str(raised.value))
    assert re.search(instead, str(raised.value))
    rows.write(rl.sinks.memory(), mode="append")


def test_rows_of_a_key_change_and_those_of_windows_do_not() -> None:
    flow, memory = rl.Flow("modes"), rl.sinks.memory()
    keyed = stream(flow).key_by("k")
    totals, hours = keyed.agg(n="count(*)", uid="totals"), keyed.window(HOURS).count()

    with pytest.raises(InvalidFlowError, match="mode 'append' of 'totals'") as raised:
        totals.write(memory, mode="append")
    assert "rows that change with every epoch" in str(raised.value)
    totals.write(memory, mode="update", uid="totals-out")
    hours.write(memory, mode="append", uid="appended")
    hours.write(memory, mode="update", uid="updated")

    outputs = {w.uid: getattr(w.input, "name", None) for w in flow.writes}
    assert outputs == {"totals-out": "main", "appended": "main", "updated": "updates"}


def test_functions_over_windows_have_rows_that_can_be_replaced() -> None:
    flow = rl.Flow("modes")
    windows = stream(flow).key_by("k").window(HOURS)
    span = "window_start timestamp, window_end timestamp"
    made = {
        "reduced": windows.reduce(lambda old, _: old),
        "applied": windows.apply(lambda *_: [], f"{span}, k string"),
        "best": windows.top(3, by="v"),
    }
    for uid, rows in made.items():
        rows.write(rl.sinks.memory(), mode="update", uid=uid)
        rows.write(rl.sinks.memory(), mode="complete", uid=f"all-{uid}")

    tables = {k.uid: k.keys for k in flow.keyed if k.uid.endswith("-table")}
    window = ("k", "window_start", "window_end")
    assert tables == {
        "all-reduced-table": window,
        "all-applied-table": window,
        "all-best-table": (*window, "rank"),
    }
