from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import riverlock as rl
from riverlock.testing import run_local

T = datetime(2026, 1, 1, tzinfo=UTC)
MOMENT = timedelta(microseconds=1)
COLUMNS = "user string, n long, at timestamp"


def at(seconds: int) -> datetime:
    return T + timedelta(seconds=seconds)


def clicks(flow: rl.Flow) -> rl.Stream:
    source = rl.sources.files("in", format="json", schema=COLUMNS)
    return flow.read(source, uid="in").event_time("at", delay="5 seconds")


class Times(rl.Process):
    output = "user string, at timestamp, time timestamp, watermark timestamp"

    def on_event(self, event: Any, ctx: Any) -> Any:
        ctx.set_timer(ctx.time + rl.seconds(2))
        yield ctx.key, None, ctx.time, ctx.watermark

    def on_timer(self, at: datetime, ctx: Any) -> Any:
        yield ctx.key, at, ctx.time, ctx.watermark


def test_event_times_travel_through_steps_that_leave_the_column_out() -> None:
    flow = rl.Flow("times")
    users = clicks(flow).map(lambda e: (e.user,), "user string")
    pairs = users.flat_map(lambda e: [e] * 2, "user string").filter(lambda e: True)
    pairs.union(users).key_by("user").process(Times(), uid="t").write(rl.sinks.memory())

    run = run_local(flow, [("ann", 1, at(0)), ("bob", 2, at(10))], epoch_rows=1)

    events = [row for row in run.rows() if row[1] is None]
    assert (
        events
        == [("ann", None, at(0), None)] * 3
        + [("bob", None, at(10), at(-5) - MOMENT)] * 3
    )
    assert [r for r in run.rows() if r[1]] == [("ann", at(2), at(2), at(5) - MOMENT)]


def test_event_times_travel_through_operators() -> None:
    flow = rl.Flow("chain")
    first = clicks(flow).key_by("user").process(Times(), uid="first")
    second = first.key_by("user").process(Times(), uid="second")
    second.write(rl.sinks.memory())

    run = run_local(flow, [("ann", 1, at(0)), ("bob", 2, at(10))], epoch_rows=1)

    events = {(user, time) for user, when, time, _ in run.rows() if when is None}
    assert events == {("ann", at(0)), ("ann", at(2)), ("bob", at(10))}


def test_operators_follow_each_other_until_no_timer_is_due() -> None:
    flow = rl.Flow("chain")
    once = clicks(flow).key_by("user").deduplicate("3 seconds", uid="once")
    pairs = once.key_by("user").match(
        rl.pattern("a", lambda e: e.n == 1).then("b", lambda e: e.n == 2).within("9s"),
        output="user string, at timestamp",
        select=lambda m: (m["a"].user, m["b"].at),
        uid="pairs",
    )
    again = [pairs, pairs.event_time("at")]  # the time may be declared anew
    for number, found in enumerate(again):
        found.key_by("user").match(
            rl.pattern("a", lambda e: True).without("b", lambda e: True).within("10s"),
            output="user string, at timestamp",
            select=lambda m: (m["a"].user, m["a"].at),
            uid=f"lonely-{number}",
        ).write(rl.sinks.memory(), uid=f"out-{number}")

    rows = [
        ("ann", 1, at(0)),
        ("ann", 2, at(2)),  # a duplicate
        ("ann", 2, at(4)),
        ("bob", 1, at(20)),
        ("bob", 2, at(23)),
        ("cid", 0, at(50)),
    ]
    for size in (1, 2, 6):
        run = run_local(flow, rows, epoch_rows=size)
        assert sorted(run.rows("out-0")) == [("ann", at(4)), ("bob", at(23))]
        assert run.rows("out-1") == [("ann", at(4))]  # its own newest time is bob's
