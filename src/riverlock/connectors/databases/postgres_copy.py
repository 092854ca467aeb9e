"""Rows as PostgreSQL's COPY reads them, and the row at which it stopped."""

from __future__ import annotations

import io
import re
from typing import TYPE_CHECKING

from riverlock.connectors.databases.row_values import described, json_texts
from riverlock.connectors.databases.table_layout import NESTED

if TYPE_CHECKING:
    import psycopg
    import pyarrow as pa

    from riverlock.connectors.databases.dialect import Target

__all__ = ["as_text", "csv_of", "refused"]


def as_text(rows: pa.Table, target: Target) -> pa.Table:
    """Replace what Arrow's CSV writer does not write as the server reads it."""
    import pyarrow as pa

    columns = {}
    for f in target.schema.fields:
        column = rows[f.name]
        if f.type.kind in NESTED:
            column = pa.array(json_texts(column), pa.string())
        elif f.type.kind == "binary":
            hexed = [None if v is None else f"\\x{v.hex()}" for v in column.to_pylist()]
            column = pa.array(hexed, pa.string())
        elif f.type.kind == "timestamp":
            # The session's zone is UTC; with a zone, Arrow takes 20 times as long.
            column = column.cast(pa.timestamp("us"))
        columns[f.name] = column
    return pa.table(columns)


def csv_of(rows: pa.Table) -> list[bytes]:
    """Return CSV in which null is empty and the empty string is not."""
    import pyarrow.csv as csv

    options = csv.WriteOptions(include_header=False, quoting_style="needed")
    found = []
    for batch in rows.to_batches(max_chunksize=65_536):
        sink = io.BytesIO()
        csv.write_csv(batch, sink, options)
        found.append(sink.getvalue())
    return found


def refused(
    error: psycopg.Error, plain: pa.Table, rows: pa.Table, target: Target
) -> str:
    """Name the row at which the server says it stopped."""
    text = error.diag.message_primary or str(error)
    line = re.search(r"line (\d+)", error.diag.context or "")
    if line is None:
        return text
    place = _row_at(int(line.group(1)), plain)
    return f"{text}: {described(rows, place, target.key)}"


def _row_at(line: int, plain: pa.Table) -> int:
    """Return the row of a line; text may have several lines."""
    import pyarrow as pa

    texts: list[list[str | None]] = [
        c.to_pylist() for c in plain.columns if pa.types.is_string(c.type)
    ]
    at = 0
    for place in range(plain.num_rows):
        at += 1 + sum((column[place] or "").count("\n") for column in texts)
        if at >= line:
            return place
    return int(plain.num_rows) - 1
