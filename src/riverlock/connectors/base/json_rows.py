"""Rows as JSON, with numbers and times as Spark writes them, and reads them back.

Numbers that JSON cannot express are text: "NaN", "Infinity", "-Infinity".
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

import msgspec

from riverlock.core.values.arrow_values import python_values

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa

__all__ = ["json_bytes", "json_rows", "json_values", "plain_rows", "sayable"]

_ENCODE: Final = msgspec.json.Encoder(decimal_format="number").encode


def json_bytes(value: Any) -> bytes:
    """Return plain data as JSON."""
    return _ENCODE(sayable(value))


def sayable(value: Any) -> Any:
    """Return plain data in which JSON can express all numbers.

    >>> sayable({"a": [1.5, float("-inf")]})
    {'a': [1.5, '-Infinity']}
    """
    match value:
        case float() if not math.isfinite(value):
            if math.isnan(value):
                return "NaN"
            return "Infinity" if value > 0 else "-Infinity"
        case dict():
            return {k: sayable(v) for k, v in value.items()}
        case list():
            return [sayable(v) for v in value]
        case _:
            return value


def json_rows(table: pa.Table) -> list[bytes]:
    """Return one JSON object per row."""
    is_odd = any(map(_may_be_odd, table.columns))
    encode = json_bytes if is_odd else _ENCODE
    return [encode(row) for row in plain_rows(table)]


def _may_be_odd(column: pa.ChunkedArray) -> bool:
    """Tell whether there may be numbers that JSON cannot express."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_nested(column.type):
        return _has_floats(column.type)
    if not pa.types.is_floating(column.type):
        return False
    return not pc.all(pc.is_finite(column)).as_py()


def _has_floats(kind: pa.DataType) -> bool:
    import pyarrow as pa

    if pa.types.is_nested(kind):
        return any(_has_floats(kind.field(n).type) for n in range(kind.num_fields))
    return bool(pa.types.is_floating(kind))


def plain_rows(table: pa.Table) -> Iterator[dict[str, Any]]:
    """Return rows whose values are plain data that JSON can hold."""
    columns = [json_values(table[n]) for n in table.column_names]
    for row in zip(*columns, strict=True):
        yield dict(zip(table.column_names, row, strict=True))


def json_values(column: pa.ChunkedArray) -> list[Any]:
    """Return values as plain data that JSON can hold."""
    values = python_values(column, far=str)
    fix = _fixer(column.type)
    return values if fix is None else [None if v is None else fix(v) for v in values]


def _fixer(kind: pa.DataType) -> Callable[[Any], Any] | None:
    """Return how values of a type become JSON; Arrow returns maps as lists of pairs."""
    import pyarrow as pa

    if pa.types.is_map(kind):
        item = _fixer(kind.item_type) or (lambda v: v)
        return lambda pairs: {str(k): None if v is None else item(v) for k, v in pairs}
    if pa.types.is_list(kind):
        inner = _fixer(kind.value_type)
        if inner is None:
            return None
        return lambda values: [None if v is None else inner(v) for v in values]
    if pa.types.is_struct(kind):
        fixes = {f.name: fix for f in kind if (fix := _fixer(f.type)) is not None}
        if not fixes:
            return None
        return lambda value: {
            n: fixes[n](v) if v is not None and n in fixes else v
            for n, v in value.items()
        }
    return None
