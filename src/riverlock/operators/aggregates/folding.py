"""Merges partial aggregates into state column by column, without a loop over keys.

It does for numbers what ``Aggregate`` does record by record. Where NumPy cannot do the
same it declines, and the loop over records does it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pyarrow as pa

from riverlock.operators.aggregates.merging import column_list, numbers, stored_columns
from riverlock.operators.aggregates.partial import results_of
from riverlock.operators.effects import Effects
from riverlock.operators.shipped import MAIN
from riverlock.state.changelog import ChangeLog
from riverlock.state.codec import encode
from riverlock.state.columns.python_rows import emitted_table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from riverlock.operators.aggregates.partial import Merge, PartialAggregate
    from riverlock.operators.base import Work
    from riverlock.operators.task_input import KeyedInput

__all__ = ["Foldable", "fold"]


class Foldable(Protocol):
    """An operator that keeps partial aggregates of each key."""

    aggregates: dict[str, PartialAggregate]

    @property
    def merges(self) -> list[Merge]:
        """How partial columns are merged."""


def fold(work: Work, data: KeyedInput, operator: Foldable) -> Effects | None:
    """Merge the input of a task, if it is of a kind that columns can do."""
    if data.table is None or not data.ids:
        return None
    layout = work.layout
    places = np.repeat(np.arange(len(data.ids)), np.diff(data.bounds))
    old = stored_columns(pa.array(data.payloads, pa.binary()), layout)
    after: dict[str, Sequence[Any]] = {}
    for merge in operator.merges:
        for name, kind in merge.columns.items():
            found = numbers(data.table[name], places, old[name], kind, merge.how)
            if found is None:
                return None
            after[name] = column_list(found)
    rows = list(zip(*(after[n] for n in layout.rows["key"].names), strict=True))
    log = ChangeLog(layout, work.program.uid)
    log.changed_rows(data, rows, list(map(encode, rows)))
    work.on_handled()
    schemas = work.program.outputs
    made = _results(operator.aggregates, after, data) if MAIN in work.outputs else []
    outputs = {name: emitted_table(made, schemas[name]) for name in work.outputs}
    return Effects(changes=log, outputs=outputs)


def _results(
    aggregates: Mapping[str, PartialAggregate],
    columns: Mapping[str, Sequence[Any]],
    data: KeyedInput,
) -> list[tuple[Any, int | None]]:
    """Return the rows of all keys, with their event times."""
    results = results_of(aggregates, columns, len(data.ids))
    rows = [
        key + values
        for key, values in zip(data.keys, zip(*results, strict=True), strict=True)
    ]
    times: list[int | None] = [None] * len(rows)
    if data.times is not None:
        times = [data.times[end - 1] for end in data.bounds[1:]]
    return list(zip(rows, times, strict=True))
