"""Folds the values that Spark collected, all of a task at once, into what is stored.

This is the one place where records meet the aggregates that Python computes.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from riverlock.core.types import Schema
from riverlock.operators.aggregates.aggregator import AggregatorError
from riverlock.operators.aggregates.merging import state_array
from riverlock.operators.aggregates.partial import (
    PythonAggregate,
    kept_columns,
    merges_of,
)
from riverlock.operators.boundary import aggregator_errors
from riverlock.operators.far_times import refuse_far
from riverlock.state.columns.python_rows import column_values, records

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from riverlock.operators.aggregates.partial import PartialAggregate
    from riverlock.operators.base import Work

__all__ = ["folded", "with_folds"]


def with_folds(work: Work, aggregates: Mapping[str, PartialAggregate]) -> Work:
    """Return work whose rows hold folds in place of the values that Spark collected.

    Raises:
        UserCodeError: A user's aggregator raised.
        TimeRangeError: There is a time that Python cannot name.
    """
    program, info = work.program, work.info
    if not work.table:
        return work
    refuse_far(work.table, program, info)
    with aggregator_errors(program.uid, info.epoch):
        table = folded(work.table, aggregates, program.keys.names, program.uid)
    columns = kept_columns(program.input, aggregates)
    return replace(work, table=table, program=replace(program, input=columns))


def folded(
    table: pa.Table,
    aggregates: Mapping[str, PartialAggregate],
    keys: Sequence[str],
    uid: str,
) -> pa.Table:
    """Return partial rows with folds in place of the values that Spark collected.

    Raises:
        AggregatorError: A user's aggregator raised.
    """
    for merge in merges_of(aggregates):
        if isinstance(merge.how, PythonAggregate):
            ((name, kind),) = merge.columns.items()
            folds = _folds(table, name, merge.how, keys)
            column = state_array(kind, folds, name, uid)
            at = table.column_names.index(name)
            table = table.set_column(at, name, column)
    return table


def _folds(
    table: pa.Table, name: str, aggregate: PythonAggregate, keys: Sequence[str]
) -> list[Any]:
    lists = table[name].combine_chunks()
    values = _values(lists.flatten(), aggregate)
    found = []
    for row, size in enumerate(lists.value_lengths().fill_null(0).to_pylist()):
        try:
            found.append(aggregate.fold(islice(values, size)))
        except AggregatorError as failure:
            key = tuple(table[k][row].as_py() for k in keys)
            failure.key = key[0] if len(key) == 1 else key or None
            raise
    return found


def _values(flat: pa.Array, aggregate: PythonAggregate) -> Iterator[Any]:
    kind = aggregate.collects
    if kind.kind != "struct":
        return iter(column_values(flat, kind))
    columns = Schema(kind.fields)
    table = pa.table(flat.flatten(), names=list(columns.names))
    return iter(records(table, columns))
