"""A flow over given records, in one thread, without Spark and without a trace on disk.

The local engine runs the flow (``engines/local``): stages, tasks, coordinator and
snapshots are those of every run, only the store is in memory. Records take the place of
the sources, and rows that sinks would get are kept. So epoch boundaries can be chosen
at will, and the result must not depend on them.
"""

from __future__ import annotations

import copy
import shutil
import tempfile
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from riverlock.connectors.base.staged_rows import read_staged
from riverlock.connectors.channel.ends import ChannelSink
from riverlock.connectors.rows.reader import RowsReader
from riverlock.connectors.rows.source import Rows
from riverlock.coordinator.restart import NoRestart
from riverlock.core.clock import ManualClock
from riverlock.core.errors import InvalidConfigError, InvalidFlowError
from riverlock.core.keywords import told_keywords
from riverlock.core.suggestions import did_you_mean
from riverlock.core.types import schema_of
from riverlock.driver.intake.planner import Planner
from riverlock.driver.intake.turning import circles_of
from riverlock.driver.region_lives import RegionLives
from riverlock.driver.region_run import Run
from riverlock.driver.run_options import RunOptions
from riverlock.driver.runner import check
from riverlock.engines.local.engine import LocalEngine
from riverlock.flow.inside import program_of
from riverlock.program.graph import Read
from riverlock.program.regions import topology_of
from riverlock.sinks import memory
from riverlock.snapshot.catalog import Catalog
from riverlock.snapshot.format.records import Change
from riverlock.snapshot.format.requests import add_request
from riverlock.snapshot.format.stored_parameters import check_change
from riverlock.state.columns.python_rows import RowError, records, rows_table
from riverlock.state.copy.lmdb import close_below
from riverlock.storage.memory import MemoryStorage
from riverlock.testing.harness import Harness
from riverlock.testing.inputs import OneInput
from riverlock.testing.saved import Saved

if TYPE_CHECKING:
    from riverlock.connectors.base.committer import Committer, Owner
    from riverlock.connectors.base.sink import SinkUse
    from riverlock.connectors.base.source_reader import Reader
    from riverlock.coordinator.epoch import PlannedInputs
    from riverlock.driver.starting.loop_parts import LoopParts
    from riverlock.flow.flow import Flow
    from riverlock.program.graph import Write
    from riverlock.program.program import Program
    from riverlock.snapshot.format.records import Manifest, SinkOutput
    from riverlock.stages.compiled import CompiledFlow, KeyedStage
    from riverlock.storage.base import Storage

__all__ = ["LocalRun", "run_local"]

Row = tuple[Any, ...]
# More than a test has.
_ALL = 1 << 40


