"""What Spark knows about a flow whose tasks work without it.

Types, columns and stages are those of the jobs engine. What differs is what tasks are
given: not frames, but expressions that are compiled (``riverlock.spark.columnar``) from
what lies between two frames.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from riverlock.core.hidden_columns import GAP
from riverlock.core.types import Schema
from riverlock.engines.jobs.analysis import SparkAnalysis
from riverlock.engines.jobs.frames.aggregates import Planned
from riverlock.engines.jobs.frames.nodes import hidden_columns, visible
from riverlock.engines.jobs.frames.session_gaps import with_gap
from riverlock.engines.tables.aggregates import Partials
from riverlock.engines.tables.combining import ways_to_combine
from riverlock.engines.tables.nodes import needs_expressions
from riverlock.engines.tables.rows import Computed
from riverlock.program.graph import EventTime, Relational, inputs_of
from riverlock.program.windows import SessionWindows, TimeWindows
from riverlock.spark.columnar import compile_steps

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from riverlock.columnar import Steps
    from riverlock.program.graph import Keyed, Node
    from riverlock.stages.analysis import KeyedRows
    from riverlock.stages.compiled import CompiledFlow

__all__ = ["CompiledAnalysis"]


class CompiledAnalysis(SparkAnalysis):
    """Frames over empty ranges, and what leads from one to another.

    After planning, ``computed`` gives the steps of the flow that was planned.
    """

    # All stages of an epoch read the same tables.
    evaluates_once = True

    def keyed(self, node: Keyed) -> KeyedRows:
        """Return the rows that an operator receives.

        Raises:
            InvalidFlowError: An aggregate, or a gap, is outside of the subset.
        """
        rows = super().keyed(node)
        if not node.aggregates:
            return rows
        return replace(rows, combine=self._partials(node, rows))

    def _partials(self, node: Keyed, rows: KeyedRows) -> Partials:
        frame = with_gap(self._frames.frame(node.input), node)
        planned = Planned.of(frame, node.aggregates, node.uid)
        window = None if node.windows is None else node.windows.window
        has_panes = node.windows is not None and node.windows.has_panes
        keys = [F.col(f"`{k}`") for k in node.keys]
        parts = [F.expr(text).alias(n) for n, text in planned.singles.items()]
        singles = frame.select(*keys, *parts, *hidden_columns(frame))
        columns = Schema(tuple(f for f in rows.columns.fields if f.name != GAP))
        is_combined = node.windows is None or has_panes
        merges = {
            name + suffix: str(split.merge)
            for name, split in planned.splits.items()
            for suffix in split.rows
        }
        ways = ways_to_combine(columns, node.keys, merges) if is_combined else None
        return Partials(
            columns=columns,
            steps=self._steps(frame, singles, node, f"aggregates of {node.uid!r}"),
            window=window if has_panes and isinstance(window, TimeWindows) else None,
            keys=node.keys,
            ways=ways,
        )

    def computed(self, compiled: CompiledFlow) -> Computed:
        """Return the expressions of a flow, compiled.

        Raises:
            InvalidFlowError: One is outside of the subset; it is named.
        """
        steps: dict[Node, tuple[Node, Steps]] = {}
        for node in self._made_by_expressions(compiled):
            base, frames = self._base(node), self._frames
            name = f"{getattr(node, 'operation', 'event_time')}()"
            made = self._steps(frames.frame(base), frames.frame(node), node, name)
            steps[node] = (base, made)
        return Computed(steps, self._gaps(compiled))

    def _made_by_expressions(self, compiled: CompiledFlow) -> list[Node]:
        """Return the last steps of expressions: others are within them."""
        found: dict[Node, None] = {}
        for node in compiled.flow.nodes:
            if isinstance(node, EventTime) and self._is_expression(node):
                found[node] = None
            elif not isinstance(node, Relational):
                steps = [n for n in inputs_of(node) if isinstance(n, Relational)]
                found |= dict.fromkeys(steps)
        return list(found)

    def _is_expression(self, node: Node) -> bool:
        if isinstance(node, EventTime):
            columns = visible(self._frames.frame(node.input))
            return needs_expressions(node, columns)
        return isinstance(node, Relational)

    def _base(self, node: Node) -> Node:
        """Return what expressions begin with."""
        (base,) = inputs_of(node)
        while isinstance(base, Relational):
            base = base.input
        return base

    def _gaps(self, compiled: CompiledFlow) -> dict[str, Steps]:
        found = {}
        for stage in compiled.keyed:
            windows = stage.node.windows
            window = None if windows is None else windows.window
            if isinstance(window, SessionWindows) and window.gap_expr is not None:
                frame = self._frames.frame(stage.node.input)
                gapped = with_gap(frame, stage.node)
                name = f"gap_expr of {stage.id!r}"
                found[stage.id] = self._steps(frame, gapped, stage.node, name)
        return found

    def _steps(
        self, before: DataFrame, after: DataFrame, node: Node, name: str
    ) -> Steps:
        return compile_steps(before, after, name=name, line=node.line or "")
