"""State that expires after its time to live."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.unit.operators.keyed.processes import (
    make,
    row,
)

from riverlock.program.process import Process
from riverlock.state.spec import List, Map, Reducing, Value


class Expire(Process):
    output = "k string, value long, recent array<long>, seen map<long,long>, best long"
    value = Value("long", ttl="10 minutes", default=-1)
    recent = List("long", ttl="10 minutes")
    seen = Map("long", "long", ttl="10 minutes")
    best = Reducing("long", max, ttl="10 minutes")

    def on_event(self, record: Any, ctx: Any) -> Iterator[Any]:
        if record.v is not None:
            self.value = record.v
            self.recent.append(record.v)
            self.seen[record.v] = record.v
            self.best.add(record.v)
        yield ctx.key, self.value, self.recent, self.seen, self.best.value


def test_state_expires_after_its_time_to_live() -> None:
    h = make(Expire())
    h.send(row("a", 3))
    h.advance_clock("5 minutes")
    h.send(row("a", 1))
    h.clear_output()

    h.advance_clock("4 minutes 59 seconds")
    h.send(row("a", None))
    h.advance_clock("1 second")
    h.send(row("a", None))
    h.advance_clock("5 minutes")
    h.send(row("a", None))

    assert h.output == [
        ("a", 1, [3, 1], {1: 1, 3: 3}, 3),
        ("a", 1, [1], {1: 1}, 3),
        ("a", -1, [], {}, None),
    ]
    assert h.keys() == []


def test_expired_state_is_invisible_before_it_is_purged() -> None:
    h = make(Expire())
    h.send(row("a", 3))

    h.clock.advance("10 minutes")

    assert [h.state(n, "a") for n in ("value", "recent", "seen", "best")] == [
        None,
        [],
        {},
        None,
    ]


def test_list_goes_on_after_its_elements_expired() -> None:
    h = make(Expire())
    for _ in range(3):
        h.send(row("a", 1), row("a", 2))
        h.advance_clock("11 minutes")
    h.send(row("a", 5))

    assert h.state("recent", "a") == [5]
    assert h.restart(h.snapshot()).state("recent", "a") == [5]
