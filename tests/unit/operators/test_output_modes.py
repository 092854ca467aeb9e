"""Output modes: which rows can be replaced, and what is said of those that cannot."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

import riverlock as rl
from riverlock.core.errors import InvalidFlowError
from riverlock.flow.inside import program_of

HOURS = rl.tumbling("1 hour")
EARLY = rl.early(count=2)
# Windows without rows that could be replaced, why, and what the error says instead.
REFUSED: dict[str, tuple[Callable[[Any], rl.Stream], str, str]] = {
    "discarding": (
        lambda keyed: keyed.window(HOURS, trigger=EARLY, accumulate=False).count(),
        "each firing holds the records since the last one",
        "leave accumulate=False out",
    ),
    "discarding for ever": (
        lambda keyed: keyed.window(
            rl.global_window(), trigger=EARLY, accumulate=False
        ).count(),
        "each firing holds the records since the last one",
        "leave the mode out",
    ),
    "joined": (
        lambda keyed: keyed.join(keyed, window=HOURS),
        "window of a join emits once",
        "leave the mode out",
    ),
    "applied": (
        lambda keyed: keyed.window(HOURS).apply(
            lambda *_: [], "k string, window_start timestamp, n long"
        ),
        "of which key and window they are: window_end missing",
        "add them to the columns of the function",
    ),
    "applied to counted": (
        lambda keyed: keyed.window(rl.count_windows(2)).apply(
            lambda *_: [], "k string, n long"
        ),
        "first_record and last_record missing",
        "add them to the columns of the function",
    ),
    "applied to all": (
        lambda keyed: keyed.window(rl.global_window(), trigger=EARLY).apply(
            lambda *_: [], "n long"
        ),
        "they are: k missing",
        "add them to the columns of the function",
    ),
    "applied to sessions": (
        lambda keyed: keyed.window(rl.sessions("1 hour")).apply(
            lambda *_: [], "k string, window_end timestamp"
        ),
        "they are: window_start missing",
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
    uid = program_of(flow).keyed[-1].uid

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

    outputs = {w.uid: getattr(w.input, "name", None) for w in program_of(flow).writes}
    assert outputs == {"totals-out": "main", "appended": "main", "updated": "updates"}


def test_windows_of_all_kinds_have_rows_that_can_be_replaced() -> None:
    flow = rl.Flow("modes")
    keyed = stream(flow).key_by("k")
    windows = keyed.window(HOURS)
    span = "window_start timestamp, window_end timestamp"
    made = {
        "reduced": windows.reduce(lambda old, _: old),
        "applied": windows.apply(lambda *_: [], f"{span}, k string"),
        "best": windows.top(3, by="v"),
        "early": keyed.window(HOURS, trigger=EARLY).count(),
        "sessions": keyed.window(rl.sessions("1 hour")).count(),
        "early-sessions": keyed.window(rl.sessions("1 hour"), trigger=EARLY).count(),
        "counted": keyed.window(rl.count_windows(3)).count(),
        "global": keyed.window(rl.global_window(), trigger=EARLY).count(),
    }
    for uid, rows in made.items():
        rows.write(rl.sinks.memory(), mode="update", uid=uid)
        rows.write(rl.sinks.memory(), mode="complete", uid=f"all-{uid}")

    tables = {k.uid: k.keys for k in program_of(flow).keyed if k.uid.endswith("-table")}
    window = ("k", "window_start", "window_end")
    assert tables == {
        "all-reduced-table": window,
        "all-applied-table": window,
        "all-best-table": (*window, "rank"),
        "all-early-table": window,
        "all-sessions-table": window,
        "all-early-sessions-table": window,
        "all-counted-table": ("k", "first_record", "last_record"),
        "all-global-table": ("k",),
    }


def test_sessions_need_sinks_that_take_rows_back() -> None:
    flow, url = rl.Flow("modes"), "sqlite:///sessions.db"
    rows = stream(flow).key_by("k").window(rl.sessions("1 hour")).count()
    upsert: Any = {"table": "t", "how": "upsert", "key": ["k", "window_start"]}
    for sink in (
        rl.sinks.sql(url, **upsert),
        rl.sinks.sql(url, deletes="other", **upsert),
        rl.sinks.redis("redis://localhost", key="{k}"),
    ):
        with pytest.raises(InvalidFlowError, match="which would keep it") as raised:
            rows.write(sink, mode="update")
        assert "deletes='gone'" in str(raised.value)
        rows.write(sink, mode="append")

    rows.write(rl.sinks.sql(url, deletes="gone", **upsert), mode="update")
    rows.write(rl.sinks.sql(url, table="log"), mode="update")
    rows.write(rl.sinks.redis("redis://h", key="k", shape="stream"), mode="update")
    rows.write(rl.sinks.files("out", format="json"), mode="update")
