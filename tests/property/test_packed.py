"""Rows that are packed by the column have the bytes of rows packed one by one."""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa
from hypothesis import example, given
from hypothesis import strategies as st

from riverlock.core.types import Schema, schema_of
from riverlock.operators.aggregates.merging import (
    column_list,
    stored_columns,
    stored_rows,
)
from riverlock.state.codec import encode
from riverlock.state.columns.packed import unpacked
from riverlock.state.layout import StateLayout
from riverlock.state.spec import Value

EDGES = [
    sign * (1 << bits) + more
    for bits in (0, 5, 7, 8, 15, 16, 31, 32, 62)
    for sign in (1, -1)
    for more in (-2, -1, 0, 1)
]
LONGS = st.sampled_from([*EDGES, (1 << 63) - 1, -(1 << 63)])
TEXTS = st.text(max_size=3) | st.sampled_from(["x" * n for n in (31, 32, 255, 256)])
KINDS: dict[str, st.SearchStrategy[Any]] = {
    "long": LONGS,
    "int": st.integers(-(1 << 31), (1 << 31) - 1),
    "double": st.floats(width=64),
    "string": TEXTS,
    "binary": st.binary(max_size=3) | st.sampled_from([b"y" * 70_000]),
    # State has these as Python does, which takes the loop.
    "boolean": st.booleans(),
    "array<string>": st.lists(TEXTS, max_size=2),
}


@st.composite
def state_rows(draw: st.DrawFn) -> tuple[list[str], list[tuple[Any, ...] | None]]:
    kinds = draw(st.lists(st.sampled_from(list(KINDS)), min_size=1, max_size=4))
    row = st.tuples(*(st.none() | KINDS[k] for k in kinds))
    return kinds, draw(st.lists(st.none() | row, max_size=12))


def layout_of(kinds: list[str]) -> StateLayout:
    return StateLayout(
        Schema(schema_of("k string").fields),
        {f"v{n}": _named(f"v{n}", kind) for n, kind in enumerate(kinds)},
    )


def _named(name: str, kind: str) -> Value:
    value = Value(kind)
    value.__set_name__(object, name)
    return value


def comparable(rows: Any) -> Any:
    """Return rows in which all that is not a number is equal."""
    return [
        tuple("nan" if isinstance(v, float) and math.isnan(v) else v for v in row)
        for row in rows
    ]


@given(state_rows())
@example((["long"], [(n,) for n in EDGES]))
@example((["long", "binary"], [(1, None), None]))
def test_rows_come_back_from_the_bytes_of_the_loop(
    case: tuple[list[str], list[tuple[Any, ...] | None]],
) -> None:
    kinds, rows = case
    layout = layout_of(kinds)
    one_by_one = [None if row is None else encode(row) for row in rows]

    columns = stored_columns(pa.array(one_by_one, pa.binary()), layout)

    lists = [column_list(columns[name]) for name in layout.rows["key"].names]
    unset = (None,) * len(kinds)
    whole = [unset if row is None else row for row in rows]
    assert comparable(zip(*lists, strict=True)) == comparable(whole)
    if rows:
        assert stored_rows(columns, layout).to_pylist() == [encode(r) for r in whole]


def test_bytes_of_another_layout_are_left_to_the_loop() -> None:
    two = schema_of("a bigint, b bigint")
    kinds = [f.type for f in two.fields]
    for raw in (encode((1,)), encode((1, 2, 3)), encode((1, "x")), encode((1.0, 2))):
        column = pa.array([raw], pa.binary())
        assert unpacked(column, kinds, skip=1, is_row=True) is None
