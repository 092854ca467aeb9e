"""Ids made by columns are those made one by one, and sort as bytes do."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from hypothesis import example, given
from hypothesis import strategies as st

from riverlock.state.columns.key_columns import id_column, sorted_places
from riverlock.state.keys import key_bytes, with_group

EDGES = [
    sign * (1 << bits) + more
    for bits in (0, 5, 7, 8, 15, 16, 31, 32, 62)
    for sign in (1, -1)
    for more in (-2, -1, 0, 1)
]
LONGS = st.sampled_from([*EDGES, (1 << 63) - 1, -(1 << 63)]) | st.integers(
    -(1 << 63), (1 << 63) - 1
)
TEXTS = st.text(max_size=40) | st.text("ä\0", min_size=120, max_size=130)
KINDS = {
    "long": (LONGS, pa.int64()),
    "short": (st.integers(-(1 << 15), (1 << 15) - 1), pa.int16()),
    "string": (TEXTS, pa.string()),
    "boolean": (st.booleans(), pa.bool_()),
    "null": (st.none() | LONGS, pa.int64()),
}


@st.composite
def key_tables(draw: st.DrawFn) -> tuple[list[int], list[list[Any]], list[pa.Array]]:
    kinds = [
        KINDS[k]
        for k in draw(st.lists(st.sampled_from(list(KINDS)), min_size=1, max_size=3))
    ]
    rows = draw(
        st.lists(
            st.tuples(st.integers(0, 65_534), *(values for values, _ in kinds)),
            min_size=1,
            max_size=30,
        )
    )
    groups, *columns = (list(c) for c in zip(*rows, strict=True))
    arrays = [pa.array(c, t) for c, (_, t) in zip(columns, kinds, strict=True)]
    return groups, columns, arrays


@given(key_tables())
@example(([1] * len(EDGES), [EDGES], [pa.array(EDGES)]))
def test_ids_are_those_of_each_key(
    case: tuple[list[int], list[list[Any]], list[pa.Array]],
) -> None:
    groups, columns, arrays = case

    ids = id_column(pa.array(groups, pa.int32()), arrays, lambda: columns).to_pylist()

    keys = zip(*columns, strict=True)
    assert ids == [
        with_group(g, key_bytes(k)) for g, k in zip(groups, keys, strict=True)
    ]


IDS = st.binary(max_size=40) | st.binary(max_size=7).map(lambda i: i + b"\0")


@given(st.lists(IDS, min_size=1, unique=True))
@example([b"ab\0", b"ab"])
@example([b"\xff" * 8, b"\x7f" * 8, b"\x80" * 8])
def test_ids_sort_as_bytes(ids: list[bytes]) -> None:
    order = sorted_places(pa.array(ids, pa.binary()))

    assert [ids[n] for n in order] == sorted(ids)
