"""Rows on their way into a database, as its client expects them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from riverlock.connectors.base.json_rows import json_bytes, json_values
from riverlock.connectors.databases.dialect import RefusedRowError
from riverlock.connectors.databases.table_layout import NESTED
from riverlock.core.values.arrow_values import FarTime, python_values

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import pyarrow as pa

    from riverlock.core.types import Schema

__all__ = [
    "deletions",
    "described",
    "json_texts",
    "last_of_each_key",
    "refuse_numbers",
    "rows_of",
]

_SHOWN = 200
_DELETED_AT_ONCE = 200


def deletions(
    table: str, marks: dict[str, str], keys: list[tuple[Any, ...]]
) -> Iterator[tuple[str, list[Any]]]:
    """Return statements that delete rows by key, many at once.

    Args:
        table: Its name, as SQL.
        marks: The placeholder for a value of each column of the key, as SQL.
        keys: The keys, in the order of the columns.
    """
    one = " AND ".join(f"{column} = {mark}" for column, mark in marks.items())
    for begin in range(0, len(keys), _DELETED_AT_ONCE):
        part = keys[begin : begin + _DELETED_AT_ONCE]
        some = " OR ".join(f"({one})" for _ in part)
        yield f"DELETE FROM {table} WHERE {some}", [v for key in part for v in key]


def json_texts(column: pa.ChunkedArray) -> list[str | None]:
    """Return nested values as JSON, with numbers and times as Spark writes them."""
    return [
        None if value is None else json_bytes(value).decode()
        for value in json_values(column)
    ]


def rows_of(
    table: pa.Table, schema: Schema, fixes: dict[str, Callable[[Any], Any]]
) -> list[tuple[Any, ...]]:
    """Return rows as Python values; ``fixes`` are applied by type, not to nulls."""
    columns: list[list[Any]] = []
    for f in schema.fields:
        column = table[f.name]
        fix = fixes.get(f.type.kind)
        if f.type.kind in NESTED:
            columns.append(list(json_texts(column)))
        elif fix is not None:
            values = python_values(column)
            columns.append([_fixed(v, fix) for v in values])
        else:
            columns.append(python_values(column))
    return list(zip(*columns, strict=True))


def _fixed(value: Any, fix: Callable[[Any], Any]) -> Any:
    # Rows with far times are refused when they are staged; older ones were not.
    is_far = isinstance(value, FarTime)
    return value if value is None or is_far else fix(value)


def last_of_each_key(table: pa.Table, key: tuple[str, ...]) -> pa.Table:
    """Keep the last row of each key, in the order of rows."""
    import numpy as np
    import pyarrow as pa

    place = "__place"
    numbered = table.select(list(key)).append_column(
        place, pa.array(np.arange(table.num_rows))
    )
    last = numbered.group_by(list(key)).aggregate([(place, "max")])[f"{place}_max"]
    if len(last) == table.num_rows:
        return table
    return table.take(last.combine_chunks().sort())


def refuse_numbers(table: pa.Table, schema: Schema, refused: Iterable[str]) -> None:
    """Refuse numbers that a database would silently turn into null, or not accept.

    Raises:
        RefusedRowError: There is one.
    """
    names = tuple(refused)  # "nan", "inf"
    for f in schema.fields:
        if f.type.kind not in ("float", "double"):
            continue
        for place, value in enumerate(table[f.name].to_pylist()):
            if value is None or math.isfinite(value):
                continue
            if ("nan" if math.isnan(value) else "inf") in names:
                row = described(table, place)
                message = f"the database has no {value} for column {f.name!r}: {row}"
                raise RefusedRowError(message)


def described(table: pa.Table, place: int, key: tuple[str, ...] = ()) -> str:
    """Name a row in words: its key if there is one, else all of it."""
    names = list(key) or table.column_names
    row = table.slice(place, 1)
    text = ", ".join(f"{n}={python_values(row[n])[0]!r}" for n in names)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
