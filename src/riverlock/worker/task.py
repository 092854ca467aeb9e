"""What runs inside a task: input in, one vote out.

A vote is a row of bytes. Errors that a retry cannot heal travel as votes too, whole, so
that Spark does not try four times and the driver can show them without Java frames.
Nothing here imports PySpark.
"""

from __future__ import annotations

import gc
import pickle
import time
import uuid
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from riverlock.connectors.base.stager import StagePoint, Stager
from riverlock.coordinator.votes import OperatorVote, Vote
from riverlock.core import faults
from riverlock.core.errors import (
    InternalError,
    RiverlockError,
    StateCorruptedError,
    StorageError,
)
from riverlock.core.garbage import without_gc
from riverlock.core.hidden_columns import GROUP, HIDDEN, SEQ
from riverlock.core.types import schema_of
from riverlock.core.values.known_types import known
from riverlock.operators.base import Work
from riverlock.operators.running import run_operator
from riverlock.operators.shipped import (
    DEAD,
    DEAD_SCHEMA,
    LATE_ROWS,
    MAIN,
    EpochInfo,
    OperatorProgram,
)
from riverlock.snapshot.format.state_files import encode_table, write_state_file
from riverlock.snapshot.format.store_layout import RegionPaths
from riverlock.state.columns.python_rows import rows_table, sequence
from riverlock.state.copy.memories import Memories
from riverlock.state.copy.private_folders import make_private
from riverlock.state.copy.working_copy import WorkingCopy
from riverlock.state.keys import group_range
from riverlock.worker.event_times import DeclaredTimes, greatest_times, partition_times

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from riverlock.operators.effects import Effects
    from riverlock.replay.one_key import OneKey
    from riverlock.snapshot.format.records import StateFile
    from riverlock.state.changelog import EntryLog
    from riverlock.state.copy.baseline import Baseline
    from riverlock.state.layout import StateLayout
    from riverlock.storage.base import Storage

__all__ = [
    "KeyedEpoch",
    "KeyedTask",
    "LocalProgram",
    "Outcome",
    "Place",
    "Split",
    "StageTask",
    "Targets",
    "decode_outcome",
]

# What user code makes of a batch, by output.
Split: TypeAlias = "Callable[[pa.RecordBatch], dict[str, pa.Table]]"
# Takes an output by its name.
Later: TypeAlias = "Callable[[str, pa.Table], object]"


@dataclass(frozen=True, kw_only=True)
class Targets:
    """Who gets the rows of an output."""

    sinks: dict[str, Stager] = field(default_factory=dict)
    # Whether a later stage of the same epoch reads them.
    is_staged: bool = False


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a task's files go."""

    storage: Storage
    region: str
    stage: str
    run: int
    token: str
    flow: str = ""  # its id

    def attempt(self, partition: int) -> str:
        """Return a name that no other attempt will ever have."""
        return f"{self.run:06d}-{self.stage}-{partition:05d}-{uuid.uuid4().hex[:12]}"

    def point(self, epoch: int, attempt: str) -> StagePoint:
        """Return where outputs are staged."""
        folder = f"{RegionPaths(self.region).staged}{epoch:012d}"
        return StagePoint(
            storage=self.storage,
            folder=folder,
            epoch=epoch,
            attempt=attempt,
            flow=self.flow,
            token=self.token,
            region=self.region,
        )


class Outcome(msgspec.Struct):
    """What comes back from a task: a vote or an error."""

    # Of the epoch that the task was told to run, so that the driver can make sure.
    seed: int
    vote: Vote | None = None
    error: bytes | None = None  # pickled; inside the trust boundary of the cluster


def decode_outcome(raw: bytes) -> Outcome:
    """Read what a task sent."""
    return msgspec.msgpack.decode(raw, type=known(Outcome))


def _outcome(run: Callable[[], Vote], seed: int) -> bytes:
    """Run a task; errors that a retry cannot heal become the outcome."""
    try:
        return msgspec.msgpack.encode(Outcome(seed=seed, vote=run()))
    except RiverlockError as error:
        if isinstance(error, StorageError) and error.retryable:
            raise
        packed = pickle.dumps(error)
        return msgspec.msgpack.encode(Outcome(seed=seed, error=packed))


@dataclass(frozen=True)
class LocalProgram:
    """A program that runs in the process that made it: nothing is pickled."""

    program: OperatorProgram

    @cached_property
    def layout(self) -> StateLayout:
        """How its state is stored."""
        return self.program.layout()


@lru_cache(maxsize=64)
def _program(blob: bytes) -> tuple[OperatorProgram, StateLayout]:
    """Unpickle a program once per worker, not once per epoch."""
    program: OperatorProgram = pickle.loads(blob)  # noqa: S301 - from our own driver
    # PySpark collects garbage after every task. What is loaded by now stays for good,
    # and need not be looked through each time.
    gc.freeze()
    return program, program.layout()


