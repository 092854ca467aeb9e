from __future__ import annotations

from typing import Any

import pyarrow as pa
from hypothesis import assume, given
from hypothesis import strategies as st
from tests.property.strategies import KEY_SCHEMAS, TEXT, keys_of

from riverlock.core.types import Field, Schema, Type
from riverlock.state import keys
from riverlock.state.columns.key_hashes import key_groups_of
from riverlock.state.layout import StateLayout


@st.composite
def two_keys(draw: st.DrawFn) -> tuple[Schema, tuple[Any, ...], tuple[Any, ...]]:
    schema = draw(KEY_SCHEMAS)
    layout = StateLayout(schema, {})
    first = layout.key_of(draw(keys_of(schema)))
    return schema, first, layout.key_of(draw(keys_of(schema)))


@given(two_keys())
def test_distinct_keys_have_ids_that_are_no_prefix_of_each_other(
    case: tuple[Schema, tuple[Any, ...], tuple[Any, ...]],
) -> None:
    _, first, second = case
    one, two = keys.key_bytes(first), keys.key_bytes(second)

    if first == second:
        assert one == two
    else:
        assert not one.startswith(two)
        assert not two.startswith(one)


@given(two_keys())
def test_key_is_read_back_from_its_bytes(
    case: tuple[Schema, tuple[Any, ...], tuple[Any, ...]],
) -> None:
    from riverlock.state.codec import encode

    schema, first, _ = case

    assert StateLayout(schema, {}).decode_key(encode(first)) == first


@given(st.data())
def test_groups_of_many_keys_are_those_of_each(data: st.DataObject) -> None:
    schema = data.draw(KEY_SCHEMAS)
    layout = StateLayout(schema, {})
    rows = data.draw(st.lists(keys_of(schema)))
    columns = [
        pa.array([row[i] for row in rows], f.type.to_arrow())
        for i, f in enumerate(schema.fields)
    ]
    table = pa.table(columns, schema=schema.to_arrow())
    # Columns that do not begin where their buffers do.
    cut = data.draw(st.integers(0, len(rows)))
    table = pa.concat_tables([table.slice(cut), table.slice(0, cut)])
    rows = rows[cut:] + rows[:cut]

    found = key_groups_of(table, schema, 32_768)

    wanted = [keys.key_group(layout.key_of(row), schema, 32_768) for row in rows]
    assert found.tolist() == wanted
    part = key_groups_of(table.slice(1), schema, 32_768)
    assert part.tolist() == wanted[1:]


@given(st.lists(st.none() | st.binary(max_size=150), max_size=6))
def test_groups_of_long_texts_are_those_of_each(values: list[bytes | None]) -> None:
    schema = Schema((Field("a", Type("binary")), Field("b", Type("binary"))))
    rows = [(a, b) for a in values for b in values]
    columns = [pa.array([row[i] for row in rows], pa.binary()) for i in range(2)]

    found = key_groups_of(pa.table(columns, names=["a", "b"]), schema, 32_768)

    assert found.tolist() == [keys.key_group(row, schema, 32_768) for row in rows]


@given(st.lists(st.text(max_size=400), min_size=1, max_size=3), TEXT)
def test_ids_of_long_keys_fit_lmdb(parts: list[str], name: str) -> None:
    assume(len(name.encode()) <= 64)
    raw = keys.with_group(65_000, keys.key_bytes(parts))
    longest = raw + keys.map_slot(name) + keys.map_key_bytes("x" * 1000)

    assert len(keys.time_bytes(0) + longest) <= 511
    assert len(raw + keys.list_slot(name) + keys.index_bytes(1)) <= 503


@given(st.integers(-(1 << 62), 1 << 62), st.integers(-(1 << 62), 1 << 62))
def test_times_sort_as_bytes(first: int, second: int) -> None:
    one, two = keys.time_bytes(first), keys.time_bytes(second)

    assert (first < second) == (one < two)
    assert keys.time_of(one) == first


@given(st.integers(0, 1 << 62), st.integers(0, 1 << 62))
def test_indexes_sort_as_bytes(first: int, second: int) -> None:
    one, two = keys.index_bytes(first), keys.index_bytes(second)

    assert (first < second) == (one < two)
    assert keys.index_of(b"prefix" + one) == first


@given(st.integers(1, 500), st.integers(1, 600))
def test_ranges_part_the_groups_among_the_tasks(parallelism: int, groups: int) -> None:
    ranges = [keys.group_range(t, parallelism, groups) for t in range(parallelism)]

    assert [g for first, end in ranges for g in range(first, end)] == list(
        range(groups)
    )
    for task, (first, end) in enumerate(ranges):
        assert all(
            keys.owner_of(g, parallelism, groups) == task for g in range(first, end)
        )
    if parallelism <= groups:
        sizes = [end - first for first, end in ranges]
        assert max(sizes) - min(sizes) <= 1


@given(two_keys(), st.integers(1, 1000))
def test_key_group_is_in_range(
    case: tuple[Schema, tuple[Any, ...], tuple[Any, ...]], groups: int
) -> None:
    schema, first, _ = case

    assert 0 <= keys.key_group(first, schema, groups) < groups


def test_float_keys_that_are_equal_have_one_id() -> None:
    schema = Schema((Field("k", Type("double")),))
    layout = StateLayout(schema, {})

    for one, two in ((0.0, -0.0), (float("nan"), -float("nan"))):
        first, second = layout.key_of((one,)), layout.key_of((two,))
        assert keys.key_bytes(first) == keys.key_bytes(second)
        assert keys.xxhash64(first, schema) == keys.xxhash64(second, schema)


@given(two_keys(), TEXT.map(lambda t: t * 100))
def test_ids_of_many_keys_are_those_of_each(
    case: tuple[Schema, tuple[Any, ...], tuple[Any, ...]], long: str
) -> None:
    _, first, second = case
    for rows in ([first, second], [(long,), ("short",)]):
        ids = keys.key_ids([7, 65_000], list(zip(*rows, strict=True)))

        assert ids == [
            keys.with_group(7, keys.key_bytes(rows[0])),
            keys.with_group(65_000, keys.key_bytes(rows[1])),
        ]
