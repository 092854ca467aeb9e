"""Our columns as PySpark's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.types import StructType

if TYPE_CHECKING:
    from riverlock.core.types import Schema

__all__ = ["struct_of"]


def struct_of(columns: Schema | str) -> StructType:
    """Return columns, or their DDL text, as a StructType."""
    found = StructType.fromDDL(columns if isinstance(columns, str) else columns.ddl)
    assert isinstance(found, StructType)
    return found
