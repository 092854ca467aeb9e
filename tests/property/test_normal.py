"""Looking at many values at once gives what looking at each of them gives."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, Final

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.property.strategies import SIMPLE, TYPES, values

from riverlock.core.types import Field, Type
from riverlock.state.codec import Codec, _attribute, codec_of, encode
from riverlock.state.spec import Value


@dataclass
class Line:
    item: str
    price: Decimal | None = None
    share: float = 0.5


@dataclass
class Order:
    lines: list[Line] = field(default_factory=list)
    notes: dict[str, list[float]] = field(default_factory=dict)
    at: datetime | None = None


ORDER = Value(Order).type
_LINES = st.builds(
    Line, st.text("ab"), st.none() | st.just(Decimal(2)), st.sampled_from([0.5, 1])
)
ORDERS = st.builds(
    Order,
    lines=st.lists(_LINES, max_size=5),
    notes=st.dictionaries(st.text("ab"), st.lists(st.floats()), max_size=2),
    at=st.none() | st.just(datetime(2024, 1, 1, tzinfo=UTC)),
)
NAIVE = datetime(2024, 1, 1, fold=1)  # noqa: DTZ001 - one without a zone
# Each is a value of some type, and of most it is not, or is not as it is stored.
_ODD: Final[list[Any]] = [
    *(True, 1, -129, 127, 128, 1 << 15, 1 << 31, 1 << 63, -(1 << 63) - 1, 1 << 64),
    *(0.1, -0.0, float("nan"), 1e39, "x", "\ud800", "é", b"x", bytearray(b"x")),
    *(Decimal("1.0"), Decimal("1.00"), Decimal("-0.00"), Decimal("NaN")),
    *(
        date(2024, 1, 1),
        datetime(2024, 1, 1, tzinfo=UTC),
        NAIVE,
        NAIVE.replace(tzinfo=UTC),
    ),
    *((), [], {}, [None], (1, 2), {"a": 1}, {None: 1}, [[1]], object(), Line("x")),
]
ODD = st.sampled_from(_ODD)


def obvious(t: Type, value: Any) -> Any:
    """Return a value as it is stored: what is inside first, one by one."""
    if value is None:
        return None
    if t.kind == "array" and hasattr(value, "__iter__"):
        if not isinstance(value, str | bytes):
            assert t.element
            value = [obvious(t.element, v) for v in value]
    elif t.kind == "map" and isinstance(value, Mapping):
        assert t.key
        assert t.element
        key, element = codec_of(t.key), t.element
        value = {key.normalise(k): obvious(element, v) for k, v in value.items()}
    elif t.kind == "struct" and type(value) is codec_of(t).python:
        value = {
            f.name: obvious(f.type, getattr(value, _attribute(f.name, place)))
            for place, f in enumerate(t.fields)
        }
    return codec_of(t).normalise(value)


def outcome(make: Any, *args: Any) -> Any:
    try:
        found = make(*args)
    except (TypeError, ValueError, ArithmeticError) as error:
        return type(error)
    return encode(found), repr(found)


def inner(value: Any) -> Iterator[Any]:
    """Give everything that can be changed in place."""
    if (
        isinstance(value, list | dict)
        or is_dataclass(value)
        or hasattr(value, "__struct_fields__")
    ):
        yield value
    parts: Any = ()
    if isinstance(value, list):
        parts = value
    elif isinstance(value, dict):
        parts = value.values()
    elif is_dataclass(value):
        parts = [getattr(value, f.name) for f in fields(value)]
    elif hasattr(value, "__struct_fields__"):
        parts = [getattr(value, n) for n in value.__struct_fields__]
    for each in parts:
        yield from inner(each)


def some(t: Type) -> st.SearchStrategy[Any]:
    return ORDERS if t is ORDER else values(t)


@st.composite
def cases(draw: st.DrawFn) -> tuple[Type, list[Any]]:
    """Values of a type, some of them as assigned, and perhaps one that is odd."""
    t = draw(TYPES | st.just(ORDER))
    codec = codec_of(t)
    given = draw(st.lists(some(t), max_size=9))
    found = [codec.checked(v) if draw(st.booleans()) else v for v in given]
    places = draw(st.lists(st.integers(0, max(0, len(found) - 1)), max_size=2))
    for place in places:
        found[place:place] = [_spoiled(draw, codec.checked(draw(some(t))))]
    return t, found


def _spoiled(draw: st.DrawFn, value: Any) -> Any:
    """Return an odd value, or one that has an odd one somewhere inside."""
    parts = list(inner(value))
    if not parts or draw(st.booleans()):
        return draw(ODD)
    part, odd = draw(st.sampled_from(parts)), draw(ODD)
    if isinstance(part, list):
        part.insert(draw(st.integers(0, len(part))), odd)
    elif isinstance(part, dict):
        key = next(iter(part), "a") if draw(st.booleans()) else "a"
        part[key] = odd
    else:
        names = (
            [f.name for f in fields(part)]
            if is_dataclass(part)
            else part.__struct_fields__
        )
        setattr(part, draw(st.sampled_from(list(names))), odd)
    return value


@settings(max_examples=300)
@given(cases())
def test_many_values_are_settled_as_each_of_them_would_be(
    case: tuple[Type, list[Any]],
) -> None:
    t, found = case
    codec: Codec = codec_of(t)
    expected = outcome(lambda: [obvious(t, v) for v in found])

    assert outcome(codec.copies, found) == expected
    assert outcome(lambda: [codec.checked(v) for v in found]) == expected
    if codec.are_normal(found):
        assert outcome(list, found) == expected


@settings(max_examples=100)
@given(cases())
def test_nobody_has_a_hold_on_what_was_settled(case: tuple[Type, list[Any]]) -> None:
    t, found = case
    if isinstance(outcome(codec_of(t).copies, found), type):
        return

    made = codec_of(t).copies(found)

    assert not {id(v) for v in inner(made)} & {id(v) for v in inner(found)}


@given(SIMPLE)
@settings(max_examples=60)
def test_no_odd_value_is_taken_for_a_normal_one(t: Type) -> None:
    shapes: list[tuple[Type, Any]] = [
        (t, lambda v: v),
        (Type("array", element=t), lambda v: [None, v]),
        (Type("map", key=Type("long"), element=t), lambda v: {1: v}),
        (Type("struct", fields=(Field("a", t),)), None),
    ]
    for whole, made in shapes:
        codec = codec_of(whole)
        for odd in _ODD:
            value = codec.python(a=odd) if made is None else made(odd)
            if codec.are_normal([value]):
                assert outcome(codec.checked, value) == outcome(lambda v: v, value)
