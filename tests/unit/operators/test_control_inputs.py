"""Control inputs: records that change state and timers, and emit nothing."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import riverlock as rl
from riverlock.core.errors import InvalidFlowError, UserCodeError
from riverlock.testing import rows, run_local

START = datetime(2026, 1, 1, tzinfo=UTC)
ORDERS = "user string, amount long"
LIMITS = "user string, most long"


class Limit(rl.Process):
    """Lets orders pass up to a limit that a control input sets."""

    output = "user string, amount long"
    most = rl.Value("long", default=10)
    odd = rl.SideOutput("user string")

    def on_control(self, limit: Any, ctx: rl.Context) -> None:
        self.most = limit.most

    def on_event(self, order: Any, ctx: rl.Context) -> Any:
        if order.amount <= self.most:
            yield order.user, order.amount


def limited(process: rl.Process, *, on_error: Any = None) -> rl.Flow:
    flow = rl.Flow("limited", key_groups=8)
    orders = flow.read(rows(ORDERS, []), uid="orders")
    limits = flow.read(rows(LIMITS, []), uid="limits")
    passed = orders.key_by("user").process(
        process, control=limits, uid="limit", on_error=on_error
    )
    passed.write(rl.sinks.memory(), uid="out")
    return flow


def test_controls_of_an_epoch_come_before_its_records() -> None:
    flow = limited(Limit())
    run = run_local(flow, {"orders": [("a", 11), ("a", 9)]})
    assert run.rows("out") == [("a", 9)]
    run.epoch({"orders": [("a", 50)], "limits": [("a", 100), ("b", 1)]})
    run.epoch({"orders": [("a", 101), ("b", 2), ("b", 1)]})
    assert run.rows("out") == [("a", 9), ("a", 50), ("b", 1)]


def test_a_control_sets_timers() -> None:
    class Closing(Limit):
        def on_control(self, limit: Any, ctx: rl.Context) -> None:
            ctx.set_timer(ctx.now + timedelta(minutes=1), processing=True)

        def on_timer(self, at: datetime, ctx: rl.Context) -> Any:
            yield ctx.key, 0

    run = run_local(limited(Closing()), {"limits": [("a", 1)]})
    assert run.rows("out") == []
    run.clock.advance("2 minutes")
    run.epoch({})
    assert run.rows("out") == [("a", 0)]


def test_a_control_that_emits_is_told_with_its_line() -> None:
    class Emits(Limit):
        def on_control(self, limit: Any, ctx: rl.Context) -> None:
            if limit.most > 5:
                ctx.emit(self.odd, (limit.user,))  # this line
            self.most = limit.most

    flow = limited(Emits())
    with pytest.raises(UserCodeError, match="on_control cannot emit") as told:
        run_local(flow, {"limits": [("a", 1), ("a", 6)]})
    assert told.value.where == "on_control"
    assert "# this line" in told.value.line
    assert "6" in str(told.value.record)


def test_a_control_that_returns_rows_is_told() -> None:
    class Returns(Limit):
        def on_control(self, limit: Any, ctx: rl.Context) -> Any:
            return [(limit.user, 1)]

    with pytest.raises(UserCodeError, match="only on_event") as told:
        run_local(limited(Returns()), {"limits": [("a", 1)]})
    assert "def on_control" in told.value.line


def test_a_control_with_a_yield_is_refused_when_the_flow_is_built() -> None:
    class Yields(Limit):
        def on_control(self, limit: Any, ctx: rl.Context) -> Any:
            yield limit.user, 1

    with pytest.raises(InvalidFlowError, match="on_control of operator 'limit'") as e:
        limited(Yields())
    assert "def on_control" in e.value.line


def test_what_a_control_raises_goes_to_the_dead_letters() -> None:
    class Raises(Limit):
        def on_control(self, limit: Any, ctx: rl.Context) -> None:
            self.most = 99
            if limit.most < 0:
                message = "negative"
                raise ValueError(message)
            self.most = limit.most

    flow = limited(Raises(), on_error=rl.sinks.memory())
    given = {"limits": [("a", 20), ("a", -1)], "orders": [("a", 30), ("a", 15)]}
    run = run_local(flow, given)
    assert run.rows("out") == [("a", 15)]
    assert [row[0] for row in run.rows("limit-dead")] == ["limit"]


@pytest.mark.parametrize(
    ("control", "expected"),
    [
        ("usr string, most long", "did you mean 'usr'?"),
        ("user long, most long", "cast one of them"),
    ],
)
def test_a_control_has_the_same_key_columns(control: str, expected: str) -> None:
    flow = rl.Flow("keys")
    orders = flow.read(rows(ORDERS, []), uid="orders").key_by("user")
    limits = flow.read(rows(control, []), uid="limits")
    with pytest.raises(InvalidFlowError) as told:
        orders.process(Limit(), control=limits, uid="limit")
    assert expected in told.value.hint


def test_what_is_no_control_input_is_refused() -> None:
    class Plain(rl.Process):
        def on_event(self, order: Any, ctx: rl.Context) -> None: ...

    flow = rl.Flow("none")
    orders = flow.read(rows(ORDERS, []), uid="orders").key_by("user")
    limits = flow.read(rows(LIMITS, []), uid="limits")
    with pytest.raises(InvalidFlowError, match="a method on_control"):
        orders.process(Plain(), control=limits, uid="a")
    with pytest.raises(InvalidFlowError, match="leave out its key_by"):
        orders.process(Limit(), control=limits.key_by("user"), uid="b")  # type: ignore[arg-type]
    with pytest.raises(InvalidFlowError, match="without broadcast="):
        orders.process(Limit(), control=limits, broadcast=limits, uid="c")
    other = rl.Flow("other").read(rows(LIMITS, []), uid="limits")
    with pytest.raises(InvalidFlowError, match="a stream of the same flow"):
        orders.process(Limit(), control=other, uid="d")


def test_a_drawing_shows_which_input_controls() -> None:
    text = str(limited(Limit()).graph)
    assert "control" in text
    assert "right" not in text


class Adapting(rl.Process):
    """Lets amounts pass up to a limit, which what has passed makes smaller."""

    output = "user string, most long"
    most = rl.Value("long", default=100)
    passed = rl.Value("long", default=0)

    def on_control(self, limit: Any, ctx: rl.Context) -> None:
        self.most = limit.most

    def on_event(self, order: Any, ctx: rl.Context) -> Any:
        if order.amount <= self.most:
            self.passed += 1
            yield order.user, self.most - 1


def adapting(given: list[Any]) -> rl.Flow:
    flow = rl.Flow("adapting", key_groups=8)
    orders = flow.read(rows(ORDERS, given), uid="orders")
    again = flow.loop("user string, most long", uid="limits")
    orders.key_by("user").process(Adapting(), control=again, uid="adapts").feed(again)
    return flow


@pytest.mark.parametrize("protocol", ["aligned", "unaligned", "drain", "epochs"])
def test_a_loop_that_comes_back_to_a_control_input_empties(
    tmp_path: Path, protocol: Any
) -> None:
    store, given = str(tmp_path / "s"), [("a", 1), ("b", 2)] * 40
    flow = adapting(given)
    handle = flow.start(store, execution="local", max_rows_per_epoch=4)
    named = handle.savepoint("v", protocol=protocol)
    handle.stop()
    if protocol == "drain":
        assert not any(span.rows for span in named.in_flight)
    status = flow.run(store, execution="local", available_now=True)
    assert status.loops == {"limits": 0}
    found = rl.open(store).state("adapts").to_arrow().to_pylist()
    assert {row["user"]: row["passed"] for row in found} == {"a": 40, "b": 40}
    # Each row that passed has lowered the limit of its epoch by one, and no more.
    assert all(0 < 100 - row["most"] <= 40 for row in found)