@dataclass(frozen=True, kw_only=True)
class StageTask:
    """A task without state: hands its rows to sinks and later stages, by output."""

    place: Place
    epoch: int
    seed: int
    targets: dict[str, Targets]
    # User code whose results and dead letters are staged, instead of the rows.
    split: Split | None = None
    # Whose watermarks the rows move; None: nobody asks, as no channel gets them.
    times: DeclaredTimes | None = None

    def __call__(self, batches: Iterable[pa.RecordBatch], partition: int) -> bytes:
        """Stage all rows."""
        return _outcome(lambda: self.vote(batches, partition), self.seed)

    def vote(self, batches: Iterable[pa.RecordBatch], partition: int) -> Vote:
        """Do the same and return the vote; errors are raised as they are."""
        read, found = 0, dict[str, list[pa.Table]]()
        for batch in batches:
            read += batch.num_rows
            for name, table in self._tables(batch).items():
                found.setdefault(name, []).append(table)
        made = {name: pa.concat_tables(tables) for name, tables in found.items()}
        return self.staged(made, read, partition)

    def staged(self, found: dict[str, pa.Table], read: int, partition: int) -> Vote:
        """Stage rows that are made already, by output; return the vote.

        Args:
            found: The rows.
            read: How many they were made of.
            partition: Which task this is.
        """
        attempt = self.place.attempt(partition)
        found = {name: table for name, table in found.items() if table.num_rows}
        staging = Staging(self.place.point(self.epoch, attempt))
        for name, table in found.items():
            if name in self.targets:
                staging.output(name, table, self.targets[name])
        dead = found[DEAD].num_rows if DEAD in found else 0
        main = found.get(MAIN) if self.times else None
        return Vote(
            partition=partition,
            attempt=attempt,
            rows=read,
            outputs=staging.outputs,
            output_rows=staging.rows,
            staged=staging.staged,
            max_times=greatest_times(main, self.times) if self.times else {},
            partition_times=partition_times(main, self.times) if self.times else {},
            metrics={"dead_letters": dead} if dead else {},
        )

    def _tables(self, batch: pa.RecordBatch) -> dict[str, pa.Table]:
        if self.split is None or not batch.num_rows:
            return {MAIN: pa.Table.from_batches([batch])}
        return self.split(batch)


class Staging:
    """Collects what a task stages for its vote."""

    def __init__(self, point: StagePoint, later: Later | None = None) -> None:
        """Begin with nothing staged; ``later`` takes what later stages read."""
        self._point, self._later = point, later
        self.outputs: dict[str, tuple[Any, ...]] = {}
        self.rows: dict[str, int] = {}
        self.staged: dict[str, tuple[Any, ...]] = {}

    def output(self, name: str, table: pa.Table, targets: Targets) -> None:
        """Stage one output for everyone who reads it."""
        if table.num_rows == 0:
            return
        if targets.is_staged and self._later is not None:
            self._later(name, table)
        elif targets.is_staged:
            # A name that no sink's file can have, whatever the sink is called.
            path = f"{self._point.folder}/next-{self._point.attempt}-{name}.parquet"
            # In one piece, which one task of the next stage reads: rows of one
            # position keep their order.
            body = encode_table(table, row_group_size=table.num_rows)
            self._point.storage.put(path, body)
            self.staged[name] = (path,)
        for sink, stager in targets.sinks.items():
            carried = getattr(stager, "carried", ())
            shown = [c for c in table.column_names if c not in HIDDEN or c in carried]
            self.outputs[sink] = tuple(stager.stage(table.select(shown), self._point))
            self.rows[sink] = table.num_rows
            faults.hit("P5")


@dataclass(frozen=True, kw_only=True)
class KeyedEpoch:
    """What a keyed task is told when its epoch begins, and not before."""

    info: EpochInfo
    base: Baseline


@dataclass(frozen=True, kw_only=True)
class KeyedTask:
    """A task that owns a range of key groups of one operator; for every epoch."""

    place: Place
    program: bytes | LocalProgram
    parallelism: int
    key_groups: int
    working_dir: str
    targets: dict[str, Targets]
    # Of a replay: the only key that is handled, and who looks on.
    only: OneKey | None = None
    watch: Callable[[OperatorProgram], OperatorProgram] | None = None
    # Takes the outputs that later stages read in this process; None: they are stored.
    later: Later | None = None

    def __call__(
        self, batches: Iterable[pa.RecordBatch], partition: int, begun: KeyedEpoch
    ) -> bytes:
        """Run the operator over its input and stage everything."""
        with without_gc():
            return _outcome(
                lambda: self.vote(batches, partition, begun), begun.info.seed
            )

    def vote(
        self, batches: Iterable[pa.RecordBatch], partition: int, begun: KeyedEpoch
    ) -> Vote:
        """Do the same and return the vote; errors are raised as they are.

        Raises:
            RiverlockError: What user code, state or storage says went wrong.
        """
        if isinstance(self.program, LocalProgram):
            program, layout = self.program.program, self.program.layout
        else:
            program, layout = _program(self.program)
        if self.watch is not None:
            program = self.watch(program)
        return _Turn(self, begun, partition, program, layout).run(batches)


