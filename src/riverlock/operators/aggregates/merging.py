"""Merges columns of partial aggregates into the stored ones.

Numbers are merged by NumPy, which produces the same bits as a loop, because its ``at``
also adds one after the other. Where it could not (a sum that may exceed 64 bits, zeros
of both signs, NaNs of several kinds), and for all other types, there is the loop.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from riverlock.core.errors import StateTypeError
from riverlock.operators.aggregates.partial import PythonAggregate, finisher, merger
from riverlock.state.codec import codec_of, encode
from riverlock.state.columns.packed import PACKED_KINDS, unpacked
from riverlock.state.columns.packed import rows as packed_rows
from riverlock.state.columns.python_rows import column_values

if TYPE_CHECKING:
    from riverlock.core.types import Type
    from riverlock.operators.aggregates.partial import Merge, PartialAggregate
    from riverlock.state.codec import Codec
    from riverlock.state.layout import StateLayout

__all__ = [
    "Column",
    "Columns",
    "column_list",
    "finished",
    "joined_columns",
    "merged",
    "numbers",
    "settled",
    "state_array",
    "state_values",
    "stored_columns",
    "stored_rows",
    "taken",
]

# Values of state: as Arrow has them if their type is plain, or as Python does.
Column: TypeAlias = pa.Array | Sequence[Any]
Columns: TypeAlias = dict[str, Column]

_KINDS: Final = {"int": np.int64, "long": np.int64, "double": np.float64}
# Sums of whole numbers below this, added up as floats, are safe from overflow.
_SAFE: Final = float(1 << 62)


def stored_columns(payloads: pa.BinaryArray, layout: StateLayout) -> dict[str, Column]:
    """Return stored rows column by column; None where there is none."""
    row = layout.rows["key"]
    kinds = [codec.type for codec in row.codecs]
    found = None
    if kinds and isinstance(payloads, pa.Array):  # more than 2 GiB come in chunks
        found = unpacked(payloads, kinds, skip=1, is_row=True)
    if found is not None:
        return dict(zip(row.names, found, strict=True))
    unset = (None,) * len(row.names)
    decode = row.decode
    rows = [decode(p) if p else unset for p in payloads.to_pylist()]
    columns = zip(*rows, strict=True) if rows else [()] * len(row.names)
    return {
        name: state_array(codec.type, column, name, "") if _is_packed(codec) else column
        for name, codec, column in zip(row.names, row.codecs, columns, strict=True)
    }


def stored_rows(columns: Mapping[str, Column], layout: StateLayout) -> pa.BinaryArray:
    """Return columns as rows that a store keeps."""
    found = [columns[name] for name in layout.rows["key"].names]
    if all(isinstance(column, pa.Array) for column in found):
        made = packed_rows(found)
        if made is not None:
            return made
    lists = map(column_list, found)
    return pa.array(list(map(encode, zip(*lists, strict=True))), pa.binary())


def column_list(column: Column) -> Sequence[Any]:
    """Return a column as values of state."""
    if not isinstance(column, pa.Array):
        return column
    if column.null_count == 0 and pa.types.is_primitive(column.type):
        fast: list[Any] = column.to_numpy().tolist()
        return fast
    values: list[Any] = column.to_pylist()
    return values


def taken(column: Column, places: pa.Array) -> Column:
    """Return some values of a column."""
    if isinstance(column, pa.Array):
        return column.take(places)
    return [column[n] for n in places.to_pylist()]


def joined_columns(columns: Sequence[Column]) -> Column:
    """Return columns of one kind concatenated."""
    if all(isinstance(column, pa.Array) for column in columns):
        return pa.concat_arrays(columns)
    return [value for column in columns for value in column_list(column)]


def merged(
    merge: Merge, table: pa.Table, places: np.ndarray, old: Mapping[str, Column]
) -> dict[str, Column]:
    """Return stored values and new rows of the same place as one."""
    if len(merge.columns) == 1:
        ((name, kind),) = merge.columns.items()
        found = numbers(table[name], places, old[name], kind, merge.how)
        if found is not None:
            return {name: found}
    function = merger(merge.how)
    rows = list(zip(*(column_list(old[n]) for n in merge.columns), strict=True))
    fresh = [state_values(table[n], kind) for n, kind in merge.columns.items()]
    for place, new in zip(places.tolist(), zip(*fresh, strict=True), strict=True):
        rows[place] = function(rows[place], new)
    return dict(zip(merge.columns, zip(*rows, strict=True), strict=True))


def state_array(kind: Type, values: Column, name: str, uid: str) -> pa.Array:
    """Return values of state as a column.

    Raises:
        StateTypeError: One does not fit, such as a sum that has become too great.
    """
    if isinstance(values, pa.Array) and values.type == kind.to_arrow():
        return values
    values = column_list(values)
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


def finished(
    aggregates: Mapping[str, PartialAggregate],
    columns: Mapping[str, Column],
    size: int,
) -> list[Column]:
    """Return the results of many keys, one column for each aggregate."""
    found: list[Column] = []
    for each in aggregates.values():
        mine = [columns[name] for name in each.columns] if size else []
        if not size:
            found.append([])
        elif each.result in ("same", "count") and isinstance(mine[0], pa.Array):
            is_count = each.result == "count"
            found.append(pc.fill_null(mine[0], 0) if is_count else mine[0])
        else:
            finish = finisher(each.type, each.result)
            found.append(list(map(finish, *map(column_list, mine))))
    return found


def settled(columns: Mapping[str, Column], layout: StateLayout, uid: str) -> Columns:
    """Return columns as ``stored_columns`` does: those of plain types are Arrow's.

    Raises:
        StateTypeError: A value does not fit.
    """
    row = layout.rows["key"]
    return {
        name: state_array(codec.type, columns[name], name, uid)
        if _is_packed(codec)
        else columns[name]
        for name, codec in zip(row.names, row.codecs, strict=True)
    }


def _is_packed(codec: Codec) -> bool:
    return codec.type.kind in PACKED_KINDS


def state_values(column: pa.ChunkedArray, kind: Type) -> list[Any]:
    """Return a column as state has it."""
    codec = codec_of(kind)
    if codec.plain is not None:
        return column_values(column, kind)
    return codec.from_arrow(column.to_pylist())


def numbers(
    column: pa.ChunkedArray,
    places: np.ndarray,
    old: Column,
    kind: Type,
    how: str | PythonAggregate,
) -> pa.Array | None:
    """Merge numbers; None if NumPy cannot do it as the loop does."""
    if isinstance(how, PythonAggregate):
        return None
    if kind.kind not in _KINDS or how not in _START:
        return None
    if not isinstance(old, pa.Array):
        old = pa.array(old, kind.to_arrow())
    with np.errstate(all="ignore"):  # infinity less infinity is NaN, as in Spark
        return _numbers(column, places, old, _KINDS[kind.kind], how)


def _numbers(
    column: pa.ChunkedArray, places: np.ndarray, old: pa.Array, kind: type, how: str
) -> pa.Array | None:
    known = old.is_valid().to_numpy(zero_copy_only=False).copy()
    start, put = _START[how]
    result: np.ndarray = np.full(len(old), start(kind), dtype=kind)
    result[known] = old.drop_null().to_numpy()
    mine, valid = places, column
    if column.null_count:
        mine, valid = places[column.is_valid().to_numpy()], column.drop_null()
    values = valid.to_numpy().astype(kind, copy=False)
    if how == "sum" and kind is np.int64 and not _are_small(values, result):
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
    return pa.array(result, mask=None if known.all() else ~known).cast(old.type)


def _are_small(values: np.ndarray, result: np.ndarray) -> bool:
    """Whether it is certain that no sum of some values and a result is too great."""
    one, other = (
        max(float(each.max(initial=0)), -float(each.min(initial=0)))
        for each in (values, result)
    )
    return one * len(values) + other < _SAFE


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
