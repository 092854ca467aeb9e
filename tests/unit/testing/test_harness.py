from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from riverlock.core.errors import InvalidConfigError, InvalidFlowError, UserCodeError
from riverlock.core.times import minutes
from riverlock.program.process import Process
from riverlock.state.spec import List, Value
from riverlock.testing import ManualClock, harness

T = datetime(2024, 1, 1, tzinfo=UTC)


class Total(Process):
    output = "user string, total double"
    total = Value("double", default=0.0)
    recent = List("double")

    def on_event(self, order: Any, ctx: Any) -> Iterator[Any]:
        self.total += order.amount
        self.recent.append(order.amount)
        ctx.set_timer(ctx.now + minutes(10), processing=True)
        yield order.user, self.total

    def on_timer(self, at: datetime, ctx: Any) -> None:
        del self.total


class Named(Total):
    name = Value("string", default="nobody")


def make(process: Process | None = None) -> Any:
    return harness(process or Total(), key="user", input="user string, amount double")


def test_send_takes_dictionaries_and_tuples_and_returns_the_new_rows() -> None:
    h = make()

    assert h.send({"user": "ann", "amount": 1.0}, ("ann", 2)) == [
        ("ann", 1.0),
        ("ann", 3.0),
    ]
    assert h.send(("bob", 1)) == [("bob", 1.0)]
    assert h.send() == []
    assert len(h.output) == 3
    assert h.rows()[-1] == {"user": "bob", "total": 1.0}


def test_epoch_puts_everything_into_one_epoch() -> None:
    h = make()
    with h.epoch():
        h.send(("ann", 1))
        h.send(("bob", 1), ("ann", 2))

    assert h.epochs == 1
    assert sorted(h.output) == [("ann", 1.0), ("ann", 3.0), ("bob", 1.0)]


def test_epoch_that_fails_can_be_tried_again() -> None:
    h = make()

    with pytest.raises(UserCodeError):
        h.send(("ann", None))
    h.send(("ann", 1))

    assert h.output == [("ann", 1.0)]


def test_restart_goes_on_from_a_snapshot() -> None:
    h = make()
    h.send(("ann", 1), ("bob", 5))
    saved = h.snapshot()
    h.send(("ann", 100))

    again = h.restart(saved)
    again.send(("ann", 2))

    assert again.output == [("ann", 3.0)]
    assert again.state("recent", "ann") == [1.0, 2.0]
    assert again.keys() == ["ann", "bob"]
    assert again.timers("bob", processing=True) == [T + minutes(10)]
    again.advance_clock("10 minutes")
    assert again.state("total", "bob") is None
    assert h.state("total", "ann") == 101.0


def test_restart_with_changed_code_keeps_what_both_declare() -> None:
    h = make()
    h.send(("ann", 1))

    again = h.restart(h.snapshot(), Named())
    again.send(("ann", 2))

    assert again.output == [("ann", 3.0)]
    assert again.state("name", "ann") is None


def test_clock_and_watermark_can_be_set_and_moved() -> None:
    clock = ManualClock(0)
    h = harness(Total(), key="user", input="user string, amount double", clock=clock)

    h.set_clock(T)
    h.advance_clock(minutes(1))
    h.advance_watermark(T)
    h.advance_watermark("5 minutes")

    assert clock.now_us() == 1_704_067_260_000_000
    assert h.watermark == T + minutes(5)


@pytest.mark.parametrize(
    "options",
    [
        {"key": "usr"},
        {"key": "user", "event_time": "at"},
    ],
)
def test_unknown_columns_are_refused(options: Any) -> None:
    with pytest.raises(InvalidConfigError, match="one of the columns user, amount"):
        harness(Total(), input="user string, amount double", **options)


def test_class_instead_of_instance_is_refused() -> None:
    with pytest.raises(InvalidFlowError, match="Total"):
        harness(Total, key="user", input="user string")  # type: ignore[arg-type]


def test_undeclared_inputs_and_states_are_refused() -> None:
    h = make()

    with pytest.raises(InvalidConfigError, match="broadcast"):
        h.broadcast({"x": 1})
    with pytest.raises(InvalidConfigError, match="total"):
        h.state("totl", "ann")


def test_harness_loads_neither_spark_nor_lmdb() -> None:
    program = (
        "import sys, riverlock.testing;"
        "sys.exit(any(m in sys.modules for m in ('pyspark', 'lmdb', 'py4j')))"
    )

    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
