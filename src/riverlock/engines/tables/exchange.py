"""The rows of a keyed stage, each with the task that owns its key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from riverlock.core.hidden_columns import ALL, BRANCH, GROUP, INPUT, SEQ
from riverlock.engines.tables.initial_state import initial_rows
from riverlock.operators.task_input import (
    BROADCAST_ROW,
    BROADCASTS,
    EVENTS,
    INITIAL_ROW,
    INITIALS,
)
from riverlock.program.unkeyed import ALL_RECORDS
from riverlock.state.columns.key_hashes import key_groups_of
from riverlock.state.keys import owner_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from riverlock.core.types import Schema
    from riverlock.engines.tables.nodes import ArrowRows, Tables
    from riverlock.stages.compiled import KeyedStage
    from riverlock.stages.stage_tasks import StageTasks

__all__ = ["exchanged", "owned"]


def exchanged(
    stage: KeyedStage, tables: Tables, tasks: StageTasks, *, takes_initial: bool
) -> dict[int, pa.Table]:
    """Return the rows of the stage by the task that owns their keys."""
    placed = []
    events = tables.rows(stage.node.input)
    if len(events):
        placed.append(_events(stage, events, tasks))
    if takes_initial:
        initial = _initial(stage, tasks)
        if initial.num_rows:
            placed.append(initial)
    everywhere = []
    if stage.node.broadcast is not None:
        others = tables.rows(stage.node.broadcast)
        if len(others):
            everywhere.append(_broadcast(others))
    # As on Spark, every task gets all columns, whatever rows it gets.
    empty = [table.schema.empty_table() for table in (*placed, *everywhere)]
    groups, number = tasks.compiled.flow.key_groups, tasks.parallelism
    found: dict[int, list[pa.Table]] = {p: list(everywhere) for p in range(number)}
    for table in placed:
        owners = owner_of(table[GROUP].to_numpy().astype(np.int64), number, groups)
        for part in np.unique(owners).tolist():
            found[part].append(table.filter(pa.array(owners == part)))
    return {
        part: pa.concat_tables([*empty, *mine], promote_options="default")
        for part, mine in found.items()
        if mine
    }


def owned(
    stage: KeyedStage, tables: Mapping[int, Tables], tasks: StageTasks
) -> dict[int, pa.Table]:
    """Return the rows of the stage where each task has read those of its own keys.

    Args:
        stage: The stage.
        tables: What each task has read.
        tasks: The tasks.
    """
    found = {
        part: _events(stage, mine.rows(stage.node.input), tasks)
        for part, mine in tables.items()
    }
    return {part: table for part, table in found.items() if table.num_rows}


def _events(stage: KeyedStage, rows: ArrowRows, tasks: StageTasks) -> pa.Table:
    if stage.combine is not None:
        rows = stage.combine.apply(rows)
    program, keys = stage.program, stage.node.keys
    table = rows.table
    if program.keys == ALL_RECORDS:
        table = table.append_column(ALL, pa.nulls(table.num_rows, pa.bool_()))
        columns = ALL_RECORDS
    else:
        columns = rows.columns.select(keys)
    table = _with_group(table, columns, tasks)
    if program.broadcast is not None or program.initial is not None:
        table = table.append_column(INPUT, _same(EVENTS, table))
    return table


def _with_group(table: pa.Table, keys: Schema, tasks: StageTasks) -> pa.Table:
    """Add the key group of each row, as Spark computes it."""
    groups = tasks.compiled.flow.key_groups
    if not keys.fields:
        return table.append_column(GROUP, _same(0, table))
    return table.append_column(GROUP, pa.array(key_groups_of(table, keys, groups)))


def _same(number: int, table: pa.Table) -> pa.Array:
    return pa.repeat(pa.scalar(number, pa.int32()), table.num_rows)


def _broadcast(rows: ArrowRows) -> pa.Table:
    table = rows.table
    packed: dict[str, Any] = {BROADCAST_ROW: _structs(rows)}
    packed |= {c: table[c] for c in (SEQ, BRANCH) if c in table.column_names}
    packed[INPUT] = _same(BROADCASTS, table)
    return pa.table(packed)


def _initial(stage: KeyedStage, tasks: StageTasks) -> pa.Table:
    rows, keys = initial_rows(stage.node), stage.node.keys
    packed: dict[str, Any] = {key: rows.table[key] for key in keys}
    packed[INITIAL_ROW] = _structs(rows)
    packed[SEQ] = pa.array(np.arange(len(rows), dtype=np.int64))
    packed[INPUT] = _same(INITIALS, rows.table)
    return _with_group(pa.table(packed), rows.columns.select(keys), tasks)


def _structs(rows: ArrowRows) -> pa.ChunkedArray:
    return rows.visible.to_struct_array()
