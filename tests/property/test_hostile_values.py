"""Whatever is assigned to state is read back alike, or told at its record."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from functools import cache
from typing import Any, Final

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from riverlock.core.errors import StateTypeError, UserCodeError
from riverlock.program.process import Process
from riverlock.state.spec import List, Map, Reducing, Value
from riverlock.testing import Harness, harness


class Words(str):
    __slots__ = ()

    def __str__(self) -> str:
        return "another"


class Number(int):
    def __index__(self) -> int:
        return 7


class Far(datetime):
    pass


class Day(date):
    pass


@dataclass
class Other:
    a: Any = None


TYPES: Final = [
    *("boolean", "byte", "short", "int", "long", "float", "double", "string"),
    *("binary", "date", "timestamp", "timestamp_ntz", "decimal(10,2)", "decimal(38,0)"),
]
EAST, WEST = timezone(timedelta(hours=14)), timezone(timedelta(hours=-12))
FIRST = datetime(1, 1, 1)  # noqa: DTZ001 - one without a zone
LAST = datetime(9999, 12, 31, 23, 59, 59, 999_999)  # noqa: DTZ001
_EDGES = [0, 7, 8, 15, 16, 31, 32, 62, 63, 64, 127, 400]
_WHOLE = st.sampled_from(
    [s * (1 << e) + d for e in _EDGES for s in (1, -1) for d in (-1, 0)]
)
_VALUES: Final = st.one_of(
    _WHOLE,
    st.floats(),
    st.text(st.characters(), max_size=3),
    st.sampled_from(["\ud800", "a\udfff", "\0", Words("x"), np.str_("x")]),
    st.binary(max_size=2),
    st.sampled_from([bytearray(b"x"), memoryview(b"xy")[::2], True, np.True_]),
    st.decimals(),
    st.sampled_from([Decimal("1E+999999"), Decimal("1E-999999"), Decimal("-0.00")]),
    st.dates(),
    st.datetimes(timezones=st.sampled_from([None, UTC, EAST, WEST])),
    st.sampled_from([FIRST, FIRST.replace(tzinfo=EAST), date.min, Day(2024, 1, 1)]),
    st.sampled_from([LAST, LAST.replace(tzinfo=WEST), date.max, LAST.replace(fold=1)]),
    st.sampled_from([Number(3), Far(2024, 1, 1, tzinfo=UTC), 1j, object(), Other(1)]),
    st.sampled_from([np.int64(3), np.uint64(1 << 63), np.float32(0.1), np.array([1])]),
    st.sampled_from([np.datetime64("2024-01-01"), np.datetime64("NaT"), [], {}, ()]),
)
# Values travel beside the records.
PLACED: dict[int, Any] = {}


def last(old: Any, new: Any) -> Any:
    return new


class Assigns(Process):
    output = "seen string"
    put: Any
    found: Any

    def on_event(self, record: Any, ctx: Any) -> Iterator[Any]:
        if record.n >= 0:
            self.put(PLACED[record.n])
        yield (repr(self.found()),)


@cache
def process(kind: str, t: str) -> type[Process]:
    """Return a process that puts values of a type into a kind of state."""
    ways: dict[str, Any] = {
        "value": lambda: Value(t),
        "group": lambda: Value(t, scope="group"),
        "brief": lambda: Value(t, ttl="1 day"),
        "array": lambda: Value(f"array<{t}>", default=[]),
        "key": lambda: Value(f"map<{t},int>", default={}),
        "struct": lambda: Value(f"struct<a:{t}>"),
        "list": lambda: List(t),
        "map": lambda: Map("string", t),
        "map key": lambda: Map(t, "int"),
        "fold": lambda: Reducing(t, last),
    }
    declared = ways[kind]()

    def put(self: Any, value: Any) -> None:
        match kind:
            case "value" | "group" | "brief":
                self.v = value
            case "array" | "list":
                self.v.append(value)
            case "struct":
                self.v = (value,)
            case "map":
                self.v["a"] = value
            case "fold":
                self.v.add(value)
            case _:
                self.v[value] = 1

    def found(self: Any) -> Any:
        return self.v.value if kind == "fold" else self.v

    return type("Made", (Assigns,), {"v": declared, "put": put, "found": found})


KINDS: Final = [
    *("value", "group", "brief", "array", "key", "struct", "list", "map", "map key"),
    "fold",
]


def made(kind: str, t: str, **options: Any) -> Harness:
    return harness(process(kind, t)(), key="k", input="k string, n int", **options)


@settings(max_examples=150)
@given(st.sampled_from(KINDS), st.sampled_from(TYPES), _VALUES)
@example("value", "long", 1 << 63)
@example("value", "string", "\ud800")
@example("map key", "double", -0.0)
def test_a_value_is_read_back_alike_or_told_at_its_record(
    kind: str, t: str, value: Any
) -> None:
    PLACED[0] = value
    one, apart = (made(kind, t) for _ in range(2))
    with_letters = made(kind, t, on_error="dead_letter")
    with_letters.send(("a", -1), ("a", 0), ("a", -1))

    told = send(one, ("a", -1), ("a", 0), ("a", -1))
    if told is not None:
        assert "n=0" in told.record
        assert told.key == "a"
        (letter,) = with_letters.dead_letters
        assert "n=0" in letter["record"]
        assert with_letters.output[0] == with_letters.output[1]
        assert not [*with_letters._store.scan(b"")]
    else:
        apart.send(("a", -1))
        apart.send(("a", 0))
        apart = apart.restart(apart.snapshot())
        apart.send(("a", -1))
        # What the record itself sees is what it assigned; the next one sees the state.
        assert apart.output[-1] == one.output[-1]
        assert with_letters.output == one.output
        assert with_letters.dead_letters == []


def send(h: Harness, *records: Any) -> Any:
    """Send records; returns what they raised."""
    try:
        h.send(*records)
    except (StateTypeError, UserCodeError) as error:
        return error
    return None
