"""Numbers that Spark would cut to fit their column: read wider, and then compared."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    ByteType,
    IntegerType,
    MapType,
    ShortType,
    StructField,
    StructType,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import Column

__all__ = ["misfit", "narrowed", "wide"]


def wide(kind: Any) -> Any:
    """Return a type with room for numbers that Spark would cut to fit."""
    match kind:
        case ByteType() | ShortType():
            return IntegerType()
        case StructType():
            fields = [StructField(f.name, wide(f.dataType)) for f in kind]
            return StructType(fields)
        case ArrayType():
            return ArrayType(wide(kind.elementType))
        case MapType():
            return MapType(kind.keyType, wide(kind.valueType))
        case _:
            return kind


def misfit(schema: StructType, values: Iterable[Column]) -> Column:
    """Tell whether a number that was read wider does not fit its column."""
    found = F.lit(False)  # noqa: FBT003
    for field, value in zip(schema, values, strict=True):
        if wide(field.dataType) == field.dataType:
            continue
        narrow = value.try_cast(field.dataType)
        if not isinstance(field.dataType, ByteType | ShortType):
            # As text, since maps cannot be compared.
            value, narrow = (F.to_json(F.struct(v.alias("v"))) for v in (value, narrow))
        found = found | ~value.eqNullSafe(narrow)
    return found


def narrowed(schema: StructType, values: Iterable[Column]) -> list[Column]:
    """Return the columns of a schema from values that were read wider."""
    return [
        (
            value
            if wide(field.dataType) == field.dataType
            else value.try_cast(field.dataType)
        ).alias(field.name)
        for field, value in zip(schema, values, strict=True)
    ]
