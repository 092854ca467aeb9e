"""Merges partial aggregates into state column by column, without a loop over keys.

What ``Aggregate`` says record by record, for numbers. Where NumPy cannot do the same it
declines, and the loop over records does it.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from riverlock.operators.aggregates.merging import column_list, numbers, stored_columns
from riverlock.operators.built_in import Aggregate, results_of
from riverlock.operators.shipped import MAIN
from riverlock.state.changelog import ChangeLog
from riverlock.state.codec import encode
from riverlock.state.columns.python_rows import emitted_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from riverlock.operators.shipped import OperatorProgram
    from riverlock.operators.task_input import KeyedInput
    from riverlock.state.layout import StateLayout

__all__ = ["Folding", "fold"]


def fold(
    program: OperatorProgram, layout: StateLayout, data: KeyedInput
) -> Folding | None:
    """Merge the input of a task, if it is of a kind that columns can do."""
    process = program.process
    if not isinstance(process, Aggregate) or program.has_dead_letters:
        return None
    if data.table is None or not data.ids:
        return None
    places = np.repeat(np.arange(len(data.ids)), np.diff(data.bounds))
    old = stored_columns(pa.array(data.payloads, pa.binary()), layout)
    after: dict[str, Sequence[Any]] = {}
    for merge in process.merges:
        for name, kind in merge.columns.items():
            found = numbers(data.table[name], places, old[name], kind, merge.how)
            if found is None:
                return None
            after[name] = column_list(found)
    rows = list(zip(*(after[n] for n in layout.rows["key"].names), strict=True))
    return Folding(program, layout, data, rows)


class Folding:
    """What came of it, as ``Execution`` has it."""

    def __init__(
        self,
        program: OperatorProgram,
        layout: StateLayout,
        data: KeyedInput,
        rows: list[tuple[Any, ...]],
    ) -> None:
        """Log the rows that changed."""
        self.uid = program.uid
        self.dead: list[tuple[Any, ...]] = []
        self.log = ChangeLog(layout, program.uid)
        self._process, self._data, self._rows = program.process, data, rows
        self._schemas = program.outputs
        self._names = layout.rows["key"].names
        self.log.changed_rows(data, rows, list(map(encode, rows)))

    @staticmethod
    def timer_head(kind: int) -> None:
        """Aggregates set no timers."""

    def table(self, name: str) -> pa.Table:
        """Return the rows of an output, with their event time."""
        return emitted_table(self.emitted[name], self._schemas[name])

    @cached_property
    def emitted(self) -> dict[str, list[tuple[Any, int | None]]]:
        """The results of all keys; made if somebody reads them."""
        assert isinstance(self._process, Aggregate)
        data = self._data
        columns = dict(zip(self._names, zip(*self._rows, strict=True), strict=True))
        results = results_of(self._process.aggregates, columns, len(self._rows))
        rows = [
            key + values
            for key, values in zip(data.keys, zip(*results, strict=True), strict=True)
        ]
        times: list[int | None] = [None] * len(rows)
        if data.times is not None:
            times = [data.times[end - 1] for end in data.bounds[1:]]
        return {MAIN: list(zip(rows, times, strict=True))}
