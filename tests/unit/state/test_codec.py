from __future__ import annotations

import dataclasses
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from enum import StrEnum
from typing import Any

import numpy as np
import pandas as pd
import pytest

from riverlock.core.types import type_of
from riverlock.state.codec import codec_of, encode


@dataclasses.dataclass
class Point:
    x: int
    tags: list[str] = dataclasses.field(default_factory=list)
    note: str | None = None


class Colour(StrEnum):
    RED = "red"


T = datetime(2024, 1, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("kind", "given", "normal"),
    [
        ("double", 1, 1.0),
        ("double", np.float32(0.5), 0.5),
        ("float", 0.1, 0.10000000149011612),
        ("long", np.int64(5), 5),
        ("boolean", np.bool_(True), True),
        ("string", Colour.RED, "red"),
        ("string", np.str_("x"), "x"),
        ("binary", bytearray(b"x"), b"x"),
        ("timestamp", T.astimezone(timezone(timedelta(hours=3))), T),
        ("timestamp", pd.Timestamp(T), T),
        ("date", date(2024, 1, 1), date(2024, 1, 1)),
        ("decimal(10,2)", 3, Decimal("3.00")),
        ("decimal(10,2)", Decimal("-0.0"), Decimal("0.00")),
        ("decimal(38,0)", Decimal("9" * 38), Decimal("9" * 38)),
        ("array<double>", (1, 2), [1.0, 2.0]),
        ("array<long>", np.array([1, 2]), [1, 2]),
        ("map<string,double>", {"a": 1}, {"a": 1.0}),
        ("map<string,double>", [("a", 1)], {"a": 1.0}),
    ],
)
def test_normalise_gives_what_a_snapshot_would(
    kind: str, given: Any, normal: Any
) -> None:
    found = codec_of(type_of(kind)).normalise(given)

    assert found == normal
    assert type(found) is type(normal)
    assert str(found) == str(normal)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("double", "1"),
        ("double", True),
        ("long", 1.0),
        ("byte", 128),
        ("string", b"x"),
        ("string", "\ud800"),
        ("timestamp", datetime(2024, 1, 1)),  # noqa: DTZ001
        ("timestamp", date(2024, 1, 1)),
        ("timestamp_ntz", T),
        ("date", T),
        ("decimal(3,1)", Decimal("1.25")),
        ("decimal(3,1)", Decimal(1000)),
        ("decimal(3,1)", Decimal("NaN")),
        ("decimal(3,1)", Decimal("Infinity")),
        ("array<long>", "12"),
        ("array<long>", 5),
        ("map<string,long>", 5),
        ("map<string,long>", {1: 1}),
        ("map<string,long>", {None: 1}),
        ("struct<x:long>", {"y": 1}),
        ("struct<x:long>", (1, 2)),
        ("float", 1e300),
    ],
)
def test_normalise_refuses_what_would_change(kind: str, value: Any) -> None:
    with pytest.raises((TypeError, ValueError, ArithmeticError)):
        codec_of(type_of(kind)).normalise(value)


def test_struct_is_given_as_dict_tuple_or_object() -> None:
    codec = codec_of(type_of("struct<x:long,`odd name`:string>"))

    for given in ({"x": 1, "odd name": "a"}, (1, "a"), codec.normalise((1, "a"))):
        found = codec.normalise(given)
        assert found.x == 1
        assert codec.to_arrow is not None
        assert codec.to_arrow(found) == {"x": 1, "odd name": "a"}
    assert codec.normalise({"x": 1}).x == 1


def test_dataclass_is_given_back_as_such_also_inside_others() -> None:
    plain = codec_of(type_of(Point))
    inside = codec_of(type_of(list[Point]))
    bare = codec_of(type_of("array<struct<x:bigint,tags:array<string>,note:string>>"))
    point = Point(1, ["a"])

    assert plain.decoder()(encode(point)) == point
    assert inside.decoder()(encode([point])) == [point]
    assert type(inside.normalise([{"x": 1}])[0]) is Point
    assert type(bare.normalise([{"x": 1}])[0]) is not Point


def test_dataclass_field_that_is_new_takes_its_default() -> None:
    found = codec_of(type_of(Point)).normalise({"x": 1})

    assert found == Point(1, [], None)
