"""Checks a flow and turns it into stages."""

from __future__ import annotations

import hashlib
import inspect
import json
from typing import TYPE_CHECKING, Any

from pyspark import cloudpickle
from pyspark.sql import DataFrame

from riverlock.connectors.base.sink import SinkUse, TwoPhaseSink
from riverlock.connectors.builtin_stagers import TableStager
from riverlock.core.errors import InvalidFlowError
from riverlock.core.hidden_columns import GAP, MARK, TIME
from riverlock.core.types import Field, Schema, Type, schema_of
from riverlock.engines.jobs.frames.aggregates import Combine, Singles, plan_aggregates
from riverlock.engines.jobs.frames.nodes import (
    Frames,
    LateRows,
    Rows,
    known_columns,
    visible,
)
from riverlock.engines.jobs.frames.rowwise import row_function
from riverlock.engines.jobs.frames.session_gaps import with_gap
from riverlock.engines.jobs.frames.sharing import Sharing
from riverlock.engines.jobs.stages import CompiledFlow, KeyedStage, WriteStage
from riverlock.operators.aggregates.aggregator import Aggregator
from riverlock.operators.built_in import Aggregate, BuiltIn
from riverlock.operators.keyed.loop.inlining import source_of
from riverlock.operators.shipped import (
    DEAD,
    DEAD_SCHEMA,
    MAIN,
    UPDATES,
    OperatorProgram,
)
from riverlock.operators.windows.window_aggregate import WindowAggregate
from riverlock.operators.windows.window_contents import Aggregates
from riverlock.program.graph import (
    Connect,
    EventTime,
    Keyed,
    Late,
    Output,
    Read,
    RowWise,
    Write,
    declared_behind_keyed,
    event_times_of,
    inputs_of,
    operator_times,
)
from riverlock.program.process import check_process, overrides, side_outputs
from riverlock.program.unkeyed import ALL_RECORDS
from riverlock.program.windows import TIMED, TimeWindows
from riverlock.snapshot.format.records import InputRange
from riverlock.spark.epoch_clock import has_clock
from riverlock.state.keys import check_keys
from riverlock.worker.task import Targets

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

    from riverlock.connectors.base.source_reader import Reader
    from riverlock.connectors.base.stager import Stager
    from riverlock.flow.flow import Flow
    from riverlock.program.graph import Node

__all__ = ["compile_flow", "initial_frame"]


def compile_flow(
    flow: Flow, spark: SparkSession, readers: Mapping[str, Reader]
) -> CompiledFlow:
    """Check a flow and turn it into stages.

    Raises:
        InvalidFlowError: Something in it is impossible.
    """
    return _Compiler(flow, spark, readers).compile()


