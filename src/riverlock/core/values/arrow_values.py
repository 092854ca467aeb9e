"""Arrow columns as Python values, also where Python has no value.

Arrow holds times of all years, Python those of 1 to 9999; Arrow's own conversion fails
with all rows for the sake of one. Here that one is a ``FarTime``, which is its text.
"""

from __future__ import annotations

from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from riverlock.core.times import (
    END_US,
    FIRST_DAY,
    LAST_DAY,
    START_US,
    date_of,
    date_text,
    from_micros,
    from_naive_micros,
    has_datetime,
    to_iso,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

__all__ = [
    "FarTime",
    "FarValue",
    "FarValues",
    "far_in",
    "first_far",
    "python_rows",
    "python_values",
    "text_column",
]


class FarTime(str):
    """A time or date outside the years 1 to 9999, as ISO 8601 text."""

    __slots__ = ()


class FarValues(list[Any]):
    """The values of a column, with at least one ``FarTime`` in them."""


class FarValue(NamedTuple):
    """Where a table has a time that Python cannot name."""

    place: int
    column: str
    value: FarTime


def python_values(
    column: pa.ChunkedArray | pa.Array, *, far: type[str] = FarTime, dicts: bool = False
) -> list[Any]:
    """Return values as ``to_pylist`` does, with text for times that Python lacks.

    Args:
        column: The values. If there is a ``FarTime``, the list is a ``FarValues``.
        far: What becomes of such a time; ``str`` where people or JSON are to see it.
        dicts: Whether maps are dictionaries, and not lists of pairs.
    """
    try:
        values: list[Any] = column.to_pylist(
            maps_as_pydicts="strict" if dicts else None
        )
    except (OverflowError, ValueError):
        values = [_value(each, far, dicts=dicts) for each in column]
        return FarValues(values) if any(map(far_in, values)) else values
    return values


def python_rows(
    table: pa.Table | pa.RecordBatch, *, dicts: bool = False
) -> list[dict[str, Any]]:
    """Return rows as people see them: times that Python lacks are plain text."""
    columns = [python_values(c, far=str, dicts=dicts) for c in table.columns]
    names = table.schema.names
    if not names:
        return [{} for _ in range(table.num_rows)]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def text_column(column: pa.ChunkedArray) -> pa.ChunkedArray | pa.Array:
    """Return a column as Arrow writes it, which is wrong for years that are far."""
    import pyarrow as pa

    texts = column.cast(pa.string())
    if not any(map(_has_far, column.chunks)):
        return texts
    pairs = zip(python_values(column), texts.to_pylist(), strict=True)
    found = [v.replace("T", " ") if isinstance(v, FarTime) else t for v, t in pairs]
    return pa.array(found, pa.string())


def first_far(table: pa.Table, columns: Sequence[str]) -> FarValue | None:
    """Return the first time in some columns that Python cannot name."""
    found = []
    for name in columns:
        if any(map(_has_far, table[name].chunks)):
            values = (far_in(_value(each, FarTime)) for each in table[name])
            far = ((n, v) for n, v in enumerate(values) if v is not None)
            found += [FarValue(place, name, v) for place, v in islice(far, 1)]
    return min(found, default=None)


def far_in(value: Any) -> FarTime | None:
    """Return the first time inside a value that Python cannot name."""
    if isinstance(value, FarTime):
        return value
    inner: Any = ()
    if isinstance(value, dict):
        inner = value.values()
    elif isinstance(value, list | tuple):
        inner = value
    return next((far for far in map(far_in, inner) if far is not None), None)


def _has_far(array: pa.Array) -> bool:
    """Tell whether there may be such a time, at the cost of a look at the greatest."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = array.type
    if pa.types.is_timestamp(kind):
        numbers, low, high = _micros(array), START_US, END_US
    elif pa.types.is_date32(kind):
        numbers, low, high = array.cast(pa.int32()), FIRST_DAY, LAST_DAY
    elif pa.types.is_struct(kind):
        return any(map(_has_far, array.flatten()))
    elif pa.types.is_map(kind):
        return _has_far(array.keys) or _has_far(array.items)
    elif pa.types.is_list(kind):
        return _has_far(array.flatten())
    else:
        return False
    ends = pc.min_max(numbers)
    least, most = ends["min"].as_py(), ends["max"].as_py()
    return least is not None and not low <= least <= most <= high


def _micros(array: pa.Array) -> pa.Array:
    import pyarrow as pa

    return array.cast(pa.timestamp("us", array.type.tz)).cast(pa.int64())


def _value(scalar: pa.Scalar, far: type[str], *, dicts: bool = False) -> Any:
    """Return one value, of any type that rows have."""
    import pyarrow as pa

    kind, inner = scalar.type, partial(_value, far=far, dicts=dicts)
    if not scalar.is_valid:
        return None
    if pa.types.is_timestamp(kind):
        us = scalar.cast(pa.timestamp("us", kind.tz)).value
        if not has_datetime(us):
            return far(to_iso(us) if kind.tz else to_iso(us).removesuffix("Z"))
        return from_micros(us) if kind.tz else from_naive_micros(us)
    if pa.types.is_date32(kind):
        day = scalar.value
        is_near = FIRST_DAY <= day <= LAST_DAY
        return date_of(day) if is_near else far(date_text(day))
    if pa.types.is_struct(kind):
        return {name: inner(scalar[name]) for name in scalar}
    if pa.types.is_map(kind):
        pairs = ((pair["key"], pair["value"]) for pair in scalar.values)
        found = [(inner(key), inner(value)) for key, value in pairs]
        return dict(found) if dicts else found
    if pa.types.is_list(kind):
        return [inner(each) for each in scalar.values]
    return scalar.as_py()
