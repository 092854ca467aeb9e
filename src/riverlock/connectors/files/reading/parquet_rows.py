"""Rows of a Parquet file in the columns of a source, as Spark reads them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from riverlock.core.errors import SourceError

if TYPE_CHECKING:
    from riverlock.core.types import Schema

__all__ = ["parquet_rows"]

# Written by Spark before 3.0, whose old dates are of another calendar.
_LEGACY = (b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96")


def parquet_rows(path: str, columns: Schema, uid: str) -> tuple[pa.Table, list[str]]:
    """Return the rows, and the text of bad ones, of which there are none.

    Raises:
        SourceError: It is no Parquet file, or has columns of other types.
    """
    try:
        with pq.ParquetFile(path, coerce_int96_timestamp_unit="us") as file:
            return _rows(file, columns, path, uid), []
    except pa.ArrowException as error:
        raise SourceError(
            uid,
            what=f"file {path} cannot be read as Parquet: {error}",
            hint="nothing of this epoch was committed",
        ) from error


def _rows(file: Any, columns: Schema, path: str, uid: str) -> pa.Table:
    stored = file.schema_arrow
    metadata = file.metadata.metadata or {}
    if any(name in metadata for name in _LEGACY):
        raise _refused(path, uid, "dates of the calendar that Spark 2 used")
    named: dict[str, list[str]] = {}
    for name in stored.names:
        named.setdefault(name.casefold(), []).append(name)
    arrow = columns.to_arrow()
    found = {f.name: _stored(f.name, stored.names, named, path, uid) for f in arrow}
    wanted = [name for name in found.values() if name is not None]
    table = file.read(columns=wanted, use_threads=False)
    made = [_column(table, found[f.name], f, path, uid) for f in arrow]
    return pa.Table.from_arrays(made, schema=arrow)


def _stored(
    name: str, names: list[str], named: dict[str, list[str]], path: str, uid: str
) -> str | None:
    """Return the name that a column has in a file; case does not matter for Spark."""
    known = named.get(name.casefold(), [])
    if len(known) > 1:
        raise _refused(
            path, uid, f"columns {', '.join(known)}, which are one for Spark"
        )
    return known[0] if known else None


def _column(
    table: pa.Table, name: str | None, field: pa.Field, path: str, uid: str
) -> pa.ChunkedArray:
    if name is None:
        return pa.chunked_array([pa.nulls(table.num_rows, field.type)])
    found, kind = table[name], field.type
    if pa.types.is_dictionary(found.type):
        found = found.cast(found.type.value_type)
    if found.type == kind:
        return found
    if not _widens(found.type, kind):
        raise _refused(path, uid, f"column {name} of type {found.type}, not {kind}")
    return found.cast(kind)


def _widens(stored: pa.DataType, kind: pa.DataType) -> bool:
    """Tell whether all values of a stored type are values of another one."""
    if pa.types.is_signed_integer(stored) and pa.types.is_signed_integer(kind):
        return bool(stored.bit_width <= kind.bit_width)
    if pa.types.is_floating(stored) and kind == pa.float64():
        return True
    texts = (pa.types.is_string, pa.types.is_large_string)
    if any(of(stored) for of in texts) and pa.types.is_string(kind):
        return True
    if pa.types.is_timestamp(stored) and pa.types.is_timestamp(kind):
        is_finer = stored.unit in ("s", "ms", "us")
        return is_finer and (stored.tz is None) == (kind.tz is None)
    if pa.types.is_nested(stored) and pa.types.is_nested(kind):
        return bool(stored.equals(kind))
    return False


def _refused(path: str, uid: str, found: str) -> SourceError:
    return SourceError(
        uid,
        what=f"file {path} has {found}",
        hint="nothing of this epoch was committed; execution='jobs' may read it",
    )