class _Compiler:
    def __init__(
        self, flow: Flow, spark: SparkSession, readers: Mapping[str, Reader]
    ) -> None:
        self._flow, self._spark = flow, spark
        self._nodes = flow.nodes
        self._event_times = {n.uid: n for n in flow.find(EventTime)}
        self._staged: dict[tuple[str, str], tuple[Schema, list[str]]] = {}
        self._uses: dict[str, SinkUse] = {}
        # Nodes that have a stage.
        self._made: set[Node] = set()
        nothing = {u: r.initial() for u, r in readers.items()}
        ranges = {u: InputRange(start=o, end=o) for u, o in nothing.items()}

        def make_frames() -> Frames:
            late = {k.uid: LateRows(0, None) for k in flow.keyed}
            return Frames(
                spark,
                readers,
                ranges,
                self._event_times,
                self._staged,
                late,
                says_source=any(map(declared_behind_keyed, flow.keyed)),
            )

        self._frames = make_frames()
        self._sharing = Sharing(flow, readers, make_frames)

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
            for place, (schema, _) in self._staged.items()
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
            elif isinstance(node, Keyed) and node.process is not None:
                both = node.input if isinstance(node.input, Connect) else None
                given[node.uid] = (both.left, both.right) if both else (node.input,)
        found = {}
        for uid, nodes in given.items():
            frames = [self._frames.frame(node) for node in nodes]
            fields = {f.name: f for made in frames for f in known_columns(made).fields}
            found[uid] = Schema(tuple(fields.values())).ddl
        return found

    def _keyed(self, node: Keyed) -> KeyedStage:
        frame = self._frames.frame(node.input)
        _check_has_time(frame, node)
        frame = with_gap(frame, node)
        clocks = has_clock(frame)
        if node.broadcast is not None:
            clocks |= has_clock(self._frames.frame(node.broadcast))
        combine, process = None, node.process
        if process is None:
            _check_columns(frame, node)
            combine, process = self._aggregate(frame, node)
            clocks = combine.has_clock(frame)
            frame = combine.apply(frame)
        columns = visible(frame)
        keys = _keys(columns, node)
        if GAP in frame.columns:
            columns = Schema((*columns.fields, Field(GAP, Type("long"))))
        if isinstance(process, BuiltIn):
            process = process.bound(keys, columns)
        if isinstance(process, WindowAggregate):
            keys = process.state_keys(keys)
        elif not node.keys:
            keys = ALL_RECORDS
        program = self._program(node, process, keys, columns)
        for name, schema in program.outputs.items():
            self._staged[(node.uid, name)] = (schema, [])
        if program.has_dead_letters:
            self._staged[(node.uid, DEAD)] = (schema_of(DEAD_SCHEMA), [])
        return KeyedStage(
            id=node.uid,
            node=node,
            program=program,
            blob=_pickled(program),
            combine=combine,
            targets=self._targets(node, program),
            event_times=tuple(t.uid for t in operator_times(node)),
            has_clock=clocks,
            can_read_ahead=not clocks
            and _reads_only_sources(node)
            and not self._sharing.reads_shared(node),
        )

    @staticmethod
    def _aggregate(frame: DataFrame, node: Keyed) -> tuple[Combine | Singles, BuiltIn]:
        combine, found = plan_aggregates(
            frame, node.keys, node.aggregates, node.uid, node.windows
        )
        windows = node.windows
        if windows is None:
            return combine, Aggregate(found)
        if isinstance(windows.window, TimeWindows) and windows.has_panes:
            return combine, WindowAggregate(found, windows.window, windows.lateness_us)
        return combine, windows.operator(Aggregates(found))

    def _program(
        self, node: Keyed, process: Any, keys: Schema, columns: Schema
    ) -> OperatorProgram:
        main = (
            schema_of(process.output)
            if isinstance(process, WindowAggregate)
            else check_process(process, node.uid)
        )
        outputs = {} if main is None else {MAIN: main}
        outputs |= {n: s.schema for n, s in side_outputs(type(process)).items()}
        if main is not None and self._is_used(node, UPDATES):
            outputs[UPDATES] = process.updated(main)
        broadcast = None
        if node.broadcast is not None:
            if not overrides(process, "on_broadcast"):
                raise InvalidFlowError(
                    f"broadcast of operator {node.uid!r}",
                    expected="a method on_broadcast",
                    found=type(process).__name__,
                )
            broadcast = visible(self._frames.frame(node.broadcast))
        return OperatorProgram(
            uid=node.uid,
            process=process,
            keys=keys,
            input=columns,
            outputs=outputs,
            broadcast=broadcast,
            initial=self._initial(node, process, keys),
            visits_all=node.visits_all,
            has_dead_letters=node.on_error is not None,
            event_times=tuple(self._event_times),
            time_column=MARK if self._has_marks else TIME,
            has_event_time=bool(event_times_of(node)),
            follows_keyed=not _reads_only_sources(node.input),
            source=source_of(process),
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
        columns = visible(initial_frame(self._spark, node))
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
                w.uid: self._stager(w, self._staged[(node.uid, name)][0])
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
        self._frames.share(node, Rows(stage.struct))
        return stage

    def _write(self, node: Node, name: str) -> WriteStage:
        """Return the stage of all sinks that read a node."""
        frame, sharing = self._frames.frame(node), self._sharing
        schema = visible(frame)
        is_shared = sharing.has_stage(node)
        struct = sharing.share(node, frame).struct if is_shared else frame.schema
        is_staged = is_shared and sharing.is_read_later(node)
        main = Targets(sinks=self._sinks(node, schema), is_staged=is_staged)
        targets, given, function = {MAIN: main}, node, None
        dead = sharing.dead_letters(node)
        if dead is not None:
            assert isinstance(node, RowWise)
            targets[DEAD] = Targets(sinks=self._sinks(dead, schema_of(DEAD_SCHEMA)))
            given = node.input
            function = row_function(self._frames.frame(given), node)
        return WriteStage(
            id=name,
            node=node,
            schema=schema,
            struct=struct,
            targets=targets,
            given=given,
            function=function,
            has_clock=has_clock(frame),
        )

    def _sinks(self, node: Node, schema: Schema) -> dict[str, Stager]:
        writes = [w for w in self._flow.writes if w.input is node]
        return {w.uid: self._stager(w, schema) for w in writes}

    def _stager(self, node: Write, schema: Schema) -> Stager:
        use = SinkUse(uid=node.uid, schema=schema, replaces=node.replaces)
        self._uses[node.uid] = use
        if isinstance(node.sink, TwoPhaseSink):
            return node.sink.stager(use)
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


def _pickled(program: OperatorProgram) -> bytes:
    try:
        return bytes(cloudpickle.dumps(program))  # type: ignore[no-untyped-call]
    except Exception as error:
        raise InvalidFlowError(
            f"process of operator {program.uid!r}",
            expected="something that can be sent to workers (pickled)",
            found=f"{type(error).__name__}: {error}",
            hint="make connections and locks in open(), not in __init__",
        ) from error


def _keys(columns: Schema, node: Keyed) -> Schema:
    for key in node.keys:
        if key not in columns.names:
            raise InvalidFlowError(
                f"key {key!r} of operator {node.uid!r}",
                expected=f"one of {', '.join(columns.names)}",
                found=repr(key),
            )
    keys = Schema(tuple(f for k in node.keys for f in columns.fields if f.name == k))
    check_keys(keys)
    return keys


def _check_has_time(frame: DataFrame, node: Keyed) -> None:
    if node.windows is None or not isinstance(node.windows.window, TIMED):
        return
    if TIME not in frame.columns:
        raise InvalidFlowError(
            f"window of operator {node.uid!r}",
            expected="a stream with event time",
            found="none",
            hint='call .event_time("column", delay="...") before',
        )


def _check_columns(frame: DataFrame, node: Keyed) -> None:
    _keys(visible(frame), node)


def initial_frame(spark: SparkSession, node: Keyed) -> DataFrame:
    """Return the initial state of an operator as a frame.

    Raises:
        InvalidFlowError: It is none.
    """
    found = node.initial(spark) if callable(node.initial) else node.initial
    if not isinstance(found, DataFrame):
        raise InvalidFlowError(
            f"initial state of operator {node.uid!r}",
            expected="a DataFrame or a function that makes one",
            found=repr(found),
        )
    return found


def _source(thing: Any) -> str:
    target = thing if inspect.isfunction(thing) else type(thing)
    try:
        return inspect.getsource(target)
    except (OSError, TypeError):
        return repr(target)


def _reads_only_sources(node: Node) -> bool:
    return all(
        not isinstance(i, Keyed) and _reads_only_sources(i) for i in inputs_of(node)
    )
