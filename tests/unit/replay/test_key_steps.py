"""A replay of one key shows its events, the state around each, and the rows."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import riverlock as rl
from riverlock.replay.key_steps import KeySteps
from riverlock.testing import harness


class Total(rl.Process):
    output = "user string, total double"

    spent = rl.Value("double", default=0.0)
    seen = rl.List("double")
    by_shop = rl.Map("string", "long")
    best = rl.Reducing("double", max)

    def on_event(self, record: Any, ctx: rl.Context) -> Iterator[Any]:
        self.spent += record.amount
        self.seen.append(record.amount)
        self.by_shop["a"] = self.by_shop.get("a", 0) + 1
        self.best.add(record.amount)
        ctx.set_timer(datetime(2024, 1, 1, tzinfo=UTC))
        yield record.user, self.spent
        yield record.user, -self.spent

    def on_timer(self, at: datetime, ctx: rl.Context) -> None:
        del self.spent


def test_each_event_has_state_before_and_after_and_its_rows() -> None:
    columns = "user string, amount double, at timestamp"
    plain = harness(Total(), key="user", input=columns, event_time="at")
    h = harness(Total(), key="user", input=columns, event_time="at")
    steps = KeySteps()
    h._program = steps.watch(h._program)

    for each in (plain, h):
        each.send({"user": "ann", "amount": 3.0})
        each.send({"user": "ann", "amount": 1.0})
        each.advance_watermark(datetime(2024, 1, 2, tzinfo=UTC))

    assert h.output == plain.output
    first, second, timer = steps.steps
    assert first.before == {"spent": 0.0, "seen": [], "by_shop": {}, "best": None}
    assert first.after == {
        "spent": 3.0,
        "seen": [3.0],
        "by_shop": {"a": 1},
        "best": 3.0,
    }
    assert (second.before, second.epoch, second.what) == (first.after, 2, "event")
    assert second.rows == (("ann", 4.0), ("ann", -4.0))
    assert "amount=1.0" in second.given
    assert (timer.what, timer.given) == ("timer", "2024-01-01 00:00:00+00:00")
    assert (timer.before["spent"], timer.after["spent"]) == (4.0, 0.0)


def test_our_own_operators_are_left_alone() -> None:
    from riverlock.operators.by_key.reduce import Reduce

    h = harness(Reduce(lambda a, b: b), key="user", input="user string")
    watched = KeySteps().watch(h._program)

    assert watched is h._program
    assert dataclasses.replace(watched) == h._program
