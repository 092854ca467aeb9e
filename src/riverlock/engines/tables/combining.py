"""Partial rows of one key and pane become one, before they are sent anywhere.

As Spark does it before its exchange; what comes out is the same up to the order in
which numbers with a fraction are added, which here is the order of the rows.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from riverlock.core.hidden_columns import MARK, PART, ROWS, SEQ, SOURCE, TIME, WINDOW
from riverlock.core.types import INTEGERS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from riverlock.core.types import Schema
    from riverlock.engines.tables.rows import ArrowRows

__all__ = ["combined", "ways_to_combine"]

_GROUPED: Final = (WINDOW, SOURCE, PART)
_HIDDEN: Final = {TIME: "max", MARK: "max", SEQ: "min", ROWS: "sum"}
# Keys that are equal for Spark are equal for Arrow.
_KEYS: Final = frozenset(
    (*INTEGERS, "string", "binary", "boolean", "date", "timestamp")
)
_SUMS: Final = frozenset((*INTEGERS, "double"))
_ORDERED: Final = frozenset((*INTEGERS, "double", "date", "timestamp", "timestamp_ntz"))
# Beyond that, a sum of whole numbers might not fit.
_SAFE: Final = 2.0**62


def ways_to_combine(
    columns: Schema, keys: Sequence[str], merges: Mapping[str, str]
) -> dict[str, str] | None:
    """Return how each partial column is combined; None: rows stay as they are.

    Args:
        columns: Those of partial rows.
        keys: The names of the keys.
        merges: How partial columns are merged, by name.
    """
    if any(columns[key].kind not in _KEYS for key in keys):
        return None
    for name, how in merges.items():
        known = {"sum": _SUMS, "min": _ORDERED, "max": _ORDERED}.get(how, ())
        if columns[name].kind not in known:
            return None
    return dict(merges)


def combined(
    rows: ArrowRows, keys: Sequence[str], ways: Mapping[str, str]
) -> ArrowRows:
    """Return one row for each key and pane, in the order in which they come first.

    Rows stay as they are where a result might be another one.
    """
    table = rows.table
    if not all(_is_safe(table[name], how) for name, how in ways.items()):
        return rows
    groups = [*keys, *(c for c in _GROUPED if c in table.column_names)]
    hidden = {c: how for c, how in _HIDDEN.items() if c in table.column_names}
    wanted = {**ways, **hidden}
    # Arrow knows no groups without a key.
    nothing = "__rl_nothing"
    if not groups:
        table = table.append_column(nothing, pa.nulls(table.num_rows, pa.bool_()))
    stored = {name: table[name] for name in groups}
    stored |= {name: _number(table[name]) for name in wanted}
    if not groups:
        stored[nothing] = table[nothing]
    made = (
        pa.table(stored)
        .group_by(groups or [nothing], use_threads=False)
        .aggregate(list(wanted.items()))
    )
    names = [*rows.columns.names, *(c for c in (*_GROUPED, *hidden) if c in stored)]
    found = {
        name: made[f"{name}_{wanted[name]}"] if name in wanted else made[name]
        for name in names
    }
    kinds = {name: table.schema.field(name).type for name in names}
    return replace(
        rows, table=pa.table({n: c.cast(kinds[n]) for n, c in found.items()})
    )


def _is_safe(column: pa.ChunkedArray, how: str) -> bool:
    """Tell whether Arrow combines these values as Spark does."""
    if pa.types.is_integer(column.type):
        if how != "sum":
            return True
        size = pc.sum(pc.abs(column.cast(pa.float64(), safe=False))).as_py()
        return size is None or size < _SAFE
    if pa.types.is_floating(column.type) and how != "sum":
        # Not a number is greatest for Spark, and of both zeros it takes the first.
        numbers: Any = column.drop_null().to_numpy()
        return not (np.isnan(numbers) | (numbers == 0.0)).any()
    return True


def _number(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return dates and times as the numbers that they are stored as."""
    if pa.types.is_date32(column.type):
        return column.cast(pa.int32())
    if pa.types.is_timestamp(column.type):
        return column.cast(pa.int64())
    return column
