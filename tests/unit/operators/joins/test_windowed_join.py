from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import riverlock as rl
from riverlock.core.errors import InvalidFlowError
from riverlock.core.times import END_US, from_micros
from riverlock.operators.joins.windowed_join import WindowedJoin
from riverlock.testing import harness, run_local

T = datetime(2026, 1, 1, tzinfo=UTC)
LEFT = "user string, n long, at timestamp"
RIGHT = "name string, p long, paid timestamp"


def at(minutes: float) -> datetime:
    return T + timedelta(minutes=minutes)


def make(how: str, window: Any) -> Any:
    return harness(
        WindowedJoin(how, ("name",), window),
        key="user",
        input=LEFT,
        event_time="at",
        right=RIGHT,
        right_key="name",
        right_event_time="paid",
    )


def streams(left: str = LEFT) -> tuple[rl.Flow, Any, Any]:
    flow = rl.Flow("shop")
    orders = flow.read(rl.sources.files("l", format="json", schema=left), uid="l")
    paid = flow.read(rl.sources.files("r", format="json", schema=RIGHT), uid="r")
    return (
        flow,
        orders.event_time("at").key_by("user"),
        paid.event_time("paid").key_by("name"),
    )


def test_a_window_is_given_when_its_last_instant_is_over() -> None:
    h = make("inner", rl.tumbling("10 minutes"))
    h.send(("ann", 1, at(0)), ("ann", 2, at(12)))
    h.send_right(("ann", 7, at(9)), ("bob", 8, at(1)))

    h.advance_watermark(at(10) - timedelta(microseconds=2))
    assert h.output == []

    h.advance_watermark(at(10) - timedelta(microseconds=1))
    assert h.output == [("ann", 1, at(0), 7, at(9), at(0), at(10))]
    assert h.state("panes", key="ann") == [at(20).timestamp() * 1e6]
    assert h.keys() == ["ann"]


def test_a_record_is_late_if_all_its_windows_are_over() -> None:
    h = make("left", rl.sliding("10 minutes", "5 minutes"))
    h.advance_watermark(at(10) - timedelta(microseconds=1))

    h.send(("ann", 1, at(6)), ("ann", 2, at(4)), ("ann", 3, None))
    h.send(("ann", 4, from_micros(END_US)))  # its window would never be over
    h.advance_watermark(at(60))

    # Of the two windows of the first record one was over.
    assert h.output == [("ann", 1, at(6), None, None, at(5), at(15))]
    assert [row.n for _, _, row, _ in h.side("late")] == [2, 3, 4]
    assert h.keys() == []


def test_windowed_join_runs_without_spark() -> None:
    flow, orders, payments = streams()
    joined = orders.join(payments, window=rl.tumbling("10m"), how="full", uid="join")
    joined.write(rl.sinks.memory(), uid="out")
    joined.late.write(rl.sinks.memory(), uid="late")

    run = run_local(
        flow,
        {
            "l": [("ann", 1, at(1)), ("end", 0, at(99)), ("ann", 2, at(3))],
            "r": [("ann", 7, at(2)), ("bob", 8, at(11)), ("end", 0, at(99))],
        },
        epoch_rows=1,
    )

    assert sorted(run.rows("out"), key=str) == [
        ("ann", 1, at(1), 7, at(2), at(0), at(10)),
        ("bob", None, None, 8, at(11), at(10), at(20)),
    ]
    assert [row.n for _, _, row, _ in run.rows("late")] == [2]


@pytest.mark.parametrize(
    "window",
    [rl.sessions("1 minute"), rl.sliding("1 minute", "2 minutes"), "1 minute"],
)
def test_windows_without_gaps_are_expected(window: Any) -> None:
    _, orders, payments = streams()

    with pytest.raises(InvalidFlowError, match="without gaps"):
        orders.join(payments, window=window)


def test_a_join_has_bounds_or_a_window() -> None:
    _, orders, payments = streams()

    with pytest.raises(InvalidFlowError, match=r"either within=.* got none"):
        orders.join(payments)
    with pytest.raises(InvalidFlowError, match=r"either within=.* got both"):
        orders.join(payments, within=("0s", "1s"), window=rl.tumbling("1m"))


def test_columns_of_the_window_must_be_free() -> None:
    flow, orders, payments = streams(f"{LEFT}, window_end long")
    orders.join(payments, window=rl.tumbling("1m")).write(rl.sinks.memory())

    with pytest.raises(InvalidFlowError, match="which it adds"):
        run_local(flow, {"l": [("ann", 1, at(1), 5)], "r": []})
