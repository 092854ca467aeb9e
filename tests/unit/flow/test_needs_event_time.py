"""Operators of event time refuse streams without it, when the flow is built."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

import riverlock as rl
from riverlock.core.errors import InvalidFlowError, UserCodeError
from riverlock.testing import run_local

if TYPE_CHECKING:
    from collections.abc import Callable

    from riverlock.flow.keyed_stream import KeyedStream

COLUMNS = "k string, n long, at timestamp"
T = datetime(2026, 1, 1, tzinfo=UTC)


def read(flow: rl.Flow, uid: str) -> rl.Stream:
    return flow.read(rl.sources.files(uid, format="json", schema=COLUMNS), uid=uid)


def renamed(stream: rl.Stream) -> KeyedStream:
    return stream.map(tuple, "k2 string, n2 long, at2 timestamp").key_by("k2")


USES: dict[str, Callable[[rl.Stream, rl.Stream], Any]] = {
    "tumbling": lambda s, _: s.window(rl.tumbling("1 hour")).count(),
    "keyed": lambda s, _: (
        s.key_by("k").window(rl.sliding("1 hour", "1 minute")).count()
    ),
    "sessions": lambda s, _: s.key_by("k").window(rl.sessions("1 hour")).count(),
    "early": lambda s, _: s.window(
        rl.tumbling("1 hour"), trigger=rl.early(count=2)
    ).count(),
    "top": lambda s, _: s.key_by("k").window(rl.tumbling("1 hour")).top(3, "n"),
    "within": lambda s, t: s.key_by("k").join(renamed(t), within=("0s", "1s")),
    "window join": lambda s, t: s.key_by("k").join(
        renamed(t), window=rl.tumbling("1 hour")
    ),
    "latest": lambda s, t: s.key_by("k").join_latest(renamed(t)),
    "dstream": lambda s, _: s.count_by_window("1 hour"),
}


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("way", ["none", "one side", "behind"])
def test_a_stream_without_event_time_is_refused(use: str, way: str) -> None:
    flow = rl.Flow("f")
    plain, timed = read(flow, "plain"), read(flow, "timed").event_time("at")
    stream = {
        "none": plain,
        "one side": timed.union(plain),
        "behind": plain.key_by("k").reduce(lambda a, b: b),
    }[way]

    with pytest.raises(InvalidFlowError) as found:
        USES[use](stream, timed)

    assert "event time" in str(found.value)
    assert "'plain'" in str(found.value)
    assert '.event_time("at"' in found.value.hint


@pytest.mark.parametrize("use", ["within", "window join", "latest"])
def test_the_right_side_of_a_join_needs_it_too(use: str) -> None:
    flow = rl.Flow("f")
    plain, timed = read(flow, "plain"), read(flow, "timed").event_time("at")
    for right in (plain, plain.union(timed)):
        with pytest.raises(InvalidFlowError, match="right side"):
            USES[use](timed, right)


@pytest.mark.parametrize("use", ["deduplicate", "match"])
def test_half_of_a_union_is_not_enough_for_those_that_can_do_without(use: str) -> None:
    pattern = rl.pattern("e", lambda e: True).within("1 hour")

    def made(stream: rl.Stream) -> Any:
        keyed = stream.key_by("k")
        if use == "match":
            return keyed.match(pattern, "n long", lambda m: (m["e"].n,))
        return keyed.deduplicate("1 hour")

    flow = rl.Flow("f")
    plain, timed = read(flow, "plain"), read(flow, "timed").event_time("at")
    made(plain)  # by the clock
    made(timed)
    with pytest.raises(InvalidFlowError, match="'plain'"):
        made(timed.union(plain))


def test_time_on_all_ways_is_enough() -> None:
    flow = rl.Flow("f")
    one, two = read(flow, "one"), read(flow, "two")
    both = one.event_time("at").union(two.event_time("at"))
    behind = both.key_by("k").reduce(lambda a, b: b)
    # What is looked up needs no time of its own.
    enriched = both.key_by("k").lookup(renamed(read(flow, "table")))
    for stream in (both, one.union(two).event_time("at"), behind, enriched):
        stream.window(rl.tumbling("1 hour")).count()
        stream.key_by("k").window(rl.sessions("1 hour")).count()


class Alarm(rl.Process):
    output = "n long"
    n = rl.Value("long", default=0)

    def __init__(self, *, processing: bool) -> None:
        self._processing = processing

    def on_event(self, record: Any, ctx: Any) -> Any:
        self.n = record.n
        ctx.set_timer(record.at, processing=self._processing)
        return ()

    def on_timer(self, at: datetime, ctx: Any) -> Any:
        yield (self.n,)


def test_a_timer_of_event_time_without_any_is_refused() -> None:
    def alarms(*, processing: bool, has_time: bool = False) -> rl.Flow:
        flow = rl.Flow("f")
        stream = read(flow, "in")
        stream = stream.event_time("at") if has_time else stream
        made = stream.key_by("k").process(Alarm(processing=processing), uid="alarm")
        made.write(rl.sinks.memory(), uid="out")
        return flow

    rows = [("a", 1, T), ("a", 2, T + timedelta(days=1))]
    with pytest.raises(UserCodeError, match="no event time") as found:
        run_local(alarms(processing=False), {"in": rows})
    assert "event_time(" in str(found.value)
    run_local(alarms(processing=True), {"in": rows})
    run_local(alarms(processing=False, has_time=True), {"in": rows})
