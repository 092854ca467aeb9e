"""Random types, values, keys and operations."""

from __future__ import annotations

import string
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

from hypothesis import strategies as st

from riverlock.core.types import Field, Schema, Type

NAMES = st.one_of(
    st.text(string.ascii_lowercase, min_size=1, max_size=6),
    st.sampled_from(["class", "odd name", "ünï", "a`b", "_x"]),
)
TEXT = st.text(st.characters(codec="utf-8"), max_size=20)
DATETIMES = st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30))  # noqa: DTZ001

SIMPLE = st.sampled_from(
    [
        Type("boolean"),
        Type("byte"),
        Type("short"),
        Type("int"),
        Type("long"),
        Type("float"),
        Type("double"),
        Type("string"),
        Type("binary"),
        Type("date"),
        Type("timestamp"),
        Type("timestamp_ntz"),
        Type("decimal", precision=10, scale=2),
        Type("decimal", precision=38, scale=18),
        Type("decimal", precision=38, scale=0),
    ]
)
KEYS = SIMPLE.filter(lambda t: t.kind not in ("float", "double"))


def struct_of(inner: st.SearchStrategy[Type]) -> st.SearchStrategy[Type]:
    fields = st.lists(
        st.builds(Field, NAMES, inner), min_size=1, max_size=3, unique_by=_name
    )
    return fields.map(lambda found: Type("struct", fields=tuple(found)))


def _name(f: Field) -> str:
    return f.name


TYPES = st.recursive(
    SIMPLE,
    lambda inner: st.one_of(
        inner.map(lambda t: Type("array", element=t)),
        st.builds(lambda k, v: Type("map", key=k, element=v), KEYS, inner),
        struct_of(inner),
    ),
    max_leaves=5,
)

_SIMPLE_VALUES: dict[str, st.SearchStrategy[Any]] = {
    "boolean": st.booleans(),
    "byte": st.integers(-(1 << 7), (1 << 7) - 1),
    "short": st.integers(-(1 << 15), (1 << 15) - 1),
    "int": st.integers(-(1 << 31), (1 << 31) - 1),
    "long": st.integers(-(1 << 63), (1 << 63) - 1),
    "float": st.floats(width=32, allow_nan=False),
    "double": st.floats(allow_nan=False),
    "string": TEXT,
    "binary": st.binary(max_size=20),
    "date": st.dates(date(1, 1, 1), date(9999, 12, 31)),
    "timestamp": DATETIMES.map(lambda d: d.replace(tzinfo=UTC)),
    "timestamp_ntz": DATETIMES,
}


def values(t: Type, *, nulls: bool = True) -> st.SearchStrategy[Any]:
    """Values that user code may assign: some not yet in their normal form."""
    found = _values(t)
    return st.none() | found if nulls else found


def _values(t: Type) -> st.SearchStrategy[Any]:
    match t.kind:
        case "decimal":
            limit = 10**t.precision - 1
            return st.integers(-limit, limit).map(
                lambda n: Decimal(n).scaleb(-t.scale, context=_WIDE)
            )
        case "array":
            assert t.element
            return st.lists(values(t.element), max_size=4)
        case "map":
            assert t.key
            assert t.element
            return st.dictionaries(_values(t.key), values(t.element), max_size=4)
        case "struct":
            parts = [values(f.type) for f in t.fields]
            names = [f.name for f in t.fields]
            as_tuple = st.tuples(*parts)
            as_dict = as_tuple.map(lambda v: dict(zip(names, v, strict=True)))
            return st.one_of(as_tuple, as_dict)
        case kind:
            return _SIMPLE_VALUES[kind]


def _wide() -> Any:
    from decimal import Context

    return Context(prec=80)


_WIDE = _wide()

KEY_SCHEMAS = st.lists(SIMPLE, min_size=1, max_size=3).map(
    lambda types: Schema(tuple(Field(f"k{i}", t) for i, t in enumerate(types)))
)


def keys_of(schema: Schema) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.tuples(*(values(f.type) for f in schema.fields))
