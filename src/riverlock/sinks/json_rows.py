"""Rows as JSON, with numbers and times as Spark writes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa

__all__ = ["json_rows", "json_values", "plain_rows"]


def json_rows(table: pa.Table) -> list[bytes]:
    """Return one JSON object per row."""
    encoder = msgspec.json.Encoder(decimal_format="number")
    return [encoder.encode(row) for row in plain_rows(table)]


def plain_rows(table: pa.Table) -> Iterator[dict[str, Any]]:
    """Return rows whose values are plain data that JSON can hold."""
    columns = [json_values(table[n]) for n in table.column_names]
    for row in zip(*columns, strict=True):
        yield dict(zip(table.column_names, row, strict=True))


def json_values(column: pa.ChunkedArray) -> list[Any]:
    """Return values as plain data that JSON can hold."""
    values: list[Any] = column.to_pylist()
    fix = _fixer(column.type)
    return values if fix is None else [None if v is None else fix(v) for v in values]


def _fixer(kind: pa.DataType) -> Callable[[Any], Any] | None:
    """Return how values of a type become JSON; Arrow gives maps as lists of pairs."""
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
