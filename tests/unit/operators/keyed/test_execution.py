"""What a process sees and in which order, through the harness."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from tests.unit.operators.keyed.processes import (
    Sum,
    T,
    Tell,
    make,
    row,
    told,
)

from riverlock.core.errors import StateTypeError, UserCodeError
from riverlock.core.times import hours
from riverlock.program.process import Process
from riverlock.state.spec import List, Map, Reducing, Value
from riverlock.testing import harness


def test_records_of_a_key_are_handled_in_input_order() -> None:
    h = make(Tell())

    h.send(row("b", 1), row("a", 2), row("b", 3), row("a", 4))

    assert told(h, "a") == ["event 2", "event 4"]
    assert told(h, "b") == ["event 1", "event 3"]


def test_context_has_key_times_and_epoch() -> None:
    seen: list[Any] = []

    class Look(Process):
        def on_event(self, record: Any, ctx: Any) -> None:
            seen.append((ctx.key, ctx.time, ctx.watermark, ctx.now, ctx.epoch))

    h = make(Look())
    h.send(row("a"))
    h.advance_watermark(T)
    h.advance_clock("1 hour")
    h.send(row("a", at=None))

    start = datetime(2024, 1, 1, tzinfo=UTC)
    assert seen == [("a", T, None, start, 1), ("a", None, T, start + hours(1), 4)]


def test_events_without_event_time_do_not_see_the_time_of_a_timer() -> None:
    class Late(Tell):
        def on_event(self, record: Any, ctx: Any) -> Iterator[Any]:
            ctx.set_timer(T)
            yield ctx.key, f"event {record.v}", ctx.time

    h = harness(Late(), key="k", input="k string, v long")
    h.send(("a", 1))
    h.watermark = T
    h.send(("a", 2))

    assert [(w, t) for _, w, t in h.output] == [
        ("event 1", None),
        ("timer 0", T),
        ("event 2", None),
        ("timer 0", T),
    ]


class Chance(Process):
    output = "k string, x double, now timestamp"

    def on_event(self, record: Any, ctx: Any) -> Iterator[Any]:
        yield ctx.key, ctx.random.random(), ctx.now


def test_random_and_now_are_the_same_on_every_run() -> None:
    rows = [row("a"), row("b"), row("a")]

    first, second = make(Chance(), seed=1), make(Chance(), seed=1)

    assert first.send(*rows) == second.send(*reversed(rows))
    assert len({x for _, x, _ in first.output}) == 3
    assert make(Chance(), seed=2).send(*rows) != first.output
    assert {now for _, _, now in first.output} == {T}


def test_random_differs_between_epochs() -> None:
    h = make(Chance())

    assert h.send(row("a")) != h.send(row("a"))


def test_error_of_user_code_names_everything_one_needs() -> None:
    class Bad(Process):
        def on_event(self, record: Any, ctx: Any) -> None:
            _ = 1 // record.v

    with pytest.raises(UserCodeError) as caught:
        make(Bad(), uid="divide").send(row("a", 1), row("b", 0))

    error = caught.value
    assert (error.operator, error.key, error.epoch) == ("divide", "b", 1)
    text = str(error)
    assert "ZeroDivisionError" in text
    assert "test_execution.py" in text
    assert "_ = 1 // record.v" in text
    assert "Record(k='b', v=0" in text


@pytest.mark.parametrize(
    ("declared", "value"),
    [
        (Value("double"), "text"),
        (Value("long"), 1.5),
        (Value("long"), 1 << 63),
        (Value("long"), 1 << 70),
        (Value("long"), True),
        (Value("int"), 1 << 31),
        (Value("string"), b"x"),
        (Value("string"), "\ud800"),
        (Value("string"), object()),
        (Value("timestamp"), datetime(2024, 1, 1)),  # noqa: DTZ001
        (Value("array<long>"), [1, "x"]),
        (Value("struct<x:long>"), {"y": 1}),
        (Value("decimal(3,1)"), 1.5),
        (Value("long", ttl="1 day"), "text"),
        (Value("long", ttl="1 day"), 1 << 63),
        (Reducing("long", max), "text"),
    ],
)
def test_value_that_cannot_be_stored_names_operator_variable_and_key(
    declared: Any, value: Any
) -> None:
    class Bad(Process):
        spent = declared

        def on_event(self, record: Any, ctx: Any) -> None:
            if isinstance(declared, Reducing):
                self.spent.add(value)
            else:
                self.spent = value

    with pytest.raises(StateTypeError) as caught:
        make(Bad(), uid="op").send(row("ann"))

    error: Any = caught.value
    assert (error.operator, error.variable, error.key) == ("op", "spent", "ann")
    assert declared.type.ddl in error.expected


@pytest.mark.parametrize("value", ["x", 1 << 63, [1]])
def test_element_that_cannot_be_stored_names_its_variable(value: Any) -> None:
    class Bad(Process):
        items = List("long")
        seen = Map("long", "long")

        def on_event(self, record: Any, ctx: Any) -> None:
            if record.v == 1:
                self.items.append(value)
            elif record.v == 2:
                self.seen[1] = value
            else:
                self.seen[value] = 1

    for v, name in ((1, "items"), (2, "seen"), (3, "seen")):
        with pytest.raises(StateTypeError) as caught:
            make(Bad()).send(row("ann", v))
        found: Any = caught.value
        assert (found.variable, found.key) == (name, "ann")


def test_failed_epoch_leaves_no_trace() -> None:
    class Sometimes(Sum):
        def on_event(self, record: Any, ctx: Any) -> Iterator[Any]:
            yield from super().on_event(record, ctx)
            if record.v == 0:
                raise ValueError("poison")

    h = make(Sometimes())
    h.send(row("a", 1))
    before = h.snapshot()

    with pytest.raises(UserCodeError):
        h.send(row("a", 2), row("b", 3), row("c", 0))

    assert h.snapshot().changes == before.changes
    assert (h.output, h.state("total", "a")) == ([("a", 1.0)], 1.0)
