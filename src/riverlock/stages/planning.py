"""Checks a flow and turns it into stages."""

from __future__ import annotations

import hashlib
import inspect
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from riverlock.connectors.base.direct import direct_stager
from riverlock.connectors.base.sink import SinkUse, TwoPhaseSink
from riverlock.connectors.builtin_stagers import TableStager
from riverlock.connectors.channel.ends import ChannelSink
from riverlock.core.errors import DefinitionError, InvalidFlowError
from riverlock.core.hidden_columns import MARK, TIME
from riverlock.core.types import Schema, schema_of
from riverlock.operators.aggregates.aggregate import Aggregate
from riverlock.operators.aggregates.aggregator import Aggregator
from riverlock.operators.binding import Bound, bound_to
from riverlock.operators.keyed.loop.inlining import source_of
from riverlock.operators.keyed.loop.parsing import PARSING
from riverlock.operators.shipped import (
    DEAD,
    DEAD_SCHEMA,
    MAIN,
    UPDATES,
    OperatorProgram,
)
from riverlock.operators.windows.window_aggregate import WindowAggregate
from riverlock.operators.windows.window_contents import Aggregates
from riverlock.program.channel_keys import read_at_once
from riverlock.program.graph import (
    Connect,
    EventTime,
    Keyed,
    Late,
    Output,
    Read,
    RowWise,
    Write,
    event_times_of,
    inputs_of,
    operator_times,
)
from riverlock.program.process import overrides
from riverlock.program.windows import TIMED, TimeWindows
from riverlock.stages.compiled import CompiledFlow, KeyedStage, WriteStage
from riverlock.stages.sharing import Sharing
from riverlock.state.keys import check_keys
from riverlock.worker.event_times import DeclaredTimes
from riverlock.worker.row_functions import row_function
from riverlock.worker.task import Targets

if TYPE_CHECKING:
    from collections.abc import Mapping

    from riverlock.connectors.base.source_reader import Reader
    from riverlock.connectors.base.stager import Stager
    from riverlock.operators.base import BuiltIn
    from riverlock.program.graph import Node
    from riverlock.program.program import Program
    from riverlock.stages.analysis import Analysis, KeyedRows

__all__ = ["compile_flow"]


def compile_flow(
    flow: Program, readers: Mapping[str, Reader], analysis: Analysis
) -> CompiledFlow:
    """Check a flow and turn it into stages.

    Args:
        flow: The flow.
        readers: What reads its sources, by uid.
        analysis: The engine's, of this flow.

    Raises:
        InvalidFlowError: Something in it is impossible.
    """
    compiled = _Compiler(flow, readers, analysis).compile()
    analysis.planned(compiled)
    return compiled