@dataclass(frozen=True)
class _Turn:
    """One partition in one epoch."""

    task: KeyedTask
    begun: KeyedEpoch
    partition: int
    program: OperatorProgram
    layout: StateLayout

    def run(self, batches: Iterable[pa.RecordBatch]) -> Vote:
        task, uid = self.task, self.program.uid
        groups = group_range(self.partition, task.parallelism, task.key_groups)
        make_private(Path(task.working_dir))
        root = Path(task.working_dir) / task.place.region / uid
        copy = WorkingCopy(root, groups, task.place.token)
        found = [b for b in batches if b.num_rows]
        table = pa.Table.from_batches(found) if found else None
        if table is not None:
            _check_owned(table, groups, uid)
        if task.only is not None and table is not None:
            table = task.only.rows(table)
        with copy.in_use():
            try:
                return self._attempt(copy, table)
            except StateCorruptedError:
                # The copy is only a cache: throw it away, once, and start over.
                copy.throw_away()
                return self._attempt(copy, table)

    def _attempt(self, copy: WorkingCopy, table: pa.Table | None) -> Vote:
        clock = _Stopwatch()
        base = self.begun.base.within(copy.groups)
        with copy.reading(base, self.layout, self.task.place.storage) as reader:
            clock.lap("restore_s")
            only = self.task.only

            def prepared() -> None:
                clock.lap("prepare_s")
                faults.hit("P2")

            work = Work(
                program=self.program,
                layout=self.layout,
                reader=reader if only is None else only.reader(reader),
                info=self.begun.info,
                table=table,
                wanted=self.task.targets,
                memories=copy.memories if only is None else Memories(),
                is_first=self.partition == 0,
                on_prepared=prepared,
                on_handled=lambda: clock.lap("user_s"),
            )
            effects = run_operator(work)
            clock.lap("output_s")
        return self._vote(copy, effects, table, clock)

    def _vote(
        self,
        copy: WorkingCopy,
        effects: Effects,
        table: pa.Table | None,
        clock: _Stopwatch,
    ) -> Vote:
        place, targets = self.task.place, self.task.targets
        attempt = place.attempt(self.partition)
        files = self._state(copy, effects.changes, attempt)
        clock.lap("state_s")
        faults.hit("P4")
        point = place.point(self.begun.info.epoch, attempt)
        staging = Staging(point, self.task.later)
        for name, rows in effects.outputs.items():
            numbers = sequence(rows.num_rows, self.partition)
            staging.output(name, rows.append_column(SEQ, numbers), targets[name])
        if DEAD in targets and effects.dead:
            dead = rows_table(effects.dead, schema_of(DEAD_SCHEMA))
            staging.output(DEAD, dead, targets[DEAD])
        clock.lap("stage_s")
        operator = OperatorVote(
            files=files, timers=effects.timers, entries_delta=effects.changes.added
        )
        metrics = {**clock.laps, "dead_letters": len(effects.dead)}
        if effects.late:
            metrics[LATE_ROWS] = effects.late
        moved = {"files_read": copy.files_read, "groups_taken": copy.groups_taken}
        metrics |= {name: count for name, count in moved.items() if count}
        return Vote(
            partition=self.partition,
            attempt=attempt,
            operators={self.program.uid: operator},
            outputs=staging.outputs,
            output_rows=staging.rows,
            staged=staging.staged,
            max_times=greatest_times(table, DeclaredTimes.of(self.program)),
            partition_times=partition_times(table, DeclaredTimes.of(self.program)),
            rows=0 if table is None else table.num_rows,
            metrics=metrics,
        )

    def _state(
        self, copy: WorkingCopy, log: EntryLog, attempt: str
    ) -> tuple[StateFile, ...]:
        """Write the change file and its local redo; nothing if nothing changed."""
        epoch, place = self.begun.info.epoch, self.task.place
        if log.is_empty:
            return ()
        path = RegionPaths(place.region).state_file(self.program.uid, epoch, attempt)
        file = write_state_file(
            place.storage,
            path,
            log.table(),
            epochs=(epoch, epoch),
            groups=copy.groups,
        )
        copy.write_redo(path, log, self.layout)
        log.forget()
        return (file,)


def _check_owned(table: pa.Table, groups: tuple[int, int], uid: str) -> None:
    """Refuse rows of keys that another task has the state of.

    Raises:
        InternalError: An engine has brought some.
    """
    if GROUP not in table.column_names:
        return
    found = pc.min_max(table[GROUP]).as_py()
    low, high = found["min"], found["max"]
    if low is not None and not groups[0] <= low <= high < groups[1]:
        what = f"operator {uid!r} got rows of key groups {low} to {high} in the task of"
        raise InternalError(f"{what} {groups[0]} to {groups[1] - 1}")


class _Stopwatch:
    """Seconds since the last lap; monotonic."""

    def __init__(self) -> None:
        self.laps: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, name: str) -> None:
        now = time.perf_counter()
        self.laps[name] = now - self._last
        self._last = now
