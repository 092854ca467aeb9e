from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from riverlock.core.errors import InvalidStateSpecError, StateError
from riverlock.program.process import Process
from riverlock.state.layout import StateLayout
from riverlock.state.spec import List, Map, Reducing, Value, specs_of


class Base(Process):
    a = Value("double", default=0)
    b = List("long", ttl="1 hour")


class Child(Base):
    c = Map("string", "array<int>")
    a = Value("long")
    d = Reducing("double", max)
    e = Value("long", scope="broadcast")


def test_specs_of_names_base_classes_first() -> None:
    specs = specs_of(Child)

    assert list(specs) == ["a", "b", "c", "d", "e"]
    assert specs["a"].variable.type == "bigint"
    assert specs["b"].variable.ttl_us == 3_600_000_000
    assert specs["c"].variable.key == "string"
    assert [n for n, s in specs.items() if s.is_packed] == ["a", "d", "e"]


@pytest.mark.parametrize(
    "declare",
    [
        lambda: Value("text"),
        lambda: Value("double", default="x"),
        lambda: Value("int", default=1 << 40),
        lambda: Value("double", scope="task"),
        lambda: Value("double", ttl="1 hour", scope="group"),
        lambda: Value("double", ttl="0 s"),
        lambda: Map("array<int>", "long"),
        lambda: Map("nothing", "long"),
        lambda: Reducing("double", 5),  # type: ignore[arg-type]
        lambda: List(object),
    ],
)
def test_declarations_that_cannot_be_stored_are_refused(declare: Any) -> None:
    with pytest.raises(InvalidStateSpecError):
        declare()


@pytest.mark.parametrize("name", ["_private", "x" * 65, "ü" * 33])
def test_names_that_cannot_be_stored_are_refused(name: str) -> None:
    bad = type("Bad", (Process,), {name: Value("double")})

    with pytest.raises(InvalidStateSpecError, match="a public name"):
        specs_of(bad)


def test_default_is_what_reading_it_back_would_give() -> None:
    assert Value("double", default=1).default == 1.0
    assert type(Value("double", default=1).default) is float
    assert Value("struct<x:long>", default={"x": 1}).default.x == 1
    assert Value("decimal(5,2)", default=Decimal("1.5")).default == Decimal("1.50")


def test_only_defaults_that_can_be_changed_are_copied() -> None:
    assert Value("array<long>", default=[]).is_copied
    assert Value("struct<x:long>", default={"x": 1}).is_copied
    assert not Value("timestamp", default=datetime(2024, 1, 1, tzinfo=UTC)).is_copied
    assert not Value("array<long>").is_copied


def test_state_outside_the_engine_says_how_to_test_it() -> None:
    process: Any = Child()

    assert process.a is None
    with pytest.raises(StateError, match="harness"):
        _ = process.c


def test_digest_follows_the_declaration() -> None:
    from riverlock.core.types import schema_of

    keys = schema_of("k string")
    first = StateLayout(keys, specs_of(Base)).digest

    assert first == StateLayout(keys, specs_of(Base)).digest
    assert first != StateLayout(keys, specs_of(Child)).digest
    assert first != StateLayout(schema_of("k long"), specs_of(Base)).digest