class _Compiler:
    def __init__(
        self, flow: Program, readers: Mapping[str, Reader], analysis: Analysis
    ) -> None:
        self._flow, self._analysis = flow, analysis
        self._nodes = flow.nodes
        self._event_times = {n.uid: n for n in flow.find(EventTime)}
        self._staged: dict[tuple[str, str], Schema] = {}
        self._uses: dict[str, SinkUse] = {}
        # Nodes that have a stage.
        self._made: set[Node] = set()
        self._sharing = Sharing(flow, readers, analysis)

    def compile(self) -> CompiledFlow:
        if not any(isinstance(n, Write | Keyed) for n in self._nodes):
            raise InvalidFlowError(
                f"flow {self._flow.name!r}",
                expected="at least one sink or keyed operator",
                found="none",
                hint="end a stream with .write(...)",
            )
        stages: list[KeyedStage | WriteStage] = []
        for node in self._sharing.nodes:
            if isinstance(node, Late):
                self._sharing.check_late(node)
            if isinstance(node, Keyed):
                stages.append(self._keyed(node))
            elif not isinstance(node, Write):
                if self._sharing.has_stage(node):
                    stages.append(self._shared(node, len(stages)))
            elif self._is_first(node):
                stages.append(self._write(node.input, f"write-{node.uid}"))
        staged = {
            place: schema
            for place, schema in self._staged.items()
            if self._is_read(*place)
        }
        return CompiledFlow(
            flow=self._flow,
            stages=tuple(stages),
            event_times=self._event_times,
            staged=staged,
            uses=self._uses,
            code=self._fingerprint(),
            columns=self._columns(),
        )

    def _columns(self) -> dict[str, str]:
        """Return the columns of sources, and of what user code is given."""
        given: dict[str, tuple[Node, ...]] = {}
        for node in self._nodes:
            if isinstance(node, Read) and not node.reads_bad_rows:
                given[node.uid] = (node,)
            elif isinstance(node, RowWise):
                given[node.uid] = (node.input,)
            elif isinstance(node, Keyed) and not node.aggregates:
                both = node.input if isinstance(node.input, Connect) else None
                given[node.uid] = (both.left, both.right) if both else (node.input,)
        found = {}
        for uid, nodes in given.items():
            known = [self._analysis.known_columns(node) for node in nodes]
            fields = {f.name: f for columns in known for f in columns.fields}
            found[uid] = Schema(tuple(fields.values())).ddl
        return found

    def _keyed(self, node: Keyed) -> KeyedStage:
        """Return the stage of an operator; what is wrong with it has its line."""
        try:
            return self._keyed_stage(node)
        except DefinitionError as error:
            error.place(node.line)
            raise

    def _keyed_stage(self, node: Keyed) -> KeyedStage:
        analysis, process = self._analysis, node.process
        self._check_has_time(node)
        if node.aggregates:
            # Before the aggregates: what is wrong with the keys is told first.
            _keys(analysis.columns(node.input), node)
        rows = analysis.keyed(node)
        clocks = rows.has_clock
        if rows.aggregates:
            process = _aggregate(rows, node)
        elif node.broadcast is not None:
            clocks |= analysis.has_clock(node.broadcast)
        assert process is not None, "aggregates without a process"
        columns = rows.columns
        keys = _keys(columns, node)
        updates = self._is_used(node, UPDATES)
        bound = bound_to(process, node.uid, keys, columns, has_updates=updates)
        program = self._program(node, bound, columns)
        for name, schema in program.outputs.items():
            self._add_output(node.uid, name, schema)
        if program.has_dead_letters:
            self._add_output(node.uid, DEAD, schema_of(DEAD_SCHEMA))
        return KeyedStage(
            id=node.uid,
            node=node,
            program=program,
            blob=analysis.shipped(program),
            combine=rows.combine,
            targets=self._targets(node, program),
            event_times=tuple(t.uid for t in operator_times(node)),
            has_clock=clocks,
            channel=self._channel(node),
            can_read_ahead=not clocks
            and _reads_only_sources(node)
            and not self._sharing.reads_shared(node),
        )

    def _channel(self, node: Keyed) -> str | None:
        """Return the channel of whose rows each task may read its own."""
        read = read_at_once(node)
        if read is None or self._sharing.reads_shared(node.input):
            return None
        return read.uid

    def _add_output(self, uid: str, name: str, schema: Schema) -> None:
        self._staged[(uid, name)] = schema
        self._analysis.add_output(uid, name, schema)

    def _check_has_time(self, node: Keyed) -> None:
        if node.windows is None or not isinstance(node.windows.window, TIMED):
            return
        if TIME not in self._analysis.hidden(node.input):
            raise InvalidFlowError(
                f"the window of operator {node.uid!r}",
                expected="a stream with event time",
                found="none",
                hint='call .event_time("column", delay="...") before',
            )

    def _program(self, node: Keyed, bound: Bound, columns: Schema) -> OperatorProgram:
        process, keys = bound.process, bound.keys
        broadcast = None
        if node.broadcast is not None:
            if not overrides(process, "on_broadcast"):
                raise InvalidFlowError(
                    f"broadcast of operator {node.uid!r}",
                    expected="a method on_broadcast",
                    found=type(process).__name__,
                )
            broadcast = self._analysis.columns(node.broadcast)
        return OperatorProgram(
            uid=node.uid,
            process=process,
            keys=keys,
            input=columns,
            outputs=bound.outputs,
            broadcast=broadcast,
            initial=self._initial(node, process, keys),
            visits_all=node.visits_all,
            has_dead_letters=node.on_error is not None,
            event_times=tuple(self._event_times),
            time_column=MARK if self._has_marks else TIME,
            has_event_time=bool(event_times_of(node)),
            follows_keyed=not _reads_only_sources(node.input),
            has_control=node.has_control,
            source=None if node.has_control else source_of(process),
        )

    @property
    def _has_marks(self) -> bool:
        return any(d.watermark is not None for d in self._event_times.values())

    def _is_used(self, node: Keyed, name: str) -> bool:
        """Tell whether anything, also a sink, reads an output."""
        return any(
            isinstance(n, Output) and n.input is node and n.name == name
            for n in self._nodes
        )

    def _initial(self, node: Keyed, process: Any, keys: Schema) -> Schema | None:
        if node.initial is None:
            return None
        if not overrides(process, "on_initial"):
            raise InvalidFlowError(
                f"initial state of operator {node.uid!r}",
                expected="a method on_initial",
                found=type(process).__name__,
            )
        columns = self._analysis.initial(node)
        for f in keys.fields:
            if f not in columns.fields:
                raise InvalidFlowError(
                    f"initial state of operator {node.uid!r}",
                    expected=f"a key column {f.name} {f.type.ddl}",
                    found=columns.ddl,
                )
        return columns

    def _targets(self, node: Keyed, program: OperatorProgram) -> dict[str, Targets]:
        names = [*program.outputs, *([DEAD] if program.has_dead_letters else [])]
        targets = {}
        for name in names:
            sinks = {
                w.uid: self._stager(w, self._staged[(node.uid, name)])
                for w in self._flow.writes
                if isinstance(w.input, Output)
                and w.input.input is node
                and w.input.name == name
            }
            is_staged = self._is_read(node.uid, name)
            if sinks or is_staged:
                targets[name] = Targets(sinks=sinks, is_staged=is_staged)
        return targets

    def _is_read(self, uid: str, name: str) -> bool:
        """Tell whether a node other than a sink reads an output."""
        return any(
            isinstance(i, Output)
            and isinstance(i.input, Keyed)
            and (i.input.uid, i.name) == (uid, name)
            for n in self._nodes
            if not isinstance(n, Write)
            for i in inputs_of(n)
        )

    def _is_first(self, node: Write) -> bool:
        """Tell whether a sink is the first of those that a stage is made for."""
        if isinstance(node.input, Output) or node.input in self._made:
            return False
        self._made.add(node.input)
        return True

    def _shared(self, node: Node, number: int) -> WriteStage:
        """Return a stage whose rows are all that others see of a node."""
        self._made.add(node)
        stage = self._write(node, f"shared-rows-{number}")
        if self._analysis.evaluates_once:
            return stage
        return replace(stage, stored=self._sharing.share(node))

    def _write(self, node: Node, name: str) -> WriteStage:
        """Return the stage of all sinks that read a node."""
        analysis, sharing = self._analysis, self._sharing
        schema = analysis.columns(node)
        is_staged = sharing.is_stored(node)
        main = Targets(sinks=self._sinks(node, schema), is_staged=is_staged)
        targets, given, function = {MAIN: main}, node, None
        dead = sharing.dead_letters(node)
        if dead is not None:
            assert isinstance(node, RowWise)
            targets[DEAD] = Targets(sinks=self._sinks(dead, schema_of(DEAD_SCHEMA)))
            given = node.input
            function = row_function(
                node, analysis.columns(given), analysis.hidden(given)
            )
        return WriteStage(
            id=name,
            node=node,
            schema=schema,
            targets=targets,
            given=given,
            function=function,
            has_clock=analysis.has_clock(node),
            times=self._times(node),
        )

    def _times(self, node: Node) -> DeclaredTimes | None:
        """Return whose watermarks rows of a node move on their way to a channel."""
        is_sent = any(
            w.input is node and isinstance(w.sink, ChannelSink)
            for w in self._flow.writes
        )
        if not is_sent or not self._event_times:
            return None
        return DeclaredTimes(
            names=tuple(self._event_times),
            column=MARK if self._has_marks else TIME,
            follows_keyed=not _reads_only_sources(node),
        )

    def _sinks(self, node: Node, schema: Schema) -> dict[str, Stager]:
        writes = [w for w in self._flow.writes if w.input is node]
        return {w.uid: self._stager(w, schema) for w in writes}

    def _stager(self, node: Write, schema: Schema) -> Stager:
        use = SinkUse(uid=node.uid, schema=schema, replaces=node.replaces)
        self._uses[node.uid] = use
        sink = node.sink
        if isinstance(sink, ChannelSink):
            sink = replace(
                sink,
                keys=self._flow.channel_keys.get(node.uid, ()),
                key_groups=self._flow.key_groups,
            )
        if isinstance(sink, TwoPhaseSink):
            guarantee = self._flow.guarantee
            try:
                direct = direct_stager(sink, use, guarantee)
                return sink.stager(use) if direct is None else direct
            except DefinitionError as error:
                error.place(node.line)
                raise
        return TableStager(sink=node.uid)

    def _fingerprint(self) -> str:
        """Return what changes when the code that makes results changes."""
        sources = [
            _source(n.process if isinstance(n, Keyed) else n.function)
            for n in self._nodes
            if isinstance(n, Keyed | RowWise)
        ]
        sources += [
            _source(each)
            for n in self._nodes
            if isinstance(n, Keyed)
            for each in n.aggregates.values()
            if isinstance(each, Aggregator)
        ]
        text = json.dumps([self._flow.describe(), sources], default=str)
        return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()


def _aggregate(rows: KeyedRows, node: Keyed) -> BuiltIn:
    """Return the operator that merges aggregates."""
    found, windows = dict(rows.aggregates), node.windows
    if windows is None:
        return Aggregate(found, node.formerly)
    if isinstance(windows.window, TimeWindows) and windows.has_panes:
        return WindowAggregate(found, windows.window, windows.lateness_us)
    return windows.operator(Aggregates(found))


def _keys(columns: Schema, node: Keyed) -> Schema:
    for key in node.keys:
        if key not in columns.names:
            raise InvalidFlowError(
                f"key_by() of operator {node.uid!r}",
                expected=f"one of the columns {', '.join(columns.names)}",
                found=repr(key),
            )
    keys = Schema(tuple(f for k in node.keys for f in columns.fields if f.name == k))
    check_keys(keys)
    return keys


def _source(thing: Any) -> str:
    target = thing if inspect.isfunction(thing) else type(thing)
    try:
        with PARSING:  # that of a class is found by parsing its file
            return inspect.getsource(target)
    except (OSError, TypeError):
        return repr(target)


def _reads_only_sources(node: Node) -> bool:
    return all(
        not isinstance(i, Keyed) and _reads_only_sources(i) for i in inputs_of(node)
    )
