"""Aggregates by the column are those of the loop over records, bit for bit."""

from __future__ import annotations

import math
import struct
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from riverlock.core.errors import StateTypeError
from riverlock.core.hidden_columns import GROUP, SEQ, TIME
from riverlock.core.types import Field, Schema, Type, schema_of
from riverlock.operators.aggregates.aggregate import Aggregate
from riverlock.operators.aggregates.partial import Merge, PartialAggregate
from riverlock.operators.base import Work
from riverlock.operators.effects import Effects
from riverlock.operators.keyed.execution import Execution
from riverlock.operators.shipped import MAIN, EpochInfo, OperatorProgram
from riverlock.operators.task_input import KeyedInput, keyed_input
from riverlock.state.copy.memory import MemoryStore
from riverlock.state.layout import StateLayout
from riverlock.state.spec import specs_of
from riverlock.state.store import StateReader, Version

LONG, DOUBLE, INT = Type("long"), Type("double"), Type("int")
PARTS = {
    "n": (LONG, "sum"),
    "total": (DOUBLE, "sum"),
    "total_n": (LONG, "sum"),
    "small": (DOUBLE, "min"),
    "large": (DOUBLE, "max"),
    "low": (INT, "min"),
    "high": (LONG, "max"),
}
AGGREGATES = {
    "n": ("count", ["n"]),
    "average": ("avg", ["total", "total_n"]),
    **{name: ("same", [name]) for name in list(PARTS)[3:]},
}
KEYS = schema_of("k long")
COLUMNS = Schema((*KEYS.fields, *(Field(n, t) for n, (t, _) in PARTS.items())))
LONGS = st.integers(-(1 << 40), 1 << 40)
VALUES = {
    "n": LONGS,
    "total": st.floats(),
    "small": st.floats() | st.sampled_from([0.0, -0.0]),
    "large": st.floats() | st.sampled_from([0.0, 1.0]),
    "low": st.integers(-(1 << 31), (1 << 31) - 1),
    "high": LONGS,
}
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "k": st.integers(0, 5),
            TIME: st.none() | st.integers(0, 9),
            **{n: st.none() | v for n, v in VALUES.items()},
        }
    ),
    min_size=1,
    max_size=12,
)


def program() -> OperatorProgram:
    aggregates = {
        name: PartialAggregate(
            type=PARTS[columns[0]][0],
            merges=tuple(
                Merge(columns={c: PARTS[c][0]}, how=PARTS[c][1]) for c in columns
            ),
            result=result,
        )
        for name, (result, columns) in AGGREGATES.items()
    }
    process = Aggregate(aggregates).bound(KEYS, COLUMNS)
    return OperatorProgram(
        uid="agg",
        process=process,
        keys=KEYS,
        input=COLUMNS,
        outputs={MAIN: schema_of(process.output)},
    )


def input_of(rows: list[dict[str, Any]], made: OperatorProgram) -> KeyedInput:
    # Spark counts what it sums up.
    rows = [{**r, "total_n": 0 if r["total"] is None else 2} for r in rows]
    table = pa.Table.from_pylist(
        rows, COLUMNS.to_arrow().append(pa.field(TIME, "int64"))
    )
    table = table.append_column(SEQ, pa.array(range(len(rows)), "int64"))
    groups = pa.array([r["k"] % 4 for r in rows], "int32")
    return keyed_input(table.append_column(GROUP, groups), made)


def bits(value: Any) -> Any:
    """Return a value so that NaN equals NaN and zeros differ."""
    if isinstance(value, float):
        return "nan" if value != value else struct.pack(">d", value)
    return tuple(map(bits, value)) if isinstance(value, tuple) else value


def work_of(made: OperatorProgram, reader: StateReader, number: int) -> Work:
    return Work(
        program=made,
        layout=made.layout(),
        reader=reader,
        info=EpochInfo(epoch=number, now_us=0, seed=0),
        table=None,
        wanted=made.outputs,
    )


def at_once(work: Work, data: KeyedInput) -> Effects | None:
    process = work.program.process
    assert isinstance(process, Aggregate)
    return process.at_once(work, data)


def rows_of(effects: Effects) -> Any:
    """Return all rows with their times."""
    columns = effects.outputs[MAIN].to_pydict().values()
    return tuple(zip(*columns, strict=True))


_NOTHING = {"k": 0, TIME: None, **dict.fromkeys(VALUES)}


@given(st.lists(ROWS, min_size=1, max_size=4))
@example([[_NOTHING] * 3 + [_NOTHING | {"small": math.copysign(math.nan, -1)}]])
def test_fold_is_the_loop(epochs: list[list[dict[str, Any]]]) -> None:
    made = program()
    layout = StateLayout(KEYS, specs_of(type(made.process)))
    store = MemoryStore()
    for number, rows in enumerate(epochs):
        data = input_of(rows, made)
        with store.read() as reader:
            data.payloads = reader.get_many(data.ids)
            work = work_of(made, reader, number)
            loop = Execution(work).run(data)
            folded = at_once(work, data)
        if folded is None:
            seen = [r for epoch in epochs[: number + 1] for r in epoch]
            kept = [r[n] for r in seen for n in ("small", "large")]
            assert any(bits(v) in (bits(-0.0), "nan") for v in kept)
            folded = loop

        assert bits(rows_of(folded)) == bits(rows_of(loop))
        assert folded.changes.table().num_rows == loop.changes.table().num_rows
        assert folded.changes.entries() == loop.changes.entries()
        assert folded.changes.added == loop.changes.added
        version = Version(number, "t", layout.digest)
        store.apply(loop.changes.redo().changes(), version)


def test_a_sum_that_leaves_64_bits_is_not_folded_and_told() -> None:
    made = program()
    empty = dict.fromkeys(PARTS)
    rows = [{"k": 1, TIME: None, **empty, "n": (1 << 62) + 5}] * 2
    data = input_of(rows, made)
    with MemoryStore().read() as reader:
        data.payloads = reader.get_many(data.ids)
        work = work_of(made, reader, 0)

        assert at_once(work, data) is None
        with pytest.raises(StateTypeError):
            Execution(work).run(data)
