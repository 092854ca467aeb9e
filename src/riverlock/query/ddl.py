"""Arrow types as Spark names them, so that all commands call a type the same."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyarrow import types as kinds

from riverlock.core.types import Field, Type

__all__ = ["type_of_arrow"]

_SIMPLE = {
    Type(kind).to_arrow(): Type(kind)
    for kind in (
        *("boolean", "byte", "short", "int", "long", "float", "double"),
        *("string", "binary", "date", "timestamp", "timestamp_ntz"),
    )
}


def type_of_arrow(given: pa.DataType) -> Type:
    """Return the type that is exchanged as an Arrow type; others keep their name."""
    nested: Any = given
    if given in _SIMPLE:
        return _SIMPLE[given]
    if kinds.is_decimal(given):
        return Type("decimal", precision=nested.precision, scale=nested.scale)
    if kinds.is_map(given):
        key = type_of_arrow(nested.key_type)
        return Type("map", key=key, element=type_of_arrow(nested.item_type))
    if kinds.is_list(given):
        return Type("array", element=type_of_arrow(nested.value_type))
    if kinds.is_struct(given):
        fields = tuple(Field(f.name, type_of_arrow(f.type)) for f in nested)
        return Type("struct", fields=fields)
    return Type(str(given))
