"""The whole table of results: mode ``complete`` of aggregates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from riverlock.core.errors import InvalidFlowError
from riverlock.core.types import Schema, Type
from riverlock.operators.base import GONE, UPDATES, bind
from riverlock.operators.keyed.key_by_key import KeyByKey
from riverlock.operators.output_modes import (
    below_queries,
    identity_of,
    on_top,
    takes_back,
    updated_aggregate,
)
from riverlock.program.graph import Keyed, Output
from riverlock.program.unkeyed import ALL_RECORDS
from riverlock.state.spec import Value

if TYPE_CHECKING:
    from collections.abc import Iterator

    from riverlock.connectors.base.sink import Sink
    from riverlock.operators.base import BuiltIn
    from riverlock.operators.keyed.context import OperatorContext
    from riverlock.program.graph import Node
    from riverlock.program.program import Program

__all__ = ["WholeTable", "whole_table"]

# Sinks to which a table can be given again and again: the newest counts.
_SINKS = ("sql", "delta", "memory", "console", "for_each_epoch")
_ONLY_ADD = ("files", "for_each_row", "http", "kafka", "redis")


class WholeTable(KeyByKey):
    """Keeps the newest row of each key, and emits all of them in each epoch."""

    key: Any
    row: Any

    def __init__(self, *, takes_back: bool = False) -> None:
        """Take whether rows say in their last column that they are gone."""
        self._takes_back = takes_back

    def bound(self, keys: Schema, columns: Schema) -> BuiltIn:
        """Declare the row; the key is stored to be visited without records."""
        if self._takes_back:
            columns = Schema(columns.fields[:-1])
        self._keys, self._width = keys.names, len(columns.fields)
        states = {
            "key": Value(Type("struct", fields=(keys.fields or ALL_RECORDS.fields))),
            "row": Value(Type("struct", fields=columns.fields)),
        }
        return bind(self, columns, states)

    def on_event(self, record: Any, ctx: OperatorContext) -> None:
        """Let a row replace the earlier one, or remove it."""
        if self._takes_back and record[GONE]:
            self.row = self.key = None
            return
        self.row = tuple(record)[: self._width]
        # A table of one row has the key of all records, which is null.
        self.key = tuple(record[name] for name in self._keys) or (None,)

    def end_key(self, ctx: OperatorContext) -> Iterator[Any]:
        """Emit the row of the key, if there is one."""
        if self.row is not None:
            yield msgspec.structs.astuple(self.row)


def whole_table(flow: Program, node: Node, sink: Sink, uid: str) -> Node:
    """Return the whole table of an aggregate's results, for a sink.

    Stages of a query behind the aggregate see the whole table each time, so that what
    they leave out of it is left out.

    Args:
        flow: The flow.
        node: The output of the aggregate, or of a query that ends with one.
        sink: Who gets the table.
        uid: Of the sink.

    Raises:
        InvalidFlowError: There is no such table, or the sink cannot replace it.
    """
    stages, below = below_queries(node)
    keyed = updated_aggregate(below, "complete")
    if sink.kind in _ONLY_ADD:
        raise InvalidFlowError(
            f"mode 'complete' of sink {uid!r}",
            expected=f"a sink that replaces its rows: {', '.join(_SINKS)}",
            found=f"{sink.kind!r}, which adds to them",
            hint="replace a table: rl.sinks.sql(..., how='replace'), or give no mode",
        )
    has_windows = keyed.windows is not None
    table = Keyed(
        uid=flow.take_uid(f"{uid}-table", "table", of=uid),
        input=Output(input=keyed, name=UPDATES if has_windows else "main"),
        keys=identity_of(keyed),
        process=WholeTable(takes_back=takes_back(keyed)),
        visits_all=True,
        method="whole table",
    )
    return on_top(stages, flow.add(table))
