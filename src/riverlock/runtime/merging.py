"""Merges columns of partial aggregates into those that are stored.

Numbers are merged by NumPy, which gives the same bits as a loop, because its ``at``
adds one after the other too. Where it could not (a sum that may leave 64 bits, zeros of
both signs, NaNs of several kinds), and for all other types, there is the loop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from riverlock.core.errors import StateTypeError
from riverlock.flow.partial import PythonAggregate, merger
from riverlock.runtime.columns import column_values
from riverlock.state.codec import codec_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from riverlock.core.types import Type
    from riverlock.flow.partial import Merge
    from riverlock.state.layout import StateLayout

__all__ = ["merged", "numbers", "state_array", "state_values", "stored_columns"]

_KINDS: Final = {"int": np.int64, "long": np.int64, "double": np.float64}
# Sums of whole numbers below this, added up as floats, are safe from overflow.
_SAFE: Final = float(1 << 62)


def stored_columns(
    payloads: Sequence[bytes | None], layout: StateLayout
) -> dict[str, tuple[Any, ...]]:
    """Return stored rows column by column; None where there is none."""
    row = layout.rows["key"]
    unset = (None,) * len(row.names)
    decode = row.decode
    rows = [unset if p is None else decode(p) for p in payloads]
    columns = zip(*rows, strict=True) if rows else [()] * len(row.names)
    return dict(zip(row.names, columns, strict=True))


def merged(
    merge: Merge,
    table: pa.Table,
    places: np.ndarray,
    old: dict[str, tuple[Any, ...]],
) -> dict[str, Sequence[Any]]:
    """Return stored values and new rows of the same place as one."""
    if len(merge.columns) == 1:
        ((name, kind),) = merge.columns.items()
        found = numbers(table[name], places, old[name], kind, merge.how)
        if found is not None:
            return {name: found}
    function = merger(merge.how)
    rows = list(zip(*(old[name] for name in merge.columns), strict=True))
    fresh = [state_values(table[n], kind) for n, kind in merge.columns.items()]
    for place, new in zip(places.tolist(), zip(*fresh, strict=True), strict=True):
        rows[place] = function(rows[place], new)
    return dict(zip(merge.columns, zip(*rows, strict=True), strict=True))


def state_array(kind: Type, values: Sequence[Any], name: str, uid: str) -> pa.Array:
    """Return values of state as a column.

    Raises:
        StateTypeError: One does not fit, such as a sum that has become too great.
    """
    codec = codec_of(kind)
    if codec.to_arrow is not None:
        values = [None if v is None else codec.to_arrow(v) for v in values]
    try:
        return pa.array(values, kind.to_arrow())
    except (pa.ArrowException, OverflowError) as error:
        raise StateTypeError(
            operator=uid,
            variable=name,
            key=None,
            expected=kind.ddl,
            found=f"a value that does not fit ({error})",
        ) from error


def state_values(column: pa.ChunkedArray, kind: Type) -> list[Any]:
    """Return a column as state has it."""
    codec = codec_of(kind)
    if codec.plain is not None:
        return column_values(column, kind)
    return codec.from_arrow(column.to_pylist())


def numbers(
    column: pa.ChunkedArray,
    places: np.ndarray,
    old: tuple[Any, ...],
    kind: Type,
    how: str | PythonAggregate,
) -> list[Any] | None:
    """Merge numbers; None if NumPy cannot do it as the loop does."""
    if isinstance(how, PythonAggregate):
        return None
    if kind.kind not in _KINDS or how not in _START:
        return None
    with np.errstate(all="ignore"):  # infinity less infinity is NaN, as in Spark
        return _numbers(column, places, old, _KINDS[kind.kind], how)


def _numbers(
    column: pa.ChunkedArray,
    places: np.ndarray,
    old: tuple[Any, ...],
    kind: type,
    how: str,
) -> list[Any] | None:
    known = np.array([v is not None for v in old])
    start, put = _START[how]
    result: np.ndarray = np.full(len(old), start(kind), dtype=kind)
    result[known] = [v for v in old if v is not None]
    valid = column.is_valid().to_numpy()
    values = column.drop_null().to_numpy().astype(kind)
    mine = places[valid]
    if how == "sum" and kind is np.int64:
        sizes = np.bincount(mine, np.abs(values.astype(float)), minlength=len(old))
        if np.any(sizes + np.abs(result.astype(float)) >= _SAFE):
            return None
    if how != "sum" and any(
        np.any(np.isnan(v) | (np.signbit(v) & (v == 0)))
        for v in (values, result[known])
    ):
        return None  # which of two zeros, or of two NaNs, is kept, NumPy does not say
    put(result, mine, values)
    known[mine] = True
    if known.all():
        found: list[Any] = result.tolist()
        return found
    return [v if k else None for v, k in zip(result.tolist(), known, strict=True)]


def _least(kind: type) -> Any:
    return np.iinfo(kind).min if kind is np.int64 else -np.inf


def _greatest(kind: type) -> Any:
    return np.iinfo(kind).max if kind is np.int64 else np.nan


# What changes nothing when merged, and how to merge. For Spark, NaN is greater than any
# number. -0.0 is the zero that any zero survives.
_START: Final[dict[str, Any]] = {
    "sum": (lambda kind: kind(-0.0), np.add.at),
    "min": (_greatest, np.fmin.at),
    "max": (_least, np.maximum.at),
}
