"""What a task got for an epoch, grouped by key and put in order.

Arrow batches arrive in any order. Keys are ordered by their entry ids and records of a
key by their position in the input, so that the same input gives the same run.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from riverlock.core.hidden_columns import BRANCH, GROUP, INPUT, SEQ, SIDE, TIME
from riverlock.core.types import Schema, Type
from riverlock.core.values.record import Record
from riverlock.operators.input_sides import SidedRecords
from riverlock.state.codec import codec_of
from riverlock.state.columns.key_columns import id_column, sorted_places
from riverlock.state.columns.python_rows import (
    Records,
    column_values,
    first_places,
    records,
)
from riverlock.state.layout import canonical

if TYPE_CHECKING:
    from riverlock.operators.shipped import OperatorProgram

__all__ = [
    "BROADCASTS",
    "BROADCAST_ROW",
    "EVENTS",
    "INITIALS",
    "INITIAL_ROW",
    "KeyedInput",
    "distinct_codes",
    "in_position",
    "key_values",
    "keyed_input",
]

EVENTS, BROADCASTS, INITIALS = 0, 1, 2
# Rows of the other inputs travel as one struct column each.
BROADCAST_ROW, INITIAL_ROW = "__rl_broadcast", "__rl_initial"
# Key columns whose Arrow values are the Python values.
_PLAIN_KEYS = ("byte", "short", "int", "long", "string")


@dataclass(slots=True)
class KeyedInput:
    """Records by key; ``bounds[i]`` to ``bounds[i + 1]`` are those of key ``i``."""

    ids: list[bytes] = field(default_factory=list)
    keys: list[tuple[Any, ...]] = field(default_factory=list)
    groups: list[int] = field(default_factory=list)
    bounds: list[int] = field(default_factory=lambda: [0])
    records: Records = field(default_factory=partial(Records, tuple, lambda _: Record))
    # The same rows as columns.
    table: pa.Table | None = None
    times: list[int | None] | None = None
    broadcast: list[Record] = field(default_factory=list)
    initial: dict[int, list[Record]] = field(default_factory=dict)
    # Stored rows of values of these keys, filled by the task.
    payloads: list[bytes | None] = field(default_factory=list)


def keyed_input(table: pa.Table, program: OperatorProgram) -> KeyedInput:
    """Group and order the rows of a task."""
    result = KeyedInput()
    initial = None
    if INPUT in table.column_names:
        kinds = table[INPUT]
        others = in_position(table.filter(pc.equal(kinds, BROADCASTS)))
        if others.num_rows and program.broadcast:
            result.broadcast = _unpacked(others, BROADCAST_ROW, program.broadcast)
        table = table.filter(pc.not_equal(kinds, BROADCASTS))
    if table.num_rows == 0:
        return result
    # Positions decide ties; nothing below may depend on the order of arrival.
    in_order = None
    if not {BRANCH, SIDE} & set(table.column_names):
        in_order = _by_first_position(table)
    table = table if in_order is None else in_order
    codes, first = distinct_codes(table, program.keys)
    rank = _keys(table, program, first, result)
    places = rank[codes]
    order = _order(table, places) if in_order is None else _order_within(places)
    table, places = table.take(pa.array(order)), places[order]
    if INPUT in table.column_names:
        is_event = pc.equal(table[INPUT], EVENTS)
        initial = table.filter(pc.invert(is_event))
        mask = is_event.to_numpy()
        _initial(initial, places[~mask], program, result)
        table, places = table.filter(is_event), places[mask]
    counts = np.bincount(places, minlength=len(result.ids))
    result.bounds = [0, *np.cumsum(counts).tolist()]
    is_sided = SIDE in table.column_names
    rows = SidedRecords.of if is_sided else records
    result.records, result.table = rows(table, program.input), table
    if TIME in table.column_names and table[TIME].null_count < table.num_rows:
        result.times = column_values(table[TIME], Type("long"))
    return result


def distinct_codes(table: pa.Table, keys: Schema) -> tuple[np.ndarray, np.ndarray]:
    """Number the distinct keys; return a code per row and a row per code."""
    codes: np.ndarray | None = None
    for f in keys.fields:
        column = table[f.name].combine_chunks()
        if f.type.kind in ("float", "double"):
            # -0.0 and 0.0 are one key, and so are all the NaNs.
            column = pc.if_else(pc.is_nan(column), math.nan, pc.add(column, 0.0))
        encoded = column.dictionary_encode(null_encoding="encode")
        mine = encoded.indices.to_numpy().astype(np.int64)
        if codes is None:
            codes = mine
        else:
            both = pa.array(codes * max(len(encoded.dictionary), 1) + mine)
            codes = both.dictionary_encode().indices.to_numpy().astype(np.int64)
    assert codes is not None
    return codes, first_places(codes)


def _keys(
    table: pa.Table, program: OperatorProgram, first: np.ndarray, into: KeyedInput
) -> np.ndarray:
    """Put the keys in the order of their ids; return the place of each code."""
    distinct = table.select([GROUP, *program.keys.names]).take(pa.array(first))
    groups, *columns = (column.combine_chunks() for column in distinct.columns)
    ids = id_column(groups, columns, partial(key_values, distinct, program.keys))
    order = sorted_places(ids)
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order))
    in_order = pa.array(order)
    distinct = distinct.take(in_order)
    into.ids = ids.take(in_order).to_pylist()
    into.keys = list(zip(*key_values(distinct, program.keys), strict=True))
    into.groups = column_values(distinct[GROUP], Type("int"))
    return rank


def key_values(distinct: pa.Table, keys: Schema) -> list[list[Any]]:
    """Return the key columns as the values that user code sees."""
    columns = []
    for f in keys.fields:
        if f.type.kind in _PLAIN_KEYS:
            column = column_values(distinct[f.name], f.type)
        else:
            column = codec_of(f.type).from_arrow(distinct[f.name].to_pylist())
        if f.type.kind in ("float", "double"):
            column = [None if v is None else canonical(v) for v in column]
        columns.append(column)
    return columns


def in_position(table: pa.Table) -> pa.Table:
    """Return the rows in the order of their positions."""
    if BRANCH not in table.column_names:
        found = _by_first_position(table)
        if found is not None:
            return found
    rows = np.zeros(table.num_rows, dtype=np.int8)
    return table.take(pa.array(_order(table, rows)))


def _by_first_position(table: pa.Table) -> pa.Table | None:
    """Return the table with its batches in the order of their first rows.

    Rows of one source are usually in order then; None if not. Rows with one position
    come from one map task and keep the order in which it made them.
    """
    batches = [b for b in table.to_batches() if b.num_rows]
    if not batches:
        return table
    batches.sort(key=lambda b: b[SEQ][0].as_py())
    sorted_table = pa.Table.from_batches(batches)
    positions = sorted_table[SEQ].to_numpy()
    return sorted_table if np.all(positions[1:] >= positions[:-1]) else None


def _order(table: pa.Table, places: np.ndarray) -> np.ndarray:
    """Return the rows ordered by place of their key, side, then position."""
    positions = [table[SEQ].to_numpy()]
    if BRANCH in table.column_names:
        positions.insert(0, pc.fill_null(table[BRANCH], 0).to_numpy())
    if SIDE in table.column_names:
        positions.append(table[SIDE].to_numpy())
    return np.lexsort([*positions, places])


def _order_within(places: np.ndarray) -> np.ndarray:
    """Return rows that are in order of position, ordered by place of their key.

    NumPy sorts 16 bits at a time, stably, ten times as fast as it compares.
    """
    order = np.argsort(places.astype(np.uint16), kind="stable")
    if places.max(initial=0) >= 1 << 16:
        high = (places >> 16).astype(np.uint16)
        order = order[np.argsort(high[order], kind="stable")]
    return order


def _unpacked(table: pa.Table, column: str, schema: Schema) -> list[Record]:
    flat = pa.Table.from_struct_array(table[column].combine_chunks())
    return list(records(flat, schema))


def _initial(
    table: pa.Table, places: np.ndarray, program: OperatorProgram, into: KeyedInput
) -> None:
    if table.num_rows and program.initial:
        rows = _unpacked(table, INITIAL_ROW, program.initial)
        for place, record in zip(places.tolist(), rows, strict=True):
            into.initial.setdefault(place, []).append(record)
