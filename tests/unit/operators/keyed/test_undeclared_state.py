"""Attributes that are no declared state: refused before anything of an epoch counts."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import pytest
from tests.unit.snapshot.small_flow import SmallFlow

import riverlock as rl
from riverlock.core.errors import (
    InvalidFlowError,
    StateError,
    UndeclaredStateError,
    UserCodeError,
)
from riverlock.core.types import schema_of
from riverlock.operators.aggregates.aggregator import NamedAggregator
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


# Ways around an assignment


class Hostile(rl.Process):
    output = "k string, v long"
    n = rl.Value("long", default=0)
    rules: ClassVar[dict[str, Any]] = {"a": [1], "b": {2}}
    totals: ClassVar[list[int]] = []
    total = 0

    def __init__(self, act: Callable[[Any, Any], None]) -> None:
        self.act = act
        self.made = [1, {"x": [2]}]

    def open(self) -> None:
        self.cache: dict[str, int] = {}

    @cached_property
    def table(self) -> dict[str, int]:
        return {"a": 1}

    @property
    def last(self) -> int:
        return self._last

    @last.setter
    def last(self, value: int) -> None:
        self._last = value

    def on_event(self, row: Any, ctx: Any) -> Iterator[Any]:
        self.act(self, row)
        yield row.k, self.n


def _class_total(p: Any, row: Any) -> None:
    type(p).total += row.v


def _own_class_total(p: Any, row: Any) -> None:
    Hostile.total += row.v


REFUSED: dict[str, Callable[[Any, Any], Any]] = {
    "x": lambda p, row: setattr(p, "x", row.v),
    "y": lambda p, row: object.__setattr__(p, "y", row.v),
    "z": lambda p, row: p.__dict__.update(z=row.v),
    "_last": lambda p, row: setattr(p, "last", row.v),
    "made": lambda p, row: p.made[1]["x"].append(row.v),
    "rules": lambda p, row: p.rules["b"].add(row.v),
    "totals": lambda p, row: p.totals.append(row.v),
    "total": _class_total,
}


@pytest.fixture
def untouched() -> Iterator[None]:
    before = {n: copy.deepcopy(getattr(Hostile, n)) for n in ("rules", "totals")}
    yield
    Hostile.total, Hostile.rules, Hostile.totals = 0, before["rules"], before["totals"]


@pytest.mark.usefixtures("untouched")
@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("on_error", ["fail", "dead_letter"])
def test_no_way_around_leads_from_one_key_to_another(name: str, on_error: Any) -> None:
    process = Hostile(lambda p, row: REFUSED[name](p, row) if row.v == 3 else None)
    h = harness(process, key="k", input=INPUT, on_error=on_error)

    with pytest.raises(UndeclaredStateError) as caught:
        h.send(*ROWS)

    assert caught.value.variable == name
    assert h.output == []


@pytest.mark.usefixtures("untouched")
def test_the_class_that_was_written_by_name_is_looked_at_too() -> None:
    h = harness(Hostile(_own_class_total), key="k", input=INPUT)

    with pytest.raises(UndeclaredStateError, match="'total' was set by open"):
        h.send(*ROWS)


@pytest.mark.usefixtures("untouched")
def test_a_class_that_inherits_is_looked_at_too() -> None:
    class Heir(Hostile):
        seen: ClassVar[set[str]] = set()

        def on_event(self, row: Any, ctx: Any) -> Iterator[Any]:
            self.seen.add(row.k)
            yield row.k, 1

    h = harness(Heir(print), key="k", input=INPUT)

    with pytest.raises(UndeclaredStateError, match="'seen' was set by open"):
        h.send(*ROWS)


def test_a_cached_property_is_computed_and_not_assigned() -> None:
    process = Hostile(lambda p, row: setattr(p, "table", row.v))
    h = harness(process, key="k", input=INPUT)

    with pytest.raises(UserCodeError, match="'table' is computed once"):
        h.send(*ROWS)


def test_state_that_is_written_around_its_attribute_is_state() -> None:
    def act(p: Any, row: Any) -> None:
        p.__dict__["n"] = p.n + row.v

    together, apart = (harness(Hostile(act), key="k", input=INPUT) for _ in range(2))
    together.send(*ROWS)
    for row in ROWS:
        apart.send(row)

    assert sorted(together.output) == sorted(apart.output)
    assert together.state("n", key="a") == apart.state("n", key="a") == 4


def test_what_only_looks_like_a_change_is_none() -> None:
    def act(p: Any, row: Any) -> None:
        p.tmp = row.v
        del p.tmp
        p.made = p.made
        assert p.rules["a"] == [1]
        p.cache[row.k] = p.table.get(row.k, 0)
        p.n += row.v

    h = harness(Hostile(act), key="k", input=INPUT)
    h.send(*ROWS)
    h.send(*ROWS)

    assert h.state("n", key="a") == 8


def test_slots_are_refused_when_the_flow_is_built() -> None:
    class Slotted(Carts):
        __slots__ = ("last",)

    with pytest.raises(InvalidFlowError, match="no __slots__"):
        harness(Slotted(), key="k", input=INPUT)
