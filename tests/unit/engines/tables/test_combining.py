"""Partial rows that are combined say what they said one by one."""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from riverlock.core.hidden_columns import MARK, ROWS, SEQ, TIME, WINDOW
from riverlock.core.types import schema_of
from riverlock.engines.tables.combining import combined, ways_to_combine
from riverlock.engines.tables.rows import ArrowRows

COLUMNS = schema_of("k string, n bigint, low double, high timestamp")
MERGES = {"n": "sum", "low": "min", "high": "max"}
SMALL = st.one_of(st.none(), st.integers(-(2**40), 2**40))
PARTS = st.lists(
    st.tuples(
        st.sampled_from(["a", "b", "", None]),
        SMALL,
        st.one_of(st.none(), st.floats(-9, 9)),
        SMALL,
        st.one_of(st.none(), st.sampled_from([10, 20])),
        SMALL,
    ),
    max_size=30,
)


def table_of(parts: list[Any]) -> pa.Table:
    columns = list(zip(*parts, strict=True)) if parts else [()] * 6
    kinds = [*(f.type for f in COLUMNS.to_arrow()), pa.int64(), pa.int64()]
    names = [*COLUMNS.names, WINDOW, TIME]
    table = pa.table(
        [pa.array(c, k) for c, k in zip(columns, kinds, strict=True)], names=names
    )
    table = table.append_column(MARK, table[TIME])
    table = table.append_column(ROWS, pa.array([1] * len(parts), pa.int64()))
    return table.append_column(SEQ, pa.array(range(len(parts)), pa.int64()))


def oracle(parts: list[Any]) -> dict[Any, tuple[Any, ...]]:
    def kept(how: Any, values: Any) -> Any:
        there = [v for v in values if v is not None]
        return how(there) if there else None

    groups: dict[Any, list[Any]] = {}
    for number, part in enumerate(parts):
        groups.setdefault((part[0], part[4]), []).append((*part, number))
    return {
        key: (
            kept(sum, (p[1] for p in group)),
            kept(min, (p[2] for p in group)),
            kept(max, (p[3] for p in group)),
            kept(max, (p[5] for p in group)),
            len(group),
            group[0][6],
        )
        for key, group in groups.items()
    }


@given(parts=PARTS)
def test_rows_of_a_key_and_pane_become_one(parts: list[Any]) -> None:
    ways = ways_to_combine(COLUMNS, ["k"], MERGES)
    assert ways is not None

    made = combined(ArrowRows(COLUMNS, table_of(parts)), ["k"], ways).table

    numbers = made.set_column(3, "high", made["high"].cast(pa.int64()))
    names = ("n", "low", "high", TIME, ROWS, SEQ)
    found = {
        (r["k"], r[WINDOW]): tuple(r[n] for n in names) for r in numbers.to_pylist()
    }
    if any(p[2] == 0 for p in parts):
        # Which zero is taken Spark decides by the order.
        assert made.num_rows == len(parts)
    else:
        assert found == oracle(parts)
        assert made[SEQ].to_pylist() == sorted(made[SEQ].to_pylist())


@pytest.mark.parametrize(
    ("n", "low"), [([2**62, 2**62], [1.0, 2.0]), ([1, 2], [1.0, math.nan])]
)
def test_rows_stay_as_they_are_where_the_result_might_differ(
    n: list[int], low: list[float]
) -> None:
    parts = [("a", a, b, None, 10, None) for a, b in zip(n, low, strict=True)]
    given_rows = ArrowRows(COLUMNS, table_of(parts))

    assert combined(given_rows, ["k"], MERGES) is given_rows


def test_without_keys_all_rows_become_one() -> None:
    columns = schema_of("n bigint")
    table = pa.table({"n": [1, 2, None], SEQ: [5, 6, 7]})

    made = combined(ArrowRows(columns, table), [], {"n": "sum"}).table

    assert made.to_pylist() == [{"n": 3, SEQ: 5}]


@pytest.mark.parametrize("how", ["moments", "concat", "distinct", "latest"])
def test_other_aggregates_are_merged_by_tasks(how: str) -> None:
    assert ways_to_combine(COLUMNS, ["k"], {"n": how}) is None
