"""Times that wrapped around: Spark multiplies seconds of JSON without looking."""

from __future__ import annotations

from decimal import Decimal
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

if TYPE_CHECKING:
    from pyspark.sql import Column

__all__ = ["has_wrapped", "times_of"]

# Seconds that fit a timestamp's microseconds, of which there are so many.
_MOST_SECONDS: Final = (2**63 - 1) // 1_000_000
_MICROSECONDS: Final = Decimal(2**64)


def times_of(kind: Any) -> Any:
    """Return a type with nothing but its times, as text; None if it has none."""
    match kind:
        case TimestampType():
            return StringType()
        case StructType():
            found = [(f.name, times_of(f.dataType)) for f in kind]
            fields = [StructField(name, times) for name, times in found if times]
            return StructType(fields) if fields else None
        case ArrayType():
            times = times_of(kind.elementType)
            return ArrayType(times) if times else None
        case MapType():
            times = times_of(kind.valueType)
            return MapType(kind.keyType, times) if times else None
        case _:
            return None


def has_wrapped(kind: Any, value: Column, text: Column) -> Column:
    """Tell whether a time of a value is not the number of seconds that its text is.

    Args:
        kind: The type of the value, which has times.
        value: What Spark made of it.
        text: The same as ``times_of`` its type.
    """
    match kind:
        case StructType():
            parts = [f for f in kind if times_of(f.dataType)]
            return reduce(
                or_,
                (has_wrapped(f.dataType, value[f.name], text[f.name]) for f in parts),
            )
        case ArrayType():
            return _any_wrapped(kind.elementType, value, text)
        case MapType():
            pair = F.map_values(value), F.map_values(text)
            return _any_wrapped(kind.valueType, *pair)
        case _:
            # Text of many digits is a time too, if a format says so.
            seconds = text.try_cast("decimal(20, 0)")
            apart = seconds * 1_000_000 - F.unix_micros(value)
            is_far = F.abs(seconds) > _MOST_SECONDS
            wrapped = is_far & (apart % F.lit(_MICROSECONDS) == 0)
            return F.coalesce(wrapped, F.lit(False))  # noqa: FBT003


def _any_wrapped(kind: Any, values: Column, texts: Column) -> Column:
    each = F.zip_with(values, texts, lambda v, t: has_wrapped(kind, v, t))
    return F.coalesce(F.exists(each, lambda wrapped: wrapped), F.lit(False))  # noqa: FBT003
