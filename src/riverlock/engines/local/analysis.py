"""What is known of the rows of a flow without Spark: the declared columns."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

from riverlock.core.errors import InvalidFlowError
from riverlock.engines.tables.aggregates import plan_aggregates
from riverlock.engines.tables.initial_state import initial_rows
from riverlock.engines.tables.nodes import Tables
from riverlock.engines.tables.reading import ranges_of
from riverlock.engines.tables.refusals import needs_spark
from riverlock.engines.tables.rows import Stored
from riverlock.program.graph import (
    EventTime,
    Relational,
    RowWise,
    declared_behind_keyed,
    upstream,
)
from riverlock.program.windows import SessionWindows
from riverlock.snapshot.format.records import InputRange
from riverlock.stages.analysis import KeyedRows
from riverlock.stages.stage_tasks import LateRows
from riverlock.worker.task import LocalProgram

if TYPE_CHECKING:
    from collections.abc import Mapping

    from riverlock.connectors.base.source_reader import Reader
    from riverlock.core.types import Schema
    from riverlock.operators.shipped import OperatorProgram
    from riverlock.program.graph import Keyed, Node
    from riverlock.program.program import Program
    from riverlock.stages.compiled import CompiledFlow

__all__ = ["LocalAnalysis"]


class LocalAnalysis:
    """Tables over empty ranges; see ``stages.analysis``."""

    evaluates_once = False

    def __init__(self, flow: Program, readers: Mapping[str, Reader]) -> None:
        """Ask every source for its beginning."""
        nothing = {u: r.initial() for u, r in readers.items()}
        ranges = {u: InputRange(start=o, end=o) for u, o in nothing.items()}
        late = {k.uid: LateRows(0, None) for k in flow.keyed}
        self._tables = Tables(
            {n.uid: n for n in flow.find(EventTime)},
            ranges_of(flow, readers, ranges),
            {},
            late,
            says_source=any(map(declared_behind_keyed, flow.keyed)),
        )

    def columns(self, node: Node) -> Schema:
        """Return the columns that users see."""
        return self._tables.rows(node).columns

    def known_columns(self, node: Node) -> Schema:
        """Return the same: all types are known."""
        return self.columns(node)

    def hidden(self, node: Node) -> tuple[str, ...]:
        """Return the names of the hidden columns."""
        return self._tables.rows(node).hidden

    def has_clock(self, node: Node) -> bool:
        """Tell whether making its rows asks for the time of day: functions may not."""
        return False

    def is_repeatable(self, node: Node) -> bool:
        """Tell whether its rows are surely the same again: functions tell nothing."""
        return not any(isinstance(n, RowWise | Relational) for n in upstream(node))

    def has_repeatable_gaps(self, node: Keyed) -> bool:
        """Tell whether gaps of sessions are the same again: there is only one gap."""
        return True

    def keyed(self, node: Keyed) -> KeyedRows:
        """Return the rows that an operator is given."""
        window = None if node.windows is None else node.windows.window
        if isinstance(window, SessionWindows) and window.gap_expr is not None:
            raise needs_spark(
                f"gap_expr of operator {node.uid!r}", "a Spark expression"
            )
        rows = self._tables.rows(node.input)
        if node.process is not None:
            return KeyedRows(columns=rows.columns)
        combine, aggregates = plan_aggregates(rows, node)
        return KeyedRows(
            columns=combine.columns, combine=combine, aggregates=aggregates
        )

    def initial(self, node: Keyed) -> Schema:
        """Return the columns of an operator's initial state."""
        return initial_rows(node).columns

    def add_output(self, uid: str, name: str, schema: Schema) -> None:
        """Take the columns of an operator's output."""
        self._tables.take_output(uid, name, Stored.output(schema))

    def share(self, node: Node) -> Stored:
        """Take rows of a node as stored from now on; return their columns."""
        rows = self._tables.rows(node)
        stored = Stored(rows.columns, rows.table.schema)
        self._tables.share(node, stored)
        return stored

    def planned(self, compiled: CompiledFlow) -> None:
        """Nothing is left to look at."""

    def shipped(self, program: OperatorProgram) -> LocalProgram:
        """Return a copy: as on Spark, tasks do not share objects with the caller.

        Raises:
            InvalidFlowError: It cannot be copied.
        """
        try:
            return LocalProgram(copy.deepcopy(program))
        except Exception as error:
            raise InvalidFlowError(
                f"process of operator {program.uid!r}",
                expected="a process that can be sent to workers (copied, pickled)",
                found=f"{type(error).__name__}: {error}",
                hint="make connections and locks in open(), not in __init__",
            ) from error
