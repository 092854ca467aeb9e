"""What a test sends to an operator, as the table that a task gets from Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from riverlock.core.errors import InvalidConfigError
from riverlock.core.hidden_columns import ALL, GROUP, INPUT, SEQ
from riverlock.operators.task_input import (
    BROADCAST_ROW,
    BROADCASTS,
    EVENTS,
    INITIAL_ROW,
    INITIALS,
)
from riverlock.program.unkeyed import ALL_RECORDS
from riverlock.state.columns.python_rows import RowError, rows_table
from riverlock.state.keys import key_group

if TYPE_CHECKING:
    from riverlock.core.types import Schema
    from riverlock.operators.shipped import OperatorProgram
    from riverlock.state.layout import StateLayout
    from riverlock.testing.inputs import Input

__all__ = ["Sent", "sent_table"]


class Sent(NamedTuple):
    """A record on its way into an epoch."""

    kind: int  # EVENTS, BROADCASTS or INITIALS
    record: Any
    time_us: int | None = None


def sent_table(
    records: list[Sent],
    program: OperatorProgram,
    layout: StateLayout,
    into: Input,
    key_groups: int,
) -> pa.Table:
    """Return records as a task gets them from Spark.

    Args:
        records: What was sent, in order.
        program: The operator that gets them.
        layout: How its state is stored.
        into: The stream or streams that it reads.
        key_groups: As of the flow.
    """
    events = program.input
    kinds = [sent.kind for sent in records]
    parts = {
        kind: _padded(records, kind, schema)
        for kind, schema in (
            (EVENTS, events),
            (BROADCASTS, program.broadcast),
            (INITIALS, program.initial),
        )
    }
    table = parts[EVENTS]
    assert table is not None
    times = pa.array([sent.time_us for sent in records], pa.int64())
    table = into.with_hidden(table, times)
    table, keys = _with_keys(table, parts[INITIALS], kinds, program.keys)
    groups = [key_group(layout.key_of(k), program.keys, key_groups) for k in keys]
    table = table.append_column(GROUP, pa.array(groups, pa.int32()))
    for kind, name in ((BROADCASTS, BROADCAST_ROW), (INITIALS, INITIAL_ROW)):
        part = parts[kind]
        if part is not None:
            table = table.append_column(name, part.to_struct_array())
    table = table.append_column(INPUT, pa.array(kinds, pa.int32()))
    seq = pa.array(range(len(records)), pa.int64())
    return table.append_column(SEQ, seq)


def _with_keys(
    table: pa.Table, initial: pa.Table | None, kinds: list[int], keys: Schema
) -> tuple[pa.Table, list[tuple[Any, ...]]]:
    """Return rows that have their keys, whichever input they are of, and these."""
    columns = []
    if keys == ALL_RECORDS:
        table = table.append_column(ALL, pa.nulls(len(table), pa.bool_()))
    for f in keys.fields:
        values = table[f.name].to_pylist()
        if initial is not None:
            others = initial[f.name].to_pylist()
            values = [
                o if k == INITIALS else v
                for k, v, o in zip(kinds, values, others, strict=True)
            ]
        columns.append(values)
        at = table.column_names.index(f.name)
        table = table.set_column(at, f.name, pa.array(values, f.type.to_arrow()))
    return table, list(zip(*columns, strict=True))


def _padded(records: list[Sent], kind: int, schema: Schema | None) -> pa.Table | None:
    """Return the rows of one input; rows of the others are null."""
    mine = [sent.record if sent.kind == kind else None for sent in records]
    if schema is None:
        if any(r is not None for r in mine):
            name = {BROADCASTS: "broadcast", INITIALS: "initial"}[kind]
            raise InvalidConfigError(
                f"{name}()", expected=f"harness(..., {name}=columns)", found="none"
            )
        return None
    blank = (None,) * len(schema.names)
    try:
        return rows_table([blank if r is None else r for r in mine], schema)
    except RowError as error:
        raise InvalidConfigError(
            "send()",
            expected=f"records of {schema.ddl}",
            found=f"one that does not fit: {error}",
        ) from error
