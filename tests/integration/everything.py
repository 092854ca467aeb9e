"""A process with every kind of state, the same as a plain loop, and one with timers."""

from __future__ import annotations

from collections import Counter
from typing import Any

from tests.integration.orders import Row

import riverlock as rl


class Everything(rl.Process):
    """Uses every kind of state; gives a row per event."""

    output = (
        "user string, n bigint, spent double, best double, seen bigint, last bigint"
    )
    spent = rl.Value("double", default=0.0)
    best = rl.Reducing("double", max)
    recent = rl.List("bigint")
    by_digit = rl.Map("bigint", "bigint")
    odd = rl.SideOutput("user string, n bigint")

    def on_event(self, order: Any, ctx: Any) -> Any:
        self.spent += order.amount
        self.best.add(order.amount)
        self.recent = [*self.recent, order.n][-3:]
        digit = order.n % 10
        self.by_digit[digit] = self.by_digit.get(digit, 0) + 1
        if order.amount == 99.0:
            ctx.emit(self.odd, (order.user, order.n))
        yield (
            ctx.key,
            order.n,
            self.spent,
            self.best.value,
            self.by_digit[digit],
            self.recent[0],
        )


def fold(orders: list[Row]) -> tuple[list[Row], dict[Any, Any]]:
    """The same logic as Everything, written as a plain loop."""
    rows: list[Row] = []
    states: dict[Any, Any] = {}
    for user, n, amount, _ in orders:
        s = states.setdefault(
            user, {"spent": 0.0, "best": None, "recent": [], "digits": Counter()}
        )
        s["spent"] += amount
        s["best"] = amount if s["best"] is None else max(s["best"], amount)
        s["recent"] = [*s["recent"], n][-3:]
        s["digits"][n % 10] += 1
        rows.append(
            (user, n, s["spent"], s["best"], s["digits"][n % 10], s["recent"][0])
        )
    return rows, states


class Sessions(rl.Process):
    """Counts events until 20 seconds pass without one."""

    output = "user string, n bigint, closed timestamp"
    n = rl.Value("bigint", default=0)
    last = rl.Value("timestamp")

    def on_event(self, e: Any, ctx: Any) -> None:
        if self.last is not None:
            ctx.delete_timer(self.last + rl.seconds(20))
        self.n += 1
        self.last = max(self.last or ctx.time, ctx.time)
        ctx.set_timer(self.last + rl.seconds(20))

    def on_timer(self, at: Any, ctx: Any) -> Any:
        yield ctx.key, self.n, at
        del self.n
        del self.last
