"""Attributes that are no declared state: refused before anything of an epoch counts."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest
from tests.unit.snapshot.small_flow import SmallFlow

import riverlock as rl
from riverlock.core.errors import StateError, UndeclaredStateError
from riverlock.core.types import schema_of
from riverlock.flow.aggregator import NamedAggregator
from riverlock.testing import harness

INPUT = "k string, v long"
ROWS = [("a", 1), ("b", 2), ("a", 3)]


class Carts(rl.Process):
    """Has a typing error in the name of its state."""

    output = "k string, total long"
    cart_at = rl.Value("long", default=0)

    def on_event(self, row: Any, ctx: Any) -> Iterator[Any]:
        self.carts_at = row.v
        yield row.k, self.carts_at


def test_a_name_that_is_not_declared_is_refused_with_what_was_meant() -> None:
    h = harness(Carts(), key="k", input=INPUT)

    with pytest.raises(
        UndeclaredStateError,
        match=r"'carts_at' is not declared state; did you mean 'cart_at'\?",
    ) as caught:
        h.send(*ROWS)

    assert (caught.value.variable, caught.value.meant) == ("carts_at", "cart_at")
    assert "test_undeclared_state.py" in str(caught.value)
    assert "in on_event" in str(caught.value)
    assert h.output == []
    assert pickle.loads(pickle.dumps(caught.value)).meant == "cart_at"


def test_a_flow_stores_nothing_of_the_epoch(tmp_path: Path) -> None:
    flow = SmallFlow(tmp_path / "store", ROWS, tmp_path / "out", process=Carts)

    with pytest.raises(UndeclaredStateError):
        flow.run()

    assert flow.catalog.newest() is None
    assert not flow.written()


class Sometimes(rl.Process):
    """Its method is written into the loop, but for the branch that is in error."""

    n = rl.Value("long", default=0)

    def on_event(self, row: Any, ctx: Any) -> None:
        self.n += row.v
        if row.v == 3:
            self.m = row.v


@pytest.mark.parametrize("on_error", ["fail", "dead_letter"])
def test_one_record_among_many_is_enough(on_error: Any) -> None:
    h = harness(Sometimes(), key="k", input=INPUT, on_error=on_error)
    h.send(("a", 1))

    with pytest.raises(UndeclaredStateError, match="'m' is not declared"):
        h.send(*[(f"k{n}", n) for n in range(500)])

    assert h.state("n", key="a") == 1
    assert h.state("n", key="k1") is None


class Handlers(rl.Process):
    side = rl.SideOutput("k string")
    limit = rl.Param(3)
    n = rl.Value("long", default=0)
    rules = rl.Value("long", default=0, scope="broadcast")
    where = ""

    def on_event(self, row: Any, ctx: Any) -> None:
        if self.where == "on_event":
            self._last = row.v
        ctx.set_timer(ctx.now, processing=True)

    def on_timer(self, at: Any, ctx: Any) -> None:
        if self.where == "on_timer":
            self._last = at

    def on_broadcast(self, row: Any, ctx: Any) -> None:
        self.rules += 1
        if self.where == "on_broadcast":
            self._last = row.v

    def on_initial(self, row: Any, ctx: Any) -> None:
        if self.where == "on_initial":
            self._last = row.v


@pytest.mark.parametrize(
    "where", ["", "on_event", "on_timer", "on_broadcast", "on_initial"]
)
def test_no_handler_may_keep_an_attribute(where: str) -> None:
    process = Handlers()
    process.where = where
    h = harness(process, key="k", input=INPUT, broadcast=INPUT, initial=INPUT)

    def run() -> None:
        with h.epoch():
            h.broadcast(("", 1))
            h.initial(("a", 1))
            h.send(("a", 1))
        h.advance_clock("1 second")

    if where:
        with pytest.raises(UndeclaredStateError, match="'_last' is not declared"):
            run()
    else:
        run()


class Opened(rl.Process):
    output = "k string, v long"

    def __init__(self, what: str = "") -> None:
        self.what = what
        self.factor = 2

    def open(self) -> None:
        self._connect()

    def _connect(self) -> None:
        self.cache: dict[str, int] = {}
        self.offset = 1

    @cached_property
    def table(self) -> dict[str, int]:
        return {"a": 1}

    def on_event(self, row: Any, ctx: Any) -> Iterator[Any]:
        self.cache[row.k] = row.v
        if self.what == "factor":
            self.factor += 1
        if self.what == "offset":
            self.offset = 7
        if self.what == "cache":
            del self.cache
        yield row.k, row.v * self.factor + self.offset + self.table.get(row.k, 0)


def test_what_open_and_init_set_may_be_read_and_filled() -> None:
    h = harness(Opened(), key="k", input=INPUT)

    h.send(*ROWS)
    h.send(*ROWS)

    assert sorted(h.output) == sorted([("a", 4), ("b", 5), ("a", 8)] * 2)


@pytest.mark.parametrize("what", ["factor", "offset", "cache"])
def test_what_open_and_init_set_may_not_be_replaced(what: str) -> None:
    h = harness(Opened(what), key="k", input=INPUT)

    with pytest.raises(UndeclaredStateError, match=f"'{what}' was set by open"):
        h.send(("a", 1))


class Leaky(rl.Aggregator):
    acc = "long"
    output = "long"

    def __init__(self) -> None:
        self.start = 0

    def create(self) -> int:
        return self.start

    def add(self, acc: int, record: Any) -> int:
        self.last = record.v
        return acc + int(record.v)

    def merge(self, a: int, b: int) -> int:
        return a + b

    def result(self, acc: int) -> int:
        return acc


def test_an_aggregator_may_keep_nothing_between_calls() -> None:
    aggregate = NamedAggregator("leaky", Leaky(), schema_of("v long"))

    with pytest.raises(Exception, match="add of aggregate 'leaky'") as caught:
        aggregate.fold([object()])

    assert isinstance(caught.value.__cause__, AttributeError)  # object() has no v

    class Row:
        v = 1

    with pytest.raises(Exception, match="add of aggregate") as caught:
        aggregate.fold([Row()])
    assert isinstance(caught.value.__cause__, StateError)
    assert "'last'" in str(caught.value.__cause__)
    assert aggregate.merge(1, 2) == 3
    assert not hasattr(aggregate.aggregator, "last")
