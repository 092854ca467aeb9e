"""The key of what has none: all records of a stream, as one."""

from __future__ import annotations

from riverlock.core.hidden_columns import ALL
from riverlock.core.types import Field, Schema, Type

__all__ = ["ALL_RECORDS"]

# State has a key, and a file of it a column for the key: this one, always null.
ALL_RECORDS = Schema((Field(ALL, Type("boolean")),))
