"""When timers fire, how often, and what they see."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest
from tests.unit.operators.keyed.processes import (
    Alarm,
    T,
    Tell,
    make,
    row,
    told,
)

from riverlock.core.errors import UserCodeError
from riverlock.core.times import hours, minutes, seconds
from riverlock.operators.keyed.key_timers import KeyTimers
from riverlock.program.process import Process


def test_timers_fire_by_time_when_the_watermark_reaches_them() -> None:
    h = make(Alarm())
    h.send(row("a", 30), row("a", 10), row("a", 20), row("a", 10))
    assert h.timers("a") == [T + seconds(s) for s in (10, 20, 30)]
    h.clear_output()

    h.advance_watermark(T + seconds(9))
    assert told(h) == []
    h.advance_watermark(T + seconds(20))

    assert told(h) == ["timer 10", "timer 20"]
    assert [t for _, _, t in h.output] == [T + seconds(10), T + seconds(20)]
    assert h.timers("a") == [T + seconds(30)]


def test_due_timers_fire_before_the_records_of_their_epoch() -> None:
    h = make(Alarm())
    h.send(row("a", 10))
    h.clear_output()

    h.watermark = T + seconds(10)
    h.send(row("a", 99))

    assert told(h) == ["timer 10", "event 99"]


def test_timer_in_the_past_fires_after_the_records_of_its_key() -> None:
    h = make(Alarm())
    h.advance_watermark(T + seconds(50))

    h.send(row("a", 10), row("a", 5))

    assert told(h) == ["event 10", "event 5", "timer 5", "timer 10"]
    assert h.timers("a") == []


def test_timer_fires_once_however_often_it_is_set() -> None:
    h = make(Alarm())
    h.send(row("a", 10), row("a", 10))
    h.send(row("a", 10))
    h.clear_output()

    h.advance_watermark(T + hours(1))
    h.advance_watermark(T + hours(2))

    assert told(h) == ["timer 10"]


def test_deleted_timer_does_not_fire() -> None:
    class Cancel(Alarm):
        def on_event(self, record: Any, ctx: Any) -> Iterator[Any]:
            if record.v < 0:
                ctx.delete_timer(T + seconds(-record.v))
            else:
                yield from super().on_event(record, ctx)

    h = make(Cancel())
    h.send(row("a", 10), row("a", 20), row("a", -20), row("a", -77))
    h.send(row("a", 30))
    h.send(row("a", -30))
    h.clear_output()

    h.advance_watermark(T + hours(1))

    assert told(h) == ["timer 10"]


def test_timer_deleted_by_an_earlier_timer_does_not_fire() -> None:
    class Chain(Alarm):
        def on_timer(self, at: datetime, ctx: Any) -> Iterator[Any]:
            ctx.delete_timer(T + seconds(20))
            yield from super().on_timer(at, ctx)

    h = make(Chain())
    h.send(row("a", 10), row("a", 20), row("a", 30))
    h.clear_output()

    h.advance_watermark(T + hours(1))

    assert told(h) == ["timer 10", "timer 30"]
    assert h.timers("a") == []


def test_timer_set_by_a_timer_for_a_due_later_time_fires_in_the_same_epoch() -> None:
    class Chain(Alarm):
        def on_timer(self, at: datetime, ctx: Any) -> Iterator[Any]:
            ctx.set_timer(at + seconds(10))
            yield from super().on_timer(at, ctx)

    h = make(Chain())
    h.send(row("a", 10), row("a", 25))
    h.clear_output()

    h.advance_watermark(T + seconds(40))

    assert told(h) == [f"timer {s}" for s in (10, 20, 25, 30, 35, 40)]
    assert h.timers("a") == [T + seconds(45), T + seconds(50)]


def test_timer_that_sets_itself_again_fires_once_per_epoch() -> None:
    class Stubborn(Alarm):
        def on_timer(self, at: datetime, ctx: Any) -> Iterator[Any]:
            ctx.set_timer(at)
            yield from super().on_timer(at, ctx)

    h = make(Stubborn())
    h.send(row("a", 10))
    h.clear_output()

    h.advance_watermark(T + seconds(40))
    assert told(h) == ["timer 10"]
    h.send(row("a", 10))
    assert told(h) == ["timer 10", "timer 10", "event 10"]


def test_timers_of_a_key_are_not_all_looked_at_for_each_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked_at = 0
    original = KeyTimers.due_of

    def counting(self: KeyTimers, timers: Any) -> Iterator[tuple[int, int]]:
        nonlocal looked_at
        looked_at += len(timers)
        return original(self, timers)

    h = make(Alarm())
    h.send(*(row("a", v) for v in range(1, 201)))
    monkeypatch.setattr(KeyTimers, "due_of", counting)

    h.advance_watermark(T + seconds(200))

    assert told(h)[200:] == [f"timer {v}" for v in range(1, 201)]
    assert looked_at <= 400


def test_processing_timers_follow_the_clock_and_have_no_event_time() -> None:
    class Timeout(Tell):
        def on_event(self, record: Any, ctx: Any) -> Iterator[Any]:
            ctx.set_timer(ctx.now + minutes(5), processing=True)
            yield from ()

    h = make(Timeout())
    h.send(row("a"))
    h.advance_watermark(T + hours(99))
    assert h.output == []
    assert h.timers("a", processing=True) == [T + minutes(5)]

    h.advance_clock("5 minutes")

    assert h.output == [("a", "timer 300", None)]
    assert h.timers("a", processing=True) == []


def test_context_lists_pending_timers() -> None:
    seen: list[Any] = []

    class Look(Process):
        def on_event(self, record: Any, ctx: Any) -> None:
            ctx.set_timer(T + seconds(record.v))
            ctx.delete_timer(T + seconds(7))
            seen.append([(t - T).seconds for t in ctx.timers()])
            assert ctx.timers(processing=True) == []

    h = make(Look())
    h.send(row("a", 7), row("a", 5), row("b", 1))
    h.send(row("a", 2))

    assert seen == [[], [5], [1], [2, 5]]


def test_timers_of_many_keys_fire_for_each_of_them() -> None:
    h = make(Alarm())
    names = [f"key {i}" for i in range(50)]
    h.send(*(row(k, 5) for k in names))
    h.clear_output()

    h.advance_watermark(T + minutes(1))

    assert sorted(k for k, _, _ in h.output) == sorted(names)


def test_set_timer_wants_a_time_zone() -> None:
    class Naive(Process):
        def on_event(self, record: Any, ctx: Any) -> None:
            ctx.set_timer(datetime(2024, 1, 1))  # noqa: DTZ001

    with pytest.raises(UserCodeError, match="time zone"):
        make(Naive()).send(row("a"))
