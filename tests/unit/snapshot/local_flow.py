"""A flow of Python steps on a real store, without Spark.

The loop, the planner, the tasks, the sinks and the store are the engine's own; only the
exchange, which Spark does otherwise, is done here.
"""

from __future__ import annotations

import dataclasses
import json
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa

import riverlock as rl
from riverlock.connectors.base.sink import SinkUse, TwoPhaseSink
from riverlock.connectors.outputs import sink_plans
from riverlock.coordinator.instructions import RunStage
from riverlock.coordinator.plan import RegionPlan
from riverlock.coordinator.restart import NoRestart
from riverlock.coordinator.votes import Vote
from riverlock.core.clock import ManualClock
from riverlock.core.hidden_columns import GROUP, INPUT, SEQ, TIME
from riverlock.core.times import micros
from riverlock.core.types import Schema, schema_of
from riverlock.driver.admission import Admission
from riverlock.driver.cleaner import Cleaner
from riverlock.driver.outlets import Arrears, opened_sinks, waiting_output
from riverlock.driver.ownership import Heartbeat
from riverlock.driver.planner import Planner
from riverlock.driver.region_loop import RegionDriver
from riverlock.engines.jobs.adoption import Adoption
from riverlock.engines.jobs.compiler import _pickled
from riverlock.engines.jobs.engine import SparkEngine, _needs_initial
from riverlock.engines.jobs.stages import CompiledFlow, KeyedStage
from riverlock.operators.built_in import BuiltIn
from riverlock.operators.shipped import MAIN, OperatorProgram
from riverlock.operators.task_input import EVENTS, INITIAL_ROW, INITIALS
from riverlock.program.graph import EventTime, Keyed, Output, Read, operator_times
from riverlock.program.process import check_process, side_outputs
from riverlock.replay import rerun as replaying
from riverlock.replay.report import Replay
from riverlock.snapshot.catalog import MAIN_REGION, Catalog
from riverlock.snapshot.claims import claim
from riverlock.snapshot.format.records import Flow as FlowRecord
from riverlock.snapshot.format.records import InputRange, Manifest, Run
from riverlock.snapshot.retention.policy import Retention
from riverlock.state.columns.python_rows import rows_table
from riverlock.state.copy.lmdb import close_below
from riverlock.state.keys import check_keys, key_group, owner_of
from riverlock.storage import LocalStorage
from riverlock.worker.task import Targets

KEEP = Retention(grace=timedelta(0))
NO_SPARK: Any = None


@dataclass(frozen=True)
class RowSource:
    """A source that is described by its columns alone."""

    schema: Schema
    kind: str = "rows"


@dataclass(frozen=True)
class Rows:
    """Reads a list, from any place, as often as needed."""

    rows: list[Any]
    ends: bool = False
    gives_positions = False
    can_read_ahead = False
    is_repeatable = True

    def initial(self) -> int:
        return 0

    def latest(self, start: int) -> int:
        return len(self.rows)

    def advance(self, start: int, latest: int, max_rows: int) -> int:
        return min(start + max_rows, latest)

    def has_ended(self, start: int, latest: int) -> bool:
        return self.ends and start >= latest

    def rows_between(self, start: int, end: int) -> int:
        return end - start

    def read(self, start: int, end: int) -> list[Any]:
        return self.rows[start:end]

    def observed(self, rows: int) -> dict[str, float]:
        return {}

    def close(self) -> None:
        pass


