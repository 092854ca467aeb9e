"""A flow in one thread, without Spark: the oracle for how Spark runs it.

Runs flows made of Python: ``map``, ``flat_map``, ``filter``, ``union``, ``event_time``,
keyed processes and joins. SQL expressions need Spark and are refused. Records are given
by hand, epoch boundaries are chosen at will, and the result must not depend on them.

One difference is left: here all rows move the watermark that is declared for them, on
Spark those that reach a keyed operator.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from riverlock.coordinator.watermarks import advanced, operator_watermark
from riverlock.core.clock import ManualClock
from riverlock.core.errors import InvalidConfigError, InvalidFlowError
from riverlock.core.hidden_columns import TIME
from riverlock.core.times import from_micros, micros
from riverlock.driver.input_watermarks import at_the_end, declared_marks, moved_along
from riverlock.operators.shipped import UPDATES
from riverlock.program.graph import (
    Connect,
    EventTime,
    Keyed,
    Late,
    Node,
    Output,
    Read,
    RowWise,
    Union,
    event_times_of,
    operator_times,
    upstream,
)
from riverlock.program.input_end import is_bounded
from riverlock.program.windows import SessionWindows
from riverlock.state.columns.python_rows import records, rows_table
from riverlock.testing.harness import Harness, harness
from riverlock.worker.dispatch import late_rows_of

if TYPE_CHECKING:
    from riverlock.core.types import Schema
    from riverlock.flow.flow import Flow
    from riverlock.snapshot.format.records import Watermark

__all__ = ["LocalRun", "run_local"]

Row = tuple[Any, ...]
Timed = tuple[Row, int | None]  # with its event time


def run_local(
    flow: Flow,
    inputs: Mapping[str, Sequence[Any]] | Sequence[Any],
    *,
    epoch_rows: int | None = None,
    clock: ManualClock | None = None,
) -> LocalRun:
    """Run a flow over given records until they are used up and no timer is due.

    Args:
        flow: A flow whose stateless steps are Python functions.
        inputs: Records (tuples or dicts) by source uid; a plain list for one source.
        epoch_rows: Records per source and epoch; default: all in one epoch.
        clock: Processing time.

    Raises:
        InvalidFlowError: A step needs Spark, or a source's columns are not declared.
    """
    reads = flow.find(Read)
    if not isinstance(inputs, Mapping):
        inputs = {reads[0].uid: inputs}
    run = LocalRun(flow, clock or ManualClock())
    size = epoch_rows or max((len(r) for r in inputs.values()), default=0) or 1
    longest = max((len(rows) for rows in inputs.values()), default=0)
    for begin in range(0, longest, size):
        run.epoch({uid: rows[begin : begin + size] for uid, rows in inputs.items()})
    run.has_ended = True
    run.epoch({})  # the watermark of the last records: timers that are due now
    while run._has_moved:  # by rows that timers gave
        run.epoch({})
    return run


@dataclass
class LocalRun:
    """A flow that is fed epoch by epoch."""

    flow: Flow
    clock: ManualClock
    # Whether no more records will come: what is bounded has the last watermark then.
    has_ended: bool = False
    _harnesses: dict[str, Harness] = field(default_factory=dict)
    _marks: dict[str, Watermark] = field(default_factory=dict)
    _sinks: dict[str, list[Row]] = field(default_factory=dict)
    _fresh: dict[Node, list[Timed]] = field(default_factory=dict)
    _used: dict[str, Watermark] = field(default_factory=dict)
    _since_us: int | None = None
    # Up to when records were late for each operator, in this epoch.
    _late_at: dict[str, int | None] = field(default_factory=dict)

    def rows(self, sink: str | None = None) -> list[Row]:
        """Return what a sink got; without a uid, the only sink."""
        if sink is None:
            (sink,) = [w.uid for w in self.flow.writes]
        return self._sinks.get(sink, [])

    def operator(self, uid: str) -> Harness:
        """Return the harness of an operator, to look at its state and timers."""
        return self._harnesses[uid]

    def set(self, operator: str, /, **values: Any) -> None:
        """Change parameters of an operator, from the next epoch on.

        Raises:
            InvalidConfigError: There is no such operator or parameter, or a value is
                not of its kind.
        """
        keyed = {k.uid: k for k in self.flow.keyed}
        if operator not in keyed:
            raise InvalidConfigError(
                f"operator {operator!r}",
                expected=f"one of {', '.join(keyed) or 'none: the flow has none'}",
                found=operator,
            )
        made = self._harnesses.get(operator) or self._make(keyed[operator])
        self._harnesses[operator] = made
        made.set(**values)

    def epoch(self, inputs: Mapping[str, Sequence[Any]]) -> None:
        """Run one epoch over the given records."""
        self._fresh = {}
        self._used = self._watermarks()
        self._marks = dict(self._used)
        for node in self.flow.nodes:
            if isinstance(node, Read):
                schema = self._schema(node)
                table = rows_table(list(inputs.get(node.uid, ())), schema)
                self._fresh[node] = [(tuple(r), None) for r in records(table, schema)]
            elif isinstance(node, Keyed):
                self._keyed(node)
        for write in self.flow.writes:
            rows = [row for row, _ in self._timed(write.input)]
            before = [] if write.replaces else self._sinks.get(write.uid, [])
            self._sinks[write.uid] = before + rows

    def _watermarks(self) -> dict[str, Watermark]:
        """Return how far each declared event time has come, as the planner does."""
        now_us = self.clock.now_us()
        if self._since_us is None:
            self._since_us = now_us
        declared = self.flow.find(EventTime)
        marks = moved_along(
            [tuple(operator_times(keyed)) for keyed in self.flow.find(Keyed)],
            declared_marks(declared, self._marks, now_us=now_us),
            now_us=now_us,
            since_us=self._since_us,
        )
        ended = [d.uid for d in declared if self.has_ended and is_bounded(d)]
        return at_the_end(marks, ended)

    @property
    def _has_moved(self) -> bool:
        """Whether the last epoch moved a watermark."""
        return any(
            mark.watermark_us != self._used[uid].watermark_us
            for uid, mark in self._marks.items()
        )

    def _timed(self, node: Node) -> list[Timed]:
        if node not in self._fresh:
            self._fresh[node] = self._compute(node)
        return self._fresh[node]

    def _compute(self, node: Node) -> list[Timed]:
        match node:
            case EventTime():
                return self._event_time(node)
            case Union():
                return [row for each in node.inputs for row in self._timed(each)]
            case RowWise():
                return self._row_wise(node)
            case Late():
                return self._late(node.input)
            case _:
                raise InvalidFlowError(
                    f"{getattr(node, 'operation', type(node).__name__)} in run_local",
                    expected="Python steps only: map, flat_map, filter, union, key_by",
                    found="a step that Spark runs",
                    hint="run the flow on Spark with flow.run(...)",
                )

    def _event_time(self, node: EventTime) -> list[Timed]:
        if node.column is None:
            return self._timed(node.input)
        rows = [row for row, _ in self._timed(node.input)]
        place = self._schema(node).names.index(node.column)
        times = [None if r[place] is None else micros(r[place]) for r in rows]
        moves = self._moves(node, rows, times)
        seen = [m for m, t in zip(moves, times, strict=True) if t is not None]
        parts: list[dict[str, int | None]] = []
        if node.per is not None:
            per = self._schema(node).names.index(node.per)
            parts = [
                {"" if row[per] is None else str(row[per]): move}
                for row, move, time in zip(rows, moves, times, strict=True)
                if time is not None
            ]
        self._marks[node.uid] = advanced(
            self._used[node.uid],
            self._used[node.uid],
            seen,
            parts,
            delay_us=node.delay_us,
            now_us=self.clock.now_us(),
        )
        return list(zip(rows, times, strict=True))

    def _moves(
        self, node: EventTime, rows: list[Row], times: list[int | None]
    ) -> list[int | None]:
        """Return what of each row moves the watermark."""
        if node.watermark is None:
            return times
        names = self._schema(node).names
        if node.watermark not in names:
            raise InvalidFlowError(
                "watermark of event_time in run_local",
                expected=f"one of {', '.join(names)}",
                found=repr(node.watermark),
                hint="run the flow on Spark, or compute the column before",
            )
        place = names.index(node.watermark)
        return [None if r[place] is None else micros(r[place]) for r in rows]

    def _row_wise(self, node: RowWise) -> list[Timed]:
        columns = self._schema(node.input)
        timed = self._timed(node.input)
        found: list[Any] = []
        times: list[int | None] = []
        for record, (_, time) in zip(_as_records(timed, columns), timed, strict=True):
            result = node.function(record)
            match node.operation:
                case "map":
                    made = [result]
                case "filter":
                    made = [tuple(record)] if result else []
                case _:
                    made = list(result or ())
            found += made
            times += [time] * len(made)
        output = node.output or columns
        rows = [tuple(r) for r in records(rows_table(found, output), output)]
        return list(zip(rows, times, strict=True))

    def _late(self, node: Keyed) -> list[Timed]:
        """Return the records that a window left out in this epoch."""
        timed, limit = self._timed(node.input), self._late_at[node.uid]
        process: Any = node.process
        times = pa.array([time for _, time in timed], pa.int64())
        is_late, _ = late_rows_of(pa.table({TIME: times}), process, limit)
        return [each for each, late in zip(timed, is_late, strict=True) if late]

    def _keyed(self, node: Keyed) -> None:
        made = self._harnesses.get(node.uid) or self._make(node)
        self._harnesses[node.uid] = made
        mark = operator_watermark([t.uid for t in operator_times(node)], self._used)
        before = {name: len(made.side(name)) for name in made.outputs}
        if mark is not None:
            made.watermark = from_micros(mark)
        follows = any(isinstance(n, Keyed) for n in upstream(node.input))
        self._late_at[node.uid] = made._previous_us if follows else mark
        with made.epoch():
            if node.broadcast is not None:
                made.broadcast(*(row for row, _ in self._timed(node.broadcast)))
            if isinstance(node.input, Connect):
                made._send_timed(self._timed(node.input.right), is_right=True)
                made._send_timed(self._timed(node.input.left))
            else:
                made._send_timed(self._timed(node.input))
        for name, count in before.items():
            # Outputs are looked up by value: the flow may hold several of one name.
            for output in self._outputs(node, name):
                self._fresh[output] = made._timed(name)[count:]

    def _outputs(self, node: Keyed, name: str) -> Iterable[Output]:
        inputs = [i for n in self.flow.nodes if isinstance(n, Output) for i in (n,)]
        return [o for o in inputs if o.input is node and o.name == name]

    def _make(self, node: Keyed) -> Harness:
        process = node.process
        if process is None:
            raise InvalidFlowError(
                f"agg {node.uid!r} in run_local",
                expected="Python steps only",
                found="aggregate expressions, which Spark evaluates",
                hint="run the flow on Spark with flow.run(...) over a few files",
            )
        window = None if node.windows is None else node.windows.window
        if isinstance(window, SessionWindows) and window.gap_expr is not None:
            raise InvalidFlowError(
                f"gap_expr of {node.uid!r} in run_local",
                expected="one gap: sessions('10 minutes')",
                found="an expression, which Spark evaluates",
            )
        made = harness(
            process,
            key=list(node.keys),
            **self._inputs(node.input),
            broadcast=None if node.broadcast is None else self._schema(node.broadcast),
            uid=node.uid,
            on_error="fail" if node.on_error is None else "dead_letter",
            clock=self.clock,
            key_groups=self.flow.key_groups,
            visits_all=node.visits_all,
            follows_keyed=any(isinstance(n, Keyed) for n in upstream(node.input)),
            updates=bool(list(self._outputs(node, UPDATES))),
        )
        has_time = bool(event_times_of(node))
        made._program = replace(made._program, has_event_time=has_time)
        return made

    def _inputs(self, node: Node) -> dict[str, Any]:
        """Return what a harness must know of one stream or two."""
        if not isinstance(node, Connect):
            return {"input": self._schema(node)}
        return {
            "input": self._schema(node.left),
            "right": self._schema(node.right),
            "right_key": list(node.right_keys),
        }

    def _schema(self, node: Node) -> Schema:
        match node:
            case Read():
                found = node.source.schema
            case EventTime():
                found = self._schema(node.input)
            case Union():
                found = self._schema(node.inputs[0])
            case RowWise():
                found = node.output or self._schema(node.input)
            case Late():
                found = self._schema(node.input.input)
            case Output(input=Keyed() as keyed):
                made = self._harnesses.get(keyed.uid) or self._make(keyed)
                self._harnesses[keyed.uid] = made
                found = made.outputs[node.name]
            case _:
                found = None
        if found is None:
            raise InvalidFlowError(
                "run_local", expected="declared columns", found=type(node).__name__
            )
        return found


def _as_records(timed: list[Timed], schema: Schema) -> Iterable[Any]:
    return records(rows_table([row for row, _ in timed], schema), schema)
