"""Values that the declared type cannot hold are told at the record that left them."""

from __future__ import annotations

import inspect
import pickle
from collections.abc import Iterator
from typing import Any

import pytest

from riverlock.core.errors import StateTypeError
from riverlock.operators.by_key.map_with_state import MapWithState
from riverlock.program.process import Process
from riverlock.state.spec import List, Map, Value
from riverlock.testing import harness

INPUT = "k string, v long"
WIDE = 1 << 63  # MessagePack still takes it


class Sums(Process):
    """Written into the loop over records."""

    n = Value("long", default=0)

    def on_event(self, record: Any, ctx: Any) -> None:
        self.n += record.v * 4


class Called(Sums):
    """Takes calls."""

    def on_event(self, record: Any, ctx: Any) -> None:
        for _ in range(4):
            self.n = self.n + record.v


class Grouped(Called):
    n = Value("long", default=0, scope="group")


class Timed(Called):
    def on_event(self, record: Any, ctx: Any) -> None:
        super().on_event(record, ctx)
        ctx.set_timer(ctx.now, processing=True)

    def on_timer(self, at: Any, ctx: Any) -> None:
        self.n += 0


class Text(Process):
    name = Value("string")

    def on_event(self, record: Any, ctx: Any) -> None:
        self.name = (self.name or "") + ("o" if record.v < 9 else "\ud800")


class Deep(Process):
    items = Value("array<long>", default=[])

    def on_event(self, record: Any, ctx: Any) -> None:
        self.items.append(record.v * 4)


class Short(Process):
    small = Value("byte")

    def on_event(self, record: Any, ctx: Any) -> None:
        self.small = record.v >> 3


class Brief(Process):
    brief = Value("long", ttl="1 day")

    def on_event(self, record: Any, ctx: Any) -> None:
        self.brief = record.v * 4


class Listed(Process):
    many = List("long")

    def on_event(self, record: Any, ctx: Any) -> None:
        self.many.append(record.v * 4)


class Mapped(Process):
    many = Map("long", "long")

    def on_event(self, record: Any, ctx: Any) -> None:
        self.many[record.v * 4] = 1


EVERY = [Sums, Called, Grouped, Timed, Text, Deep, Short, Brief, Listed, Mapped]


@pytest.mark.parametrize("kind", EVERY)
@pytest.mark.parametrize("bad", [WIDE // 4, WIDE // 2, WIDE - 1])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_the_record_is_told_with_key_and_line(
    kind: type[Process], bad: int, place: int
) -> None:
    records = [("a", 1), ("b", 2), ("b", 3), ("b", 4), ("c", 5)]
    records[1 + place] = ("b", bad)
    h = harness(kind(), key="k", input=INPUT)

    with pytest.raises(StateTypeError) as caught:
        h.send(*records)

    error = pickle.loads(pickle.dumps(caught.value))
    assert error.key == "b"
    assert error.epoch == 1
    assert f"v={bad}" in error.record
    assert f"record: {error.record}" in str(error)
    lines, first = inspect.getsourcelines(kind)
    at = int(error.line.split(":")[1].split()[0])
    assert "test_unstorable.py" in error.line
    assert kind in (Grouped, Timed) or first <= at < first + len(lines)
    assert error.line in str(error)
    assert "on_error=" in str(error)


@pytest.mark.parametrize("kind", EVERY)
def test_with_dead_letters_only_that_record_is_left_out(kind: type[Process]) -> None:
    h = harness(kind(), key="k", input=INPUT, on_error="dead_letter")
    clean = harness(kind(), key="k", input=INPUT)

    records = [("a", 1), ("b", 2), ("b", WIDE - 1), ("b", -WIDE), ("b", 3)]
    # No text is wrong for being of a small number.
    bad = [WIDE - 1] if kind is Text else [WIDE - 1, -WIDE]

    h.send(*records)
    clean.send(*[r for r in records if r[1] not in bad])

    letters = h.dead_letters
    assert len(letters) == len(bad)
    for letter, v in zip(letters, bad, strict=True):
        assert f"v={v}" in letter["record"]
        assert "StateTypeError" in letter["error"]
        assert "test_unstorable.py" in letter["line"]
    assert [*h._store.scan(b"")] == [*clean._store.scan(b"")]


def test_with_dead_letters_a_later_record_does_not_heal_it() -> None:
    """Where epochs end, it would have been a dead letter."""

    class Swings(Process):
        output = "n long"
        n = Value("long", default=0)

        def on_event(self, record: Any, ctx: Any) -> Iterator[Any]:
            self.n += record.v
            yield (self.n % 1000,)

    records = [("a", WIDE - 1), ("a", 5), ("a", -7)]
    apart, together = (
        harness(Swings(), key="k", input=INPUT, on_error="dead_letter")
        for _ in range(2)
    )
    for record in records:
        apart.send(record)
    together.send(*records)

    assert together.output == apart.output
    assert len(together.dead_letters) == len(apart.dead_letters) == 1
    assert together.state("n", key="a") == WIDE - 8


def test_a_function_of_an_operator_is_told_with_its_record() -> None:
    process = MapWithState(lambda r, s: (None, r.v << 60), "long", "n long", None)
    h = harness(process, key="k", input=INPUT)

    with pytest.raises(StateTypeError, match=r"record: .*v=64"):
        h.send(("a", 1), ("a", 64))


def test_broadcast_state_is_told_with_its_record() -> None:
    class Rules(Sums):
        limit = Value("long", default=0, scope="broadcast")

        def on_broadcast(self, record: Any, ctx: Any) -> None:
            self.limit = record.v * 4

    h = harness(Rules(), key="k", input=INPUT, broadcast=INPUT)

    with pytest.raises(StateTypeError, match=f"record: .*v={WIDE - 1}"):
        h.broadcast(("", 1), ("", WIDE - 1))
