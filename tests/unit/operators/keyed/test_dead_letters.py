"""Records and timers that fail leave no trace but a dead letter."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest
from tests.unit.operators.keyed.processes import (
    Alarm,
    T,
    make,
    row,
    told,
)

from riverlock.core.errors import UserCodeError
from riverlock.core.times import minutes, seconds
from riverlock.program.process import Process, SideOutput
from riverlock.state.spec import List, Map, Reducing, Value
from riverlock.testing import Harness


class Fragile(Process):
    """Does everything there is, and then raises for v == 0."""

    output = "k string, total double"
    total = Value("double", default=0.0)
    tags = Value("array<long>", default=[])
    grouped = Value("long", default=0, scope="group")
    recent = List("array<long>")
    seen = Map("long", "array<long>")
    fresh = Value("long", ttl="1 day")
    best = Reducing("long", max)
    side = SideOutput("k string")

    def on_event(self, record: Any, ctx: Any) -> Iterator[Any]:
        self.total += record.v + ctx.random.random()
        self.tags.append(record.v)
        self.grouped += 1
        self.recent.append([record.v])
        for element in self.recent:
            element.append(0)
        self.seen.setdefault(record.v % 3, []).append(record.v)
        self.fresh = record.v
        self.best.add(record.v + 100)
        ctx.set_timer(T + seconds(record.v))
        ctx.delete_timer(T + seconds(2))
        ctx.emit(self.side, (ctx.key,))
        yield ctx.key, self.total
        self.poison(record)

    def poison(self, record: Any) -> None:
        if record.v == 0:
            raise ValueError("poison")

    def on_timer(self, at: datetime, ctx: Any) -> Iterator[Any]:
        if at == T + timedelta(seconds=5):
            self.total = 1e9
            raise ValueError("timer")
        yield ctx.key, -1.0


GOOD = [row("a", 1), row("b", 2), row("a", 3), row("c", 4), row("a", 7)]
STATES = ("total", "tags", "grouped", "recent", "seen", "fresh", "best")


def outcome(h: Harness) -> Any:
    states = {
        (n, k): h.state(n, k) for n in STATES for k in ("a", "b", "c", "d", "poison")
    }
    timers = {k: h.timers(k) for k in "abcd"}
    return h.output, h.side("side"), states, timers


def test_dead_letters_leave_state_as_if_they_had_never_come() -> None:
    clean, dirty = (make(Fragile(), on_error="dead_letter") for _ in range(2))
    clean.send(*GOOD)
    clean.send(*GOOD)
    for _ in range(2):
        dirty.send(
            row("a", 0),
            *GOOD[:2],
            row("a", 0),
            *GOOD[2:],
            row("d", 0),
            row("b", 0),
        )

    assert outcome(dirty) == outcome(clean)
    letters = dirty.dead_letters
    assert len(letters) == 8
    assert {d["key"] for d in letters} == {"'a'", "'b'", "'d'"}
    assert letters[0]["operator"] == "process"
    assert "ValueError: poison" in letters[0]["error"]
    assert "raise ValueError" in letters[0]["line"]
    assert "v=0" in letters[0]["record"]


def test_a_record_after_a_dead_letter_sees_what_another_epoch_would_see() -> None:
    class Forgetful(Process):
        output = "n long, share double"
        n = Value("long", default=7)
        share = Value("float", default=0)

        def on_event(self, record: Any, ctx: Any) -> Iterator[Any]:
            if record.v == 0:
                raise ValueError("poison")
            yield self.n + 1, self.share + 1.0
            self.n, self.share = None, 0.1

    h = make(Forgetful(), on_error="dead_letter")
    h.send(row("a", 0), row("a", 1), row("a", 2))

    assert h.output == [(8, 1.0), (8, 1.1000000014901161)]
    assert len(h.dead_letters) == 1


@pytest.mark.parametrize("how", ["value", "list in place", "row", "row type", "side"])
def test_dead_letters_include_what_cannot_be_stored_or_given(how: str) -> None:
    class Wrong(Fragile):
        def on_event(self, record: Any, ctx: Any) -> Iterator[Any]:
            yield from super().on_event(record, ctx)
            if record.v == 99:
                yield from self.go_wrong(ctx)

        def go_wrong(self, ctx: Any) -> Iterator[Any]:
            match how:
                case "value":
                    self.total = "text"
                case "list in place":
                    self.recent[0].append("text")
                case "row":
                    yield (1, 2, 3)
                case "row type":
                    yield "k", "no number"
                case _:
                    ctx.emit(self.side, (object(),))

    clean, dirty = (make(Wrong(), on_error="dead_letter") for _ in range(2))
    clean.send(*GOOD)
    dirty.send(row("a", 99), *GOOD[:3], row("b", 99), *GOOD[3:])

    assert outcome(dirty) == outcome(clean)
    assert len(dirty.dead_letters) == 2


def test_poison_timer_is_dropped_and_told() -> None:
    h = make(Fragile(), on_error="dead_letter")
    h.send(row("a", 5), row("a", 6))
    total = h.state("total", "a")
    h.clear_output()

    h.advance_watermark(T + minutes(1))

    assert h.output == [("a", -1.0)]
    assert h.state("total", "a") == total
    assert h.timers("a") == []
    assert "timer at 2024-01-01T00:00:05Z" in h.dead_letters[0]["record"]


def test_timers_that_a_poison_timer_has_set_and_removed_are_taken_back() -> None:
    class Meddler(Alarm):
        def on_timer(self, at: datetime, ctx: Any) -> Iterator[Any]:
            if at == T + seconds(5):
                ctx.set_timer(T + seconds(6))
                ctx.delete_timer(T + seconds(7))
                raise ValueError("poison")
            yield from super().on_timer(at, ctx)

    h = make(Meddler(), on_error="dead_letter")
    h.send(row("a", 5), row("a", 7))
    h.clear_output()

    h.advance_watermark(T + minutes(1))

    assert told(h) == ["timer 7"]
    assert h.timers("a") == []
    assert len(h.dead_letters) == 1


def test_without_dead_letters_poison_fails_the_epoch() -> None:
    with pytest.raises(UserCodeError, match="poison"):
        make(Fragile()).send(row("a", 0))
