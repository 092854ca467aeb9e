"""Ranges are divided among tasks: every row once, with positions in its order."""

from __future__ import annotations

import pickle
from typing import Any

import pyarrow as pa
import pytest

import riverlock as rl
from riverlock.connectors.generator.source_numbers import NumbersReader
from riverlock.connectors.rows.reader import RowsReader
from riverlock.core.errors import InvalidFlowError, SourceError
from riverlock.core.hidden_columns import SEQ
from riverlock.engines.tables.reading import shares
from riverlock.engines.tables.rows import Given
from riverlock.snapshot.format.records import InputRange
from riverlock.testing import ManualClock, rows


def read(reader: Any, parts: list[Any]) -> list[pa.Table]:
    """Return what each task reads; pieces have been pickled."""
    sent = [pickle.loads(pickle.dumps(part)) for part in parts]
    return [Given(reader.schema, None, p.get("in", ())).rows().table for p in sent]


@pytest.mark.parametrize("tasks", [1, 2, 5])
def test_rows_of_all_tasks_are_the_range(tasks: int) -> None:
    reader: Any = RowsReader(rows("n long", [(n,) for n in range(7_000)]))
    span = InputRange(start=10, end=6_990)

    found = read(reader, shares({"in": reader}, {"in": span}, tasks))

    assert len(found) == tasks
    whole = pa.concat_tables(found).sort_by(SEQ)
    assert whole["n"].to_pylist() == list(range(10, 6_990))
    assert len(set(whole[SEQ].to_pylist())) == 6_980
    assert min(len(table) for table in found) > 0


@pytest.mark.parametrize("pace", [1, 7.5, 999_983])
def test_numbers_of_pieces_are_those_of_the_range(pace: float) -> None:
    source = rl.sources.generator(
        {"n": "id", "at": "created"}, rows_per_second=pace, seed=7
    )
    reader: Any = NumbersReader(source, ManualClock())
    start = {"row": 90, "origin_us": 1_767_225_600_123_457}
    span = InputRange(start=start, end={**start, "row": 90_000})

    found = read(reader, shares({"in": reader}, {"in": span}, 3))

    whole = pa.concat_tables(found).sort_by(SEQ).drop_columns([SEQ])
    assert whole.equals(reader.read(span.start, span.end))


def test_an_empty_range_has_the_columns_and_no_pieces() -> None:
    reader: Any = RowsReader(rows("n long", []))

    parts = shares({"in": reader}, {"in": InputRange(start=0, end=0)}, 2)
    (one, _) = read(reader, parts)

    assert not any(part.get("in") for part in parts)
    assert one.column_names == ["n", SEQ]


def test_a_row_that_does_not_fit_is_told_by_the_piece() -> None:
    reader: Any = RowsReader(rows("n long", [(1,), ("x",)]))
    (part,) = shares({"in": reader}, {"in": InputRange(start=0, end=2)}, 1)

    with pytest.raises(SourceError, match="rows 0 to 1"):
        read(reader, [part])


def test_a_source_that_only_spark_reads_is_refused_by_name() -> None:
    nothing: Any = object()
    span = InputRange(start=0, end=1)

    with pytest.raises(InvalidFlowError, match="source 'in'"):
        shares({"in": nothing}, {"in": span}, 1)