@dataclass(frozen=True, kw_only=True)
class LocalEngine(SparkEngine):
    """The engine, but for what Spark does: rows come from a list, tasks run here."""

    def run_stage(
        self,
        order: RunStage,
        parent: Manifest | None,
        following: Mapping[str, InputRange] | None,
    ) -> tuple[Vote, ...]:
        engine = dataclasses.replace(self, parallelism=order.parallelism)
        stage = engine._stage(order)
        assert isinstance(stage, KeyedStage)
        task, begun = engine.keyed_task(stage), engine.begun(stage, order, parent)
        rows = engine.delivered(order, parent)
        outcomes = [
            (task(rows.get(part, []), part, begun),)
            for part in range(engine.parallelism)
        ]
        return engine._votes(outcomes, order.epoch, order.planned.seed)

    def delivered(
        self, order: RunStage, parent: Manifest | None
    ) -> dict[int, list[pa.RecordBatch]]:
        stage = self._stage(order)
        assert isinstance(stage, KeyedStage)
        ((uid, reader),) = self.readers.items()
        span = order.planned.inputs[uid]
        rows = reader.read(span.start, span.end)
        parts = [self._hidden(stage, rows)] if rows else []
        if _needs_initial(stage, parent):
            parts.append(self._initial_rows(stage))
        if not parts:
            return {}
        table = pa.concat_tables(parts, promote_options="default")
        groups = table[GROUP].to_pylist()
        owners = [owner_of(g, self.parallelism, self._groups) for g in groups]
        return {
            part: table.filter(pa.array([o == part for o in owners])).to_batches()
            for part in sorted(set(owners))
        }

    @property
    def _groups(self) -> int:
        return self.compiled.flow.key_groups

    def _hidden(self, stage: KeyedStage, rows: list[Any]) -> pa.Table:
        """Return rows with the columns that Spark gives beside those of the input."""
        program = stage.program
        names, keys = program.input.names, stage.node.keys
        table = rows_table(rows, program.input)
        places = [names.index(key) for key in keys]
        groups = [
            key_group(tuple(row[p] for p in places), program.keys, self._groups)
            for row in rows
        ]
        for event_time in operator_times(stage.node):
            assert event_time.column is not None
            at = names.index(event_time.column)
            times = [None if r[at] is None else micros(r[at]) for r in rows]
            table = table.append_column(TIME, pa.array(times, pa.int64()))
        if program.initial is not None:
            kinds = pa.array([EVENTS] * len(rows), pa.int32())
            table = table.append_column(INPUT, kinds)
        table = table.append_column(SEQ, pa.array(range(len(rows)), pa.int64()))
        return table.append_column(GROUP, pa.array(groups, pa.int32()))

    def _initial_rows(self, stage: KeyedStage) -> pa.Table:
        program, (_, rows) = stage.program, stage.node.initial
        assert program.initial is not None
        table = rows_table(rows, program.initial)
        keys = table.select(program.keys.names)
        groups = [
            key_group(tuple(row.values()), program.keys, self._groups)
            for row in keys.to_pylist()
        ]
        packed = table.to_struct_array()
        kinds = pa.array([INITIALS] * len(rows), pa.int32())
        keys = keys.append_column(INITIAL_ROW, packed).append_column(INPUT, kinds)
        keys = keys.append_column(SEQ, pa.array(range(len(rows)), pa.int64()))
        return keys.append_column(GROUP, pa.array(groups, pa.int32()))


def compiled(flow: rl.Flow) -> CompiledFlow:
    """Return the stages of a flow whose operators read its source directly.

    Initial state is given as columns and rows, not as a DataFrame.
    """
    event_times = {node.uid: node for node in flow.find(EventTime)}
    uses: dict[str, SinkUse] = {}
    stages = tuple(_stage(flow, n, tuple(event_times), uses) for n in flow.find(Keyed))
    return CompiledFlow(
        flow=flow,
        stages=stages,
        event_times=event_times,
        staged={},
        uses=uses,
        code="c0de",
    )


def _stage(
    flow: rl.Flow, node: Keyed, event_times: tuple[str, ...], uses: dict[str, SinkUse]
) -> KeyedStage:
    read = node.input.input if isinstance(node.input, EventTime) else node.input
    assert isinstance(read, Read)
    columns, process = read.source.schema, node.process
    assert columns is not None
    assert process is not None
    keys = Schema(tuple(f for f in columns.fields if f.name in node.keys))
    check_keys(keys)
    if isinstance(process, BuiltIn):
        process = process.bound(keys, columns)
    main = check_process(process, node.uid)
    outputs = {} if main is None else {MAIN: main}
    outputs |= {n: s.schema for n, s in side_outputs(type(process)).items()}
    targets: dict[str, Targets] = {}
    for write in flow.writes:
        output, sink = write.input, write.sink
        if isinstance(output, Output) and output.input is node:
            use = SinkUse(uid=write.uid, schema=outputs[output.name], replaces=False)
            uses[write.uid] = use
            assert isinstance(sink, TwoPhaseSink)
            targets[output.name] = Targets(sinks={write.uid: sink.stager(use)})
    program = OperatorProgram(
        uid=node.uid,
        process=process,
        keys=keys,
        input=columns,
        outputs=outputs,
        initial=None if node.initial is None else schema_of(node.initial[0]),
        event_times=event_times,
    )
    return KeyedStage(
        id=node.uid,
        node=node,
        program=program,
        blob=_pickled(program),
        combine=None,
        targets=targets,
        event_times=tuple(t.uid for t in operator_times(node)),
    )


class LocalReplayer(replaying._Replayer):
    """A replay whose rows Spark does not deliver."""

    def _engine(self, original: Manifest) -> SparkEngine:
        made = super()._engine(original)
        return LocalEngine(
            **{f.name: getattr(made, f.name) for f in dataclasses.fields(made)}
        )