@told_keywords
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
        epoch_rows: Records per source and epoch; by default all in one epoch.
        clock: Processing time.

    Raises:
        InvalidFlowError: A step needs Spark, or a source's columns are not declared.
    """
    if not isinstance(inputs, Mapping):
        inputs = {_reads(program_of(flow))[0].uid: inputs}
    run = LocalRun(flow, clock or ManualClock(), has_ended=True)
    run._feed(inputs)
    run._drive(epoch_rows=epoch_rows)
    return run


@dataclass
class LocalRun:
    """A flow that is fed epoch by epoch; each is a life of the driver of its own.

    Every other life begins without working copies, so that state is used both as tasks
    have kept it and as it is stored.
    """

    flow: Flow
    clock: ManualClock
    # Whether no more records will come: what is bounded has the last watermark then.
    has_ended: bool = False
    _storage: MemoryStorage = field(default_factory=MemoryStorage)
    _since_us: int = 0
    _lives: int = 0

    def __post_init__(self) -> None:
        """Put lists in place of sources and sinks."""
        self._folder = tempfile.mkdtemp(prefix="riverlock-")
        weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        self._program = program = program_of(self.flow)
        self._given = {n.uid: _source(n) for n in _reads(program)}
        # Rows by sink and epoch: a commit may be repeated.
        self._sinks: dict[str, dict[int, list[Row]]] = {}
        self._tried = copy.copy(program)
        self._tried.writes = [
            w if _is_channel(w) else replace(w, sink=memory()) for w in program.writes
        ]
        self._options = RunOptions(
            available_now=True,
            epoch_target=None,
            max_rows_per_epoch=_ALL,
            restart=NoRestart(),
            retain_epochs=_ALL,
            working_dir=self._folder,
            clock=self.clock,
        )
        self._compiled: CompiledFlow | None = None

    def rows(self, sink: str | None = None) -> list[Row]:
        """Return what a sink received; without a uid, the only sink.

        Raises:
            InvalidConfigError: There is no such sink, or several and no uid.
        """
        known = [w.uid for w in self._program.writes if not _is_channel(w)]
        if sink is None and len(known) == 1:
            (sink,) = known
        if sink is None or sink not in known:
            raise InvalidConfigError(
                "rows()",
                expected=f"one of {', '.join(known) or 'no sink: the flow has none'}",
                found="no uid" if sink is None else repr(sink),
                hint="" if sink is None else did_you_mean(sink, known),
            )
        found = self._sinks.get(sink, {})
        return [row for _, rows in sorted(found.items()) for row in rows]

    def operator(self, uid: str) -> Harness:
        """Return a harness with the state of an operator and its timers.

        It is of its own: what is sent to it does not change the run.

        Raises:
            InvalidConfigError: There is no such operator.
        """
        stage = self._stage(uid)
        groups = self._program.key_groups
        made = Harness(stage.program, self.clock, OneInput(None), 0, groups)
        newest = Catalog(self._storage).newest()
        if newest is None or uid not in newest.operators:
            return made
        state = newest.operators[uid]
        saved = Saved(
            epoch=newest.epoch,
            now_us=newest.now_us,
            watermark_us=state.watermark_us,
            changes=tuple(self._storage.get(file.path) for file in state.files),
            parameters={n: p.in_force for n, p in state.parameters.items()},
        )
        found = made.restart(saved)
        found.late_rows = sum(_late_rows(m, uid) for m in self._manifests())
        return found

    def set(self, operator: str, /, **values: Any) -> None:
        """Change parameters of an operator from the next epoch.

        Raises:
            InvalidConfigError: There is no such operator or parameter, or a value is
                not of its kind.
        """
        self._stage(operator)
        known = {s.id: s.program.parameters for s in self._plan().keyed}
        change = check_change(known, Change(values={operator: values}))
        add_request(Catalog(self._storage), change, now_us=self.clock.now_us())

    def _stage(self, uid: str) -> KeyedStage:
        keyed = {s.id: s for s in self._plan().keyed}
        if uid not in keyed:
            raise InvalidConfigError(
                f"operator {uid!r}",
                expected=f"one of {', '.join(keyed) or 'none: the flow has none'}",
                found=uid,
            )
        return keyed[uid]

    def epoch(self, inputs: Mapping[str, Sequence[Any]]) -> None:
        """Run one epoch over the given records; if it fails, it has not happened.

        Raises:
            RiverlockError: What went wrong.
        """
        before = {uid: len(given.rows) for uid, given in self._given.items()}
        try:
            self._feed(inputs)
            self._drive(max_epochs=1)
        except Exception:
            for uid, size in before.items():
                del self._given[uid].rows[size:]
            raise

    def _plan(self) -> CompiledFlow:
        if self._compiled is None:
            (self._compiled,) = check(self._tried, _Engine(self, None))
        return self._compiled

    def _drive(
        self, *, epoch_rows: int | None = None, max_epochs: int | None = None
    ) -> None:
        """Run epochs: as many as that, or else until there is nothing to do."""
        self._lives += 1
        if self._lives % 2 == 0:
            # As on another machine: state comes from the files of the store.
            shutil.rmtree(self._folder, ignore_errors=True)
        options = replace(self._options, max_epochs=max_epochs)
        engine = _Engine(self, epoch_rows)
        with _Run(self, engine, options) as run:
            run.drive()

    def _feed(self, inputs: Mapping[str, Sequence[Any]]) -> None:
        for uid, rows in inputs.items():
            if uid not in self._given and not rows:
                continue
            if uid not in self._given:
                raise InvalidConfigError(
                    f"records of {uid!r}",
                    expected=f"a source: {', '.join(self._given)}",
                    found=repr(uid),
                )
            schema = self._given[uid].schema
            try:
                rows_table(list(rows), schema)
            except RowError as error:
                raise InvalidConfigError(
                    f"source {uid!r}",
                    expected=f"records of {schema.ddl}",
                    found=str(error),
                ) from error
            self._given[uid].rows.extend(rows)

    def _manifests(self) -> list[Manifest]:
        catalog = Catalog(self._storage)
        return [catalog.manifest(epoch) for epoch in catalog.epochs()]


def _reads(program: Program) -> list[Read]:
    """Return what is fed: all but loops, which feed themselves."""
    return [node for node in program.find(Read) if not node.is_loop]


def _is_channel(write: Write) -> bool:
    return isinstance(write.sink, ChannelSink)


def _source(node: Read) -> Rows:
    schema = node.source.schema
    if schema is None:
        raise InvalidFlowError(
            f"source {node.uid!r} in run_local",
            expected="declared columns",
            found=node.source.kind,
        )
    bounded = bool(getattr(node.source, "bounded", False))
    return Rows(schema=schema_of(schema), rows=[], bounded=bounded)


def _late_rows(manifest: Manifest, uid: str) -> int:
    stages: dict[str, Any] = manifest.metrics.get("stages", {})
    return int(stages.get(uid, {}).get("late_rows", 0))


class _Run(Run):
    """One life of the driver."""

    def __init__(self, local: LocalRun, engine: _Engine, options: RunOptions) -> None:
        flow = local._tried
        super().__init__(
            flow,
            local._storage,
            engine,
            options,
            lives=RegionLives(
                Catalog(local._storage), {flow.region: lambda: False}, local.clock
            ),
            circle=circles_of(topology_of(flow)).get(flow.region),
        )
        self._local = local

    def _planner(self, parts: LoopParts) -> Planner:
        planner = super()._planner(parts)
        if self._options.max_epochs is not None:
            given = {f.name: getattr(planner, f.name) for f in fields(planner)}
            planner = _EagerPlanner(**given)
        local = self._local
        local._since_us = local._since_us or local.clock.now_us()
        planner.since_us = local._since_us
        return planner

    def __exit__(self, *exc_info: object) -> None:
        super().__exit__(*exc_info)
        close_below(Path(self._local._folder))


class _EagerPlanner(Planner):
    """Plans an epoch whether or not there is anything to do."""

    def plan(
        self, parent: Manifest | None, *, is_asked: bool = False
    ) -> PlannedInputs | None:
        return super().plan(parent, is_asked=True)


class _Engine(LocalEngine):
    """The local engine, with lists for sources and sinks."""

    def __init__(self, local: LocalRun, epoch_rows: int | None) -> None:
        super().__init__(local._options)
        self._local, self._epoch_rows = local, epoch_rows

    def reader(self, node: Read, storage: Storage) -> Reader:
        if node.is_loop:
            return super().reader(node, storage)
        return _Reader(self._local, node.uid, self._epoch_rows)

    def committer(self, write: Write, use: SinkUse, storage: Storage) -> Committer:
        if _is_channel(write):
            return super().committer(write, use, storage)
        kept = self._local._sinks.setdefault(write.uid, {})
        return _Committer(kept, storage, use)


class _Reader(RowsReader):
    """Takes this many rows in each epoch."""

    def __init__(self, local: LocalRun, uid: str, epoch_rows: int | None) -> None:
        super().__init__(local._given[uid])
        self._local, self._epoch_rows = local, epoch_rows

    def advance(self, start: int, latest: int, max_rows: int) -> int:
        return super().advance(start, latest, self._epoch_rows or max_rows)

    def has_ended(self, start: int, latest: int) -> bool:
        return self._local.has_ended and super().has_ended(start, latest)


@dataclass(frozen=True)
class _Committer:
    """Keeps the rows of each epoch."""

    kept: dict[int, list[Row]]
    storage: Storage
    use: SinkUse
    guarantee: str = "none"

    def open(self, owner: Owner) -> None:
        pass

    def commit(self, epoch: int, output: SinkOutput) -> None:
        table = read_staged(self.storage, output)
        if output.replaces or (table is not None and self.use.replaces):
            self.kept.clear()
        if table is not None:
            self.kept[epoch] = [tuple(r) for r in records(table, self.use.schema)]
