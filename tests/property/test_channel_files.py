"""A task that reads its key groups of a channel gets what an exchange would give it."""

from __future__ import annotations

from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given
from hypothesis import strategies as st

from riverlock.connectors.base.stager import StagePoint
from riverlock.connectors.channel.rows import Shares, file_rows
from riverlock.connectors.channel.stager import ChannelStager
from riverlock.core.hidden_columns import GROUP, ROW, SEQ, TIME
from riverlock.core.types import schema_of
from riverlock.snapshot import channel_files
from riverlock.snapshot.channel_files import channel_file
from riverlock.state.columns.key_hashes import key_groups_of
from riverlock.state.keys import owner_of
from riverlock.storage.memory import MemoryStorage

COLUMNS = schema_of("k string, n long, tags array<string>")
KEYS = (schema_of("k string"), schema_of("k string, n long"), schema_of("n long"))
KEY = st.none() | st.sampled_from(["", "a", "b", "ä", "long " * 20])
ROWS = st.lists(
    st.tuples(KEY, st.none() | st.integers(-3, 3), st.none() | st.just(["x"])),
    max_size=40,
)


def table_of(rows: list[Any]) -> pa.Table:
    """Return rows as a task has them, each with another event time."""
    names, columns = COLUMNS.names, list(zip(*rows, strict=True)) or [(), (), ()]
    arrow = dict(zip(names, columns, strict=True)) | {TIME: range(len(rows))}
    schema = COLUMNS.to_arrow().append(pa.field(TIME, pa.int64()))
    return pa.table({k: list(v) for k, v in arrow.items()}, schema=schema)


@given(
    st.lists(ROWS.filter(bool), max_size=4),
    st.sampled_from(KEYS),
    st.integers(1, 20),
    st.integers(1, 9),
    st.integers(1, 8),
)
def test_shares_are_what_an_exchange_gives(
    sent: list[list[Any]], keys: Any, key_groups: int, tasks: int, part_rows: int
) -> None:
    storage = MemoryStorage()
    stager = ChannelStager(channel="c", keys=keys, key_groups=key_groups)
    tables = [table_of(rows) for rows in sent]
    with (
        mock.patch.object(channel_files, "_ROWS_PER_PART", part_rows),
        mock.patch.object(channel_files, "_FOOTER_ROWS", 0),
    ):
        files = [
            channel_file(token)
            for n, table in enumerate(tables)
            for token in stager.stage(
                table, StagePoint(storage=storage, folder="f", epoch=0, attempt=f"a{n}")
            )
        ]
    schema = table_of([]).schema
    # Whoever reads files whole gets rows as they were sent.
    for file, table in zip(files, tables, strict=True):
        assert file_rows(storage, file, "in", schema).equals(table)
    whole = pa.concat_tables([schema.empty_table(), *tables])
    positions = np.arange(whole.num_rows, dtype=np.int64)
    owners = owner_of(
        key_groups_of(whole, keys, key_groups).astype(np.int64), tasks, key_groups
    )
    shares = Shares(
        storage=storage,
        uid="in",
        columns=schema,
        files=tuple(files),
        tasks=tasks,
        key_groups=key_groups,
    )
    for task in range(tasks):
        found = shares.table(task)
        mine = pa.array(owners == task, pa.bool_())
        assert found[SEQ].to_pylist() == positions[owners == task].tolist()
        assert found.drop_columns([SEQ]).equals(whole.filter(mine))
        assert not {GROUP, ROW} & set(found.column_names)


@given(st.lists(st.integers(1, 10**7), max_size=80), st.integers(1, 3000))
def test_tasks_never_read_much_more_than_all_rows(rows: list[int], tasks: int) -> None:
    if not channel_files.pays_by_group(rows, tasks=tasks, key_groups=32_768):
        return
    assert len(rows) <= 64
    spans = [channel_files._spans(size, 32_768) for size in rows]
    # What a task that begins within a part reads of it is not its own.
    aside = sum(
        size * (tasks - 1) // n
        for size, n in zip(rows, spans, strict=True)
        if n % tasks
    )
    assert aside <= sum(rows) + 16_384 * tasks


def test_a_large_file_has_parts_and_a_small_one_has_none() -> None:
    groups = np.arange(100_000) % 64
    table = pa.table({"n": np.arange(100_000)})
    data, footer = channel_files.encode_rows(table, groups, 64)
    assert footer is not None
    assert pq.read_metadata(pa.BufferReader(data)).num_row_groups == 16
    _, footer = channel_files.encode_rows(table.slice(0, 4_000), groups[:4_000], 64)
    assert footer is None