@dataclass
class LocalFlow:
    """A flow on a store; each ``run`` is one life of a driver."""

    store: Path
    rows: list[Any]
    out: Path
    parallelism: int = 1
    clock: ManualClock = field(default_factory=ManualClock)
    # Whether no more rows will come: the last watermark there is follows.
    ends: bool = False
    # Called by a driver after each epoch.
    after: Callable[[RegionDriver], None] = lambda _: None

    def build(self) -> rl.Flow:
        """Return the flow; its only source is ``rows``."""
        raise NotImplementedError

    @property
    def catalog(self) -> Catalog:
        return Catalog(LocalStorage(self.store))

    def run(
        self,
        epochs: int | None = None,
        *,
        epoch_rows: int = 3,
        retention: Retention = KEEP,
    ) -> int:
        """Run some epochs, or until the rows are used up; returns the newest."""
        with ExitStack() as stack:
            # A driver that ends has nothing open, and a child of ours inherits nothing.
            stack.callback(close_below, self.store)
            self._driver(stack, epochs, epoch_rows, retention).run()
        newest = self.catalog.newest()
        return -1 if newest is None else newest.epoch

    def replay(self, first: int, last: int) -> Replay:
        """Run epochs again."""
        catalog = self.catalog
        with ExitStack() as stack:
            scratch = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            stack.callback(close_below, scratch)
            return LocalReplayer(
                spark=NO_SPARK,
                compiled=compiled(self.build()),
                readers={"rows": Rows(self.rows, self.ends)},
                catalog=catalog,
                scratch=scratch,
                focus=None,
                stepper=None,
            ).run(*replaying._manifests(catalog, first, last), on_epoch=lambda _: None)

    def written(self, sink: str = "out") -> Counter[tuple[Any, ...]]:
        """Return the rows that readers of a sink's directory see."""
        folder = self.out if sink == "out" else self.out.with_name(sink)
        return Counter(
            tuple(json.loads(line).values())
            for file in sorted(folder.glob("epoch=*/*"))
            for line in file.read_text().splitlines()
        )

    def _driver(
        self,
        stack: ExitStack,
        epochs: int | None,
        epoch_rows: int,
        retention: Retention,
    ) -> RegionDriver:
        catalog, flow = self.catalog, self.build()
        made, readers = compiled(flow), {"rows": Rows(self.rows, self.ends)}
        record = catalog.open_flow(flow.name, key_groups=flow.key_groups, now_us=1)
        waiting_output(catalog, flow, catalog.newest())
        owner = claim(catalog, now_us=self.clock.now_us())
        heart = Heartbeat(catalog, owner, lambda: None)
        heart.start()
        stack.callback(heart.stop)
        committers = {}
        for write in flow.writes:
            assert isinstance(write.sink, TwoPhaseSink)
            committer = write.sink.committer(made.uses[write.uid], catalog.storage)
            committers[write.uid] = committer
        openings = opened_sinks(catalog, committers, record, owner)
        cleaner = Cleaner(catalog, retention)
        stack.callback(cleaner.stop)
        cleaner.take_up()
        driver: RegionDriver = RegionDriver(
            plan=self._plan(made, record, owner),
            catalog=catalog,
            engine=self._engine(made, readers, record, owner),
            planner=self._planner(made, readers, epoch_rows),
            committers=committers,
            heartbeat=heart,
            cleaner=cleaner,
            clock=self.clock,
            max_epochs=epochs,
            adopt=Adoption(catalog, made, owner),
            settle=Arrears(catalog, flow, record.id),
            openings=openings,
            on_status=lambda _: self.after(driver),
        )
        newest = catalog.newest()
        heart.listen(driver.ask, after=0 if newest is None else newest.requests)
        return driver

    def _engine(
        self,
        made: CompiledFlow,
        readers: Mapping[str, Rows],
        record: FlowRecord,
        owner: Run,
    ) -> LocalEngine:
        return LocalEngine(
            spark=NO_SPARK,
            compiled=made,
            readers=readers,
            storage=self.catalog.storage,
            flow=record.id,
            region=MAIN_REGION,
            run=owner.run,
            token=owner.token,
            parallelism=self.parallelism,
            working_dir=str(self.store / ".working" / record.id),
            ahead=NO_SPARK,
        )

    def _plan(self, made: CompiledFlow, record: FlowRecord, owner: Run) -> RegionPlan:
        flow = made.flow
        keyed = [s for s in made.stages if isinstance(s, KeyedStage)]
        return RegionPlan(
            store=self.catalog.storage.uri,
            flow=record.id,
            region=MAIN_REGION,
            run=owner.run,
            token=owner.token,
            key_groups=flow.key_groups,
            parallelism=self.parallelism,
            code=made.code,
            stages=tuple(s.id for s in keyed),
            restart=NoRestart(),
            operators={s.id: s.plan for s in keyed},
            **sink_plans(flow.writes),
            event_times={u: n.delay_us for u, n in made.event_times.items()},
        )

    def _planner(
        self, made: CompiledFlow, readers: Mapping[str, Rows], epoch_rows: int
    ) -> Planner:
        return Planner(
            readers=readers,
            clock=self.clock,
            admission=Admission(target_us=None, max_rows=epoch_rows),
            operators={
                s.id: tuple(made.event_times[t] for t in s.event_times)
                for s in made.stages
                if isinstance(s, KeyedStage)
            },
            sources=dict.fromkeys(made.event_times, ("rows",)),
            stops_at_end=True,
        )


def source(columns: str) -> RowSource:
    """Return the source of a flow."""
    return RowSource(schema_of(columns))


def second(number: float) -> datetime:
    """Return an instant, so many seconds after a round one."""
    return datetime.fromisoformat("2026-01-01T00:00:00+00:00") + timedelta(
        seconds=number
    )
