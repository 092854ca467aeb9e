"""What state is read back as, through the harness."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from tests.unit.operators.keyed.processes import (
    Sum,
    T,
    make,
    row,
)

from riverlock.core.errors import StateTypeError
from riverlock.core.times import seconds
from riverlock.program.process import Process, SideOutput
from riverlock.state.spec import List, Map, Reducing, Value


def test_value_begins_with_its_default_and_is_remembered_per_key() -> None:
    h = make(Sum())

    h.send(row("a", 1), row("b", 5))
    h.send(row("a", 2))

    assert h.output == [("a", 1.0), ("b", 5.0), ("a", 3.0)]
    assert (h.state("total", "a"), h.state("total", "nobody")) == (3.0, None)


@pytest.mark.parametrize("together", [True, False])
def test_none_means_unset_also_for_the_next_record_of_the_epoch(
    together: bool,
) -> None:
    h = make(Sum())
    rows = [row("a", 1), row("a", None), row("a", 2)]

    if together:
        h.send(*rows)
    else:
        for r in rows:
            h.send(r)

    assert h.output == [("a", 1.0), ("a", None), ("a", 2.0)]


def test_deleted_value_is_unset_and_deleting_twice_is_no_error() -> None:
    class Forget(Process):
        x = Value("long", default=7)
        y = Value("long", ttl="1 day")
        best = Reducing("long", max)

        def on_event(self, record: Any, ctx: Any) -> None:
            if record.v:
                self.x = self.y = record.v
                self.best.add(record.v)
            else:
                del self.x
                del self.x
                del self.y
                del self.best
                assert self.x == 7
                assert self.y is None
                assert self.best.value is None
                assert "x" not in vars(self)

    h = make(Forget())
    h.send(row("a", 5))
    assert [h.state(n, "a") for n in ("x", "y", "best")] == [5, 5, 5]
    h.send(row("a", 0))

    assert [h.state(n, "a") for n in ("x", "y", "best")] == [None] * 3
    assert h.keys() == []


@pytest.mark.parametrize("ttl", [None, "1 day"])
def test_mutable_default_is_copied_and_stored_only_when_changed(
    ttl: str | None,
) -> None:
    class Collect(Process):
        items = Value("array<long>", default=[], ttl=ttl)

        def on_event(self, record: Any, ctx: Any) -> None:
            if record.v:
                self.items.append(record.v)
            else:
                assert self.items == []

    h = make(Collect())
    h.send(row("a", 0), row("b", 1), row("c", 0))
    h.send(row("b", 2), row("c", 0))

    assert [h.state("items", k) for k in "abc"] == [None, [1, 2], None]
    assert h.keys() == ["b"]


def test_values_changed_in_place_are_noticed() -> None:
    class Nested(Process):
        tree = Value("struct<n:long,tags:array<string>>", default={"n": 0, "tags": []})
        index = Value("map<string,array<long>>", default={})

        def on_event(self, record: Any, ctx: Any) -> None:
            self.tree.n += 1
            self.tree.tags.append(str(record.v))
            self.index.setdefault("x", []).append(record.v)

    h = make(Nested())
    h.send(row("a", 1), row("a", 2))
    h.send(row("a", 3))

    tree = h.state("tree", "a")
    assert (tree.n, tree.tags) == (3, ["1", "2", "3"])
    assert h.state("index", "a") == {"x": [1, 2, 3]}


@dataclasses.dataclass
class Visit:
    page: str
    at: datetime
    seconds: float | None = None


def test_dataclasses_are_stored_and_given_back() -> None:
    class Track(Process):
        last = Value(Visit)
        visits = List(Visit)
        by_page = Map(str, Visit)
        history = Value(list[Visit], default=[])

        def on_event(self, record: Any, ctx: Any) -> None:
            if self.last is not None:
                assert type(self.last) is Visit
                assert all(type(v) is Visit for v in (*self.visits, *self.history))
                self.last.seconds = (record.at - self.last.at).total_seconds()
                self.history.append(self.last)
            visit = Visit(str(record.v), record.at)
            self.last = visit
            self.visits.append(visit)
            self.by_page[visit.page] = visit

    h = make(Track())
    h.send(row("a", 1, T), row("a", 2, T + seconds(5)))
    h.send(row("a", 3, T + seconds(9)))

    assert h.state("last", "a") == Visit("3", T + seconds(9))
    assert [v.page for v in h.state("visits", "a")] == ["1", "2", "3"]
    assert [v.seconds for v in h.state("history", "a")] == [5.0, 4.0]
    assert list(h.state("by_page", "a")) == ["1", "2", "3"]


def test_dataclass_field_that_may_not_be_none_is_refused() -> None:
    class Bad(Process):
        last = Value(Visit)

        def on_event(self, record: Any, ctx: Any) -> None:
            self.last = Visit(None, T)  # type: ignore[arg-type]

    with pytest.raises(StateTypeError, match="'page' is None"):
        make(Bad()).send(row("a"))


@pytest.mark.parametrize("together", [True, False])
def test_what_is_assigned_is_normal_for_the_next_record(together: bool) -> None:
    kinds: list[Any] = []

    class Assign(Process):
        number = Value("double")
        small = Value("float")
        many = Value("array<double>")
        place = Value("struct<x:long>")
        when = Value("timestamp")

        def on_event(self, record: Any, ctx: Any) -> None:
            if self.many is not None:
                kinds.append(
                    (
                        self.number,
                        type(self.number),
                        self.small,
                        self.many,
                        self.place.x,
                        self.when.tzinfo,
                    )
                )
            self.number = 1
            self.small = 0.1
            self.many = (1, 2)
            self.place = {"x": 3}
            self.when = T.astimezone()

    h = make(Assign())
    if together:
        h.send(row("a"), row("a"))
    else:
        h.send(row("a"))
        h.send(row("a"))

    small = 0.10000000149011612
    assert kinds == [(1.0, float, small, [1.0, 2.0], 3, UTC)]


@pytest.mark.parametrize("together", [True, False])
def test_rows_keep_what_state_was_when_they_were_given(together: bool) -> None:
    class Emit(Process):
        output = "k string, v array<long>, l array<long>, m map<long,long>"
        values = Value("array<long>", default=[])
        listed = List("long")
        mapped = Map("long", "long")
        side = SideOutput("v array<long>")

        def on_event(self, record: Any, ctx: Any) -> Iterator[Any]:
            self.values.append(record.v)
            self.listed.append(record.v)
            self.mapped[record.v] = record.v
            ctx.emit(self.side, (self.values,))
            yield ctx.key, self.values, self.listed, self.mapped

    h = make(Emit())
    if together:
        h.send(row("a", 1), row("b", 9), row("a", 2))
    else:
        for r in (row("a", 1), row("a", 2), row("b", 9)):
            h.send(r)

    assert h.output == [
        ("a", [1], [1], {1: 1}),
        ("a", [1, 2], [1, 2], {1: 1, 2: 2}),
        ("b", [9], [9], {9: 9}),
    ]
    assert h.side("side") == [([1],), ([1, 2],), ([9],)]


def test_state_shared_between_keys_by_mistake_is_stored_as_it_was() -> None:
    class Shared(Process):
        items = Value("array<long>")

        def open(self) -> None:
            self.buffer: list[int] = []

        def on_event(self, record: Any, ctx: Any) -> None:
            self.buffer.append(record.v)
            self.items = self.buffer

    h = make(Shared())
    h.send(row("a", 1), row("b", 2))

    assert sorted([h.state("items", "a"), h.state("items", "b")], key=len)[0] in (
        [1],
        [2],
    )


def test_lists_and_maps_read_naturally() -> None:
    class Natural(Process):
        recent = List("long")
        seen = Map("string", "long")

        def on_event(self, record: Any, ctx: Any) -> None:
            self.recent += [record.v]
            self.recent = [v for v in self.recent if v > 1]
            self.seen |= {str(record.v): record.v}
            assert self.recent + [7] == [*self.recent, 7]  # noqa: RUF005 - as written
            assert self.seen | {"z": 1} == {**self.seen, "z": 1}
            assert self.seen.get(None) is None
            assert None not in self.seen
            assert self.recent[-1:] == [record.v] or record.v <= 1
            assert bool(self.recent) == (len(self.recent) > 0)

    h = make(Natural())
    h.send(row("a", 1), row("a", 2))
    h.send(row("a", 3))

    assert h.state("recent", "a") == [2, 3]
    assert h.state("seen", "a") == {"1": 1, "2": 2, "3": 3}
