"""Which types of PostgreSQL hold the values of ours."""

from __future__ import annotations

from typing import TYPE_CHECKING

from riverlock.connectors.databases.table_layout import NESTED, Column

if TYPE_CHECKING:
    from riverlock.core.types import Type

__all__ = ["column_type", "misfit"]

_TYPES = {
    "boolean": "BOOLEAN",
    "byte": "SMALLINT",
    "short": "SMALLINT",
    "int": "INTEGER",
    "long": "BIGINT",
    "float": "REAL",
    "double": "DOUBLE PRECISION",
    "string": "TEXT",
    "binary": "BYTEA",
    "date": "DATE",
    "timestamp": "TIMESTAMPTZ",
    "timestamp_ntz": "TIMESTAMP",
}
# Types that hold all values of ours, unaltered. A string may become any type but a
# number: the server parses it, or refuses the row.
_HOLDERS = {
    "boolean": {"bool"},
    "byte": {"int2", "int4", "int8", "numeric"},
    "short": {"int2", "int4", "int8", "numeric"},
    "int": {"int4", "int8", "numeric"},
    "long": {"int8", "numeric"},
    "float": {"float4", "float8"},
    "double": {"float8"},
    "decimal": {"numeric"},
    "binary": {"bytea"},
    "date": {"date"},
    "timestamp": {"timestamptz"},
    "timestamp_ntz": {"timestamp"},
}
_NOT_TEXT = {"int2", "int4", "int8", "numeric", "float4", "float8", "bool", "bytea"}


def column_type(kind: Type) -> str:
    """Return the type of the same name, or of the same values."""
    if kind.kind == "decimal":
        return f"NUMERIC({kind.precision},{kind.scale})"
    return _TYPES.get(kind.kind, "JSONB")


def misfit(kind: Type, column: Column) -> str | None:
    """Return the type that a column should have, if it would alter values of ours."""
    wanted = column_type(kind)
    name = kind.kind
    if name in NESTED:
        return None if column.type in ("json", "jsonb", "text") else wanted
    if name == "string":
        return wanted if column.type in _NOT_TEXT else None
    if column.type not in _HOLDERS[name]:
        return wanted
    if column.precision is None:
        return None
    if column.type in ("timestamp", "timestamptz"):
        return wanted if column.precision < 6 else None
    if column.type == "numeric":
        return wanted if _is_narrow(kind, column) else None
    return None


def _is_narrow(kind: Type, column: Column) -> bool:
    digits = {"byte": 3, "short": 5, "int": 10, "long": 19}
    precision = kind.precision or digits[kind.kind]
    scale = column.scale or 0
    assert column.precision is not None
    return scale < kind.scale or column.precision - scale < precision - kind.scale
