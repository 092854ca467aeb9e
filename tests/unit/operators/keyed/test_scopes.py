"""State of a group of keys, broadcast state, and initial rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.unit.operators.keyed.processes import (
    Sum,
    T,
    make,
    row,
)

from riverlock.core.errors import StateError, UserCodeError
from riverlock.program.process import Process, SideOutput
from riverlock.state.spec import List, Map, Value


class Grouped(Process):
    output = "k string, in_group long"
    n = Value("long", default=0, scope="group")
    names = Map("string", "long", scope="group")
    mine = Value("long", default=0)

    def on_event(self, record: Any, ctx: Any) -> Iterator[Any]:
        if record.v == 0:
            raise ValueError("poison")
        self.n += 1
        self.mine += 1
        self.names[ctx.key] = self.mine
        yield ctx.key, self.n


def test_group_state_is_shared_by_the_keys_of_a_group() -> None:
    h = make(Grouped(), key_groups=1)

    h.send(row("a"), row("b"), row("a"))
    h.send(row("c"))

    assert h.output[-1] == ("c", 4)
    assert h.state("n", "whoever") == 4
    assert h.state("names", "whoever") == {"a": 2, "b": 1, "c": 1}
    assert h.restart(h.snapshot()).state("n", "a") == 4


def test_group_state_of_each_group_is_its_own() -> None:
    h = make(Grouped(), key_groups=128)
    names = [f"k{i}" for i in range(300)]

    h.send(*map(row, names))

    counts = {h.state("names", k)[k] for k in names}
    assert counts == {1}
    assert sum(len(set(h.state("names", k))) == h.state("n", k) for k in names) == 300


class Rules(Process):
    output = "k string, hit boolean"
    limit = Value("long", default=10, scope="broadcast")
    names = Map("string", "array<long>", scope="broadcast")
    total = Value("long", default=0)

    def on_broadcast(self, rule: Any, ctx: Any) -> None:
        assert ctx.key is None
        self.limit = rule.limit
        self.names.setdefault("all", []).append(rule.limit)

    def on_event(self, record: Any, ctx: Any) -> Iterator[Any]:
        self.total += record.v
        yield ctx.key, self.total > self.limit


def test_broadcast_state_is_seen_by_all_keys() -> None:
    h = make(Rules(), broadcast="limit long")
    h.send(row("a", 5), row("b", 50))
    h.broadcast({"limit": 1}, {"limit": 3})
    h.send(row("a", 0), row("c", 2))

    assert h.output == [("a", False), ("b", True), ("a", True), ("c", False)] or (
        sorted(h.output) == [("a", False), ("a", True), ("b", True), ("c", False)]
    )
    assert h.state("limit") == 3
    assert h.state("names") == {"all": [1, 3]}
    assert h.restart(h.snapshot()).state("limit") == 3


def test_broadcast_default_may_be_read_everywhere() -> None:
    class Reads(Process):
        output = "n long"
        rules = Value("array<long>", default=[], scope="broadcast")

        def on_broadcast(self, rule: Any, ctx: Any) -> None:
            self.rules.append(rule.limit)

        def on_event(self, record: Any, ctx: Any) -> Iterator[Any]:
            yield (len(self.rules),)

    h = make(Reads(), broadcast="limit long")
    h.send(row("a"))
    h.broadcast((1,))
    h.send(row("b"))

    assert h.output == [(0,), (1,)]


@pytest.mark.parametrize("how", ["value", "map", "in place"])
def test_broadcast_state_is_read_only_elsewhere(how: str) -> None:
    class Writes(Rules):
        def on_event(self, record: Any, ctx: Any) -> Iterator[Any]:
            if how == "value":
                self.limit = 5
            elif how == "map":
                self.names["x"] = []
            else:
                self.names["all"].append(9)
            yield from super().on_event(record, ctx)

    h = make(Writes(), broadcast="limit long")
    h.broadcast({"limit": 1})

    with pytest.raises((StateError, UserCodeError), match="on_broadcast"):
        h.send(row("a"))


@pytest.mark.parametrize("how", ["timer", "value", "list", "emit", "yield"])
def test_on_broadcast_cannot_touch_what_belongs_to_a_key(how: str) -> None:
    class Wrong(Process):
        total = Value("long", default=0)
        items = List("long")
        side = SideOutput("n long")

        def on_event(self, record: Any, ctx: Any) -> None:
            pass

        def on_broadcast(self, rule: Any, ctx: Any) -> Any:
            match how:
                case "timer":
                    ctx.set_timer(T)
                case "value":
                    self.total = 1
                case "list":
                    self.items.append(1)
                case "emit":
                    ctx.emit(self.side, (1,))
                case _:
                    return [(1,)]
            return None

    h = make(Wrong(), broadcast="limit long")

    with pytest.raises(UserCodeError, match="broadcast"):
        h.broadcast({"limit": 1})


def test_initial_rows_come_before_events() -> None:
    class Start(Sum):
        def on_initial(self, record: Any, ctx: Any) -> None:
            self.total = record.balance

    h = make(Start(), initial="k string, balance double")
    with h.epoch():
        h.send(row("a", 1))
        h.initial({"k": "a", "balance": 100.0}, {"k": "b", "balance": 7.0})

    assert h.output == [("a", 101.0)]
    assert h.state("total", "b") == 7.0
