"""The rows of a keyed stage, each with the task that owns its key."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from riverlock.core.hidden_columns import ALL, BRANCH, GROUP, INPUT, SEQ
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
    from riverlock.engines.tables.nodes import Tables
    from riverlock.engines.tables.rows import ArrowRows
    from riverlock.program.graph import Keyed
    from riverlock.stages.compiled import KeyedStage

__all__ = ["KeyedInput", "exchanged", "owned"]


@dataclass(frozen=True, kw_only=True)
class KeyedInput:
    """How rows become those that the tasks of a keyed stage are given.

    Attributes:
        node: The operator; only what its rows come from is looked at.
        combine: What is done with them before they are exchanged, if anything.
        is_of_all: Whether all rows have one key.
        has_kinds: Whether rows say that they are events, and not broadcast or initial.
        key_groups: Of the flow.
    """

    node: Keyed
    combine: Any
    is_of_all: bool
    has_kinds: bool
    key_groups: int

    @classmethod
    def of(cls, stage: KeyedStage, key_groups: int) -> KeyedInput:
        """Return those of a stage."""
        program = stage.program
        return cls(
            node=stage.node,
            combine=stage.combine,
            is_of_all=program.keys == ALL_RECORDS,
            has_kinds=program.broadcast is not None or program.initial is not None,
            key_groups=key_groups,
        )

    def events(self, tables: Tables) -> pa.Table | None:
        """Return the rows with their key groups, combined; None: there are none."""
        rows = tables.gapped(self.node)
        if not len(rows):
            return None
        if self.combine is not None:
            rows = self.combine.apply(rows, tables.now_us)
        table = rows.table
        if self.is_of_all:
            table = table.append_column(ALL, pa.nulls(table.num_rows, pa.bool_()))
            columns = ALL_RECORDS
        else:
            columns = rows.columns.select(self.node.keys)
        table = self._with_group(table, columns)
        return (
            table.append_column(INPUT, _same(EVENTS, table))
            if self.has_kinds
            else table
        )

    def broadcast(self, tables: Tables) -> pa.Table | None:
        """Return the rows that go to every task; None: there are none."""
        if self.node.broadcast is None:
            return None
        rows = tables.rows(self.node.broadcast)
        table = rows.table
        packed: dict[str, Any] = {BROADCAST_ROW: rows.structs}
        packed |= {c: table[c] for c in (SEQ, BRANCH) if c in table.column_names}
        packed[INPUT] = _same(BROADCASTS, table)
        return pa.table(packed) if table.num_rows else None

    def initial(self, rows: ArrowRows) -> pa.Table | None:
        """Return rows of initial state with their key groups; None: there are none."""
        keys = self.node.keys
        packed: dict[str, Any] = {key: rows.table[key] for key in keys}
        packed[INITIAL_ROW] = rows.structs
        packed[SEQ] = pa.array(np.arange(len(rows), dtype=np.int64))
        packed[INPUT] = _same(INITIALS, rows.table)
        table = self._with_group(pa.table(packed), rows.columns.select(keys))
        return table if table.num_rows else None

    def _with_group(self, table: pa.Table, keys: Schema) -> pa.Table:
        """Add the key group of each row, as Spark computes it."""
        if not keys.fields:
            return table.append_column(GROUP, _same(0, table))
        groups = key_groups_of(table, keys, self.key_groups)
        return table.append_column(GROUP, pa.array(groups))


def exchanged(
    given: KeyedInput, tables: Tables, tasks: int, initial: ArrowRows | None = None
) -> dict[int, pa.Table]:
    """Return rows of a stage by the task that owns their keys.

    A task that is not named gets none of these rows. As on Spark, all tables have all
    columns that rows of this epoch have here, whatever rows they have.

    Args:
        given: The stage.
        tables: The tables of the epoch, or of a task's share of it.
        tasks: How many the stage has.
        initial: Initial state that the operator has yet to take.
    """
    events = given.events(tables)
    first = None if initial is None else given.initial(initial)
    everywhere = given.broadcast(tables)
    placed = [table for table in (events, first) if table is not None]
    others = [] if everywhere is None else [everywhere]
    empty = [table.schema.empty_table() for table in (*placed, *others)]
    found: dict[int, list[pa.Table]] = {p: list(others) for p in range(tasks)}
    for table in placed:
        for part, rows in _parts(table, tasks, given.key_groups):
            found[part].append(rows)
    return {
        part: pa.concat_tables([*empty, *mine], promote_options="default")
        for part, mine in found.items()
        if mine
    }


def owned(given: KeyedInput, tables: Mapping[int, Tables]) -> dict[int, pa.Table]:
    """Return rows of a stage where each task has read those of its own keys.

    Args:
        given: The stage.
        tables: What each task has read.
    """
    found = {part: given.events(mine) for part, mine in tables.items()}
    return {part: table for part, table in found.items() if table is not None}


def _parts(table: pa.Table, tasks: int, groups: int) -> list[tuple[int, pa.Table]]:
    """Return the rows of each task, in their order."""
    if tasks == 1:
        return [(0, table)]
    owners = owner_of(table[GROUP].to_numpy().astype(np.int64), tasks, groups)
    order = np.argsort(owners, kind="stable")
    parts, firsts = np.unique(owners[order], return_index=True)
    sorted_rows = table.take(pa.array(order))
    ends = [*firsts[1:].tolist(), len(order)]
    return [
        (part, sorted_rows.slice(first, end - first))
        for part, first, end in zip(parts.tolist(), firsts.tolist(), ends, strict=True)
    ]


def _same(number: int, table: pa.Table) -> pa.Array:
    return pa.repeat(pa.scalar(number, pa.int32()), table.num_rows)
