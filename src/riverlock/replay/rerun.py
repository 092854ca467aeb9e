"""Runs decided epochs once more, in this process, and compares what comes out.

The engine reads the recorded input ranges and does the stateless work and the exchange,
as it did; the rows of each task are then brought here, and the same task code runs over
them with the recorded time, randomness and watermarks. The store is only read: whatever
is written goes to a temporary directory. Sinks are told nothing.
"""

from __future__ import annotations

import dataclasses
import tempfile
import uuid
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from riverlock.connectors.builtin_stagers import FileStager, TableStager
from riverlock.connectors.channel.stager import ChannelStager
from riverlock.coordinator.epoch import PlannedInputs
from riverlock.coordinator.instructions import RunStage
from riverlock.core.errors import (
    InvalidConfigError,
    SourceError,
)
from riverlock.driver.starting.adoption import adopted
from riverlock.driver.starting.source_readers import readers_of
from riverlock.operators.base import BuiltIn
from riverlock.program.regions import part_of, regions_of
from riverlock.replay.comparison import (
    Entries,
    OutputComparison,
    StateComparison,
    changed_entries,
    compare_output,
    compare_state,
    state_changes,
)
from riverlock.replay.key_steps import KeySteps
from riverlock.replay.one_key import OneKey
from riverlock.replay.report import EpochReplay, Replay
from riverlock.snapshot.catalog import Catalog
from riverlock.snapshot.format.records import InputRange, OperatorState, SinkOutput
from riverlock.snapshot.format.stored_parameters import parameters_of, replayed
from riverlock.snapshot.timeline import is_restored
from riverlock.stages.compiled import KeyedStage
from riverlock.stages.planning import compile_flow
from riverlock.stages.stage_tasks import StageTasks
from riverlock.state.copy.lmdb import close_below
from riverlock.storage.open import open_storage
from riverlock.storage.overlay import OverlayStorage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    import pyarrow as pa

    from riverlock.connectors.base.source_reader import Reader
    from riverlock.connectors.base.stager import Stager
    from riverlock.coordinator.votes import Vote
    from riverlock.driver.engine import Engine
    from riverlock.program.program import Program
    from riverlock.replay.stepping import Stepper
    from riverlock.snapshot.format.records import Manifest
    from riverlock.snapshot.format.stored_parameters import Parameters
    from riverlock.stages.compiled import CompiledFlow, WriteStage
    from riverlock.worker.task import Targets

__all__ = ["replay"]


def replay(  # noqa: PLR0913 - keywords, each with a default
    flow: Program,
    store: str,
    engine: Engine,
    first: int,
    last: int | None = None,
    *,
    region: str | None = None,
    operator: str | None = None,
    key: object = None,
    stepper: Stepper | None = None,
    on_epoch: Callable[[EpochReplay], object] | None = None,
) -> Replay:
    """Run epochs again and compare; see ``Flow.replay``.

    The caller opens and closes the engine.
    """
    catalog = Catalog(open_storage(store))
    found = catalog.flow()
    if found.name != flow.name:
        raise InvalidConfigError(
            f"store {store}",
            expected=f"the store of flow {flow.name!r}",
            found=f"flow {found.name!r}",
        )
    flow = _part(flow, region)
    catalog = catalog.of(flow.region)
    manifests = _manifests(catalog, first, first if last is None else last)
    with ExitStack() as stack:
        readers = readers_of(flow, engine, catalog.storage, stack)
        compiled = compile_flow(flow, readers, engine.analysis(flow, readers))
        scratch = stack.enter_context(tempfile.TemporaryDirectory(prefix="riverlock-"))
        stack.callback(close_below, Path(scratch))
        focus = _focus(compiled, operator, key)
        if stepper is not None:
            chosen = _chosen(compiled, operator)
            stepper.check(chosen.id, chosen.program.process)
        run = _Replayer(
            engine=engine,
            compiled=compiled,
            readers=readers,
            catalog=catalog,
            scratch=Path(scratch),
            focus=focus,
            stepper=stepper,
        )
        return run.run(*manifests, on_epoch=on_epoch or (lambda _: None))


def _part(flow: Program, region: str | None) -> Program:
    """Return the program of the region whose epochs are run.

    Raises:
        InvalidConfigError: There are several regions, and none is named.
        InvalidFlowError: There is no such region.
    """
    known = regions_of(flow)
    if region is None and len(known) > 1:
        raise InvalidConfigError(
            "replay",
            expected="the region whose epochs are meant",
            found=f"none, of regions {', '.join(known)}",
            hint="name it: region=, or --region",
        )
    return part_of(flow, region or known[0])


def _manifests(
    catalog: Catalog, first: int, last: int
) -> tuple[Manifest | None, list[Manifest]]:
    """Return the snapshot to begin from, and the epochs.

    Raises:
        InvalidConfigError: They are in the wrong order, or one of them went back.
        SnapshotNotFoundError: One of them is not retained.
    """
    if last < first:
        raise InvalidConfigError(
            f"epochs {first}..{last}",
            expected="the first not after the last",
            found=f"{first} after {last}",
        )
    kept = catalog.epochs()
    wanted = range(first - 1 if first > 0 else 0, last + 1)
    missing = [epoch for epoch in wanted if epoch not in kept]
    if missing:
        what = f"epoch {missing[0]}"
        if missing[0] == first - 1:
            what += f", from whose snapshot epoch {first} would be replayed,"
        raise catalog.no_epoch(what)
    found = [catalog.manifest(epoch) for epoch in wanted]
    for manifest in found:
        if manifest.epoch >= first and is_restored(manifest):
            raise InvalidConfigError(
                f"epochs {first}..{last}",
                expected="epochs that read input, each from the state before it",
                found=f"epoch {manifest.epoch}, which went back to {manifest.parent}",
                hint="replay what is before it, or what is after it, by itself",
            )
    return (None, found) if first == 0 else (found[0], found[1:])


def _chosen(compiled: CompiledFlow, operator: str | None) -> KeyedStage:
    """Return the operator that the user means.

    Raises:
        InvalidConfigError: There is no such one, or it is not clear which.
    """
    keyed = {s.id: s for s in compiled.keyed}
    if operator is None and len(keyed) == 1:
        return next(iter(keyed.values()))
    if operator in keyed:
        return keyed[operator]
    raise InvalidConfigError(
        "operator" if operator is None else f"operator {operator!r}",
        expected=f"one of {', '.join(keyed) or 'none: the flow has no operators'}",
        found="none given" if operator is None else operator,
        hint="name it with --operator",
    )


def _focus(
    compiled: CompiledFlow, operator: str | None, key: object
) -> tuple[str, OneKey] | None:
    if key is None:
        return None
    stage = _chosen(compiled, operator)
    program = stage.program
    if isinstance(program.process, BuiltIn) and not program.process.is_by_key:
        raise InvalidConfigError(
            f"key of operator {stage.id!r}",
            expected="an operator that handles keys one by one",
            found="an aggregate over windows, which handles all at once",
            hint="replay it without a key",
        )
    values = list(key) if isinstance(key, list | tuple) else [key]
    groups = compiled.flow.key_groups
    return stage.id, OneKey.of(program.keys, values, groups)


@dataclass(kw_only=True)
class _Replayer:
    """The epochs of a range, one after the other, each from what the last one left."""

    engine: Engine
    compiled: CompiledFlow
    readers: Mapping[str, Reader]
    catalog: Catalog
    scratch: Path
    focus: tuple[str, OneKey] | None
    stepper: Stepper | None
    _token: str = field(default_factory=lambda: uuid.uuid4().hex)
    # What the epochs so far left of all entries they touched, by operator.
    _recorded: dict[str, Entries] = field(default_factory=dict)
    _replayed: dict[str, Entries] = field(default_factory=dict)
    _key_rows: int = 0
    _steps: KeySteps = field(default_factory=KeySteps)

    def run(
        self,
        parent: Manifest | None,
        epochs: Sequence[Manifest],
        *,
        on_epoch: Callable[[EpochReplay], object],
    ) -> Replay:
        if parent is not None:
            catalog = dataclasses.replace(self.catalog, storage=self._storage)
            parent = adopted(catalog, self.compiled, parent, self._token)
        done = []
        for original in map(self._as_named_now, epochs):
            try:
                found, parent = self._epoch(original, parent)
            except SourceError as error:
                raise SourceError(
                    error.source,
                    what=f"epoch {original.epoch} cannot be replayed: {error.what}",
                    hint="a replay needs the input of the epoch, as it was",
                ) from error
            done.append(found)
            on_epoch(found)
        uids = dict.fromkeys([*self._recorded, *self._replayed])
        changes = [
            change
            for uid in uids
            for change in state_changes(
                uid, self._recorded.get(uid, {}), self._replayed.get(uid, {})
            )
        ]
        return Replay(
            epochs=tuple(done),
            recorded_code=tuple(dict.fromkeys(m.code for m in epochs)),
            code=self.compiled.code,
            changes=tuple(changes),
            key_rows=None if self.focus is None else self._key_rows,
            steps=tuple(self._steps.steps),
        )

    def _as_named_now(self, original: Manifest) -> Manifest:
        """Return an epoch with the uids that operators have by now."""
        names = self.compiled.flow.renames
        operators = {names.get(u, u): s for u, s in original.operators.items()}
        return msgspec.structs.replace(original, operators=operators)

    @property
    def _storage(self) -> OverlayStorage:
        top = open_storage(str(self.scratch / "store"))
        return OverlayStorage(below=self.catalog.storage, top=top)

    def _epoch(
        self, original: Manifest, parent: Manifest | None
    ) -> tuple[EpochReplay, Manifest]:
        tasks = self._tasks(original)
        deployed = self.engine.deploy(tasks, self.readers)
        planned = self._planned(original, parent)
        votes: dict[str, tuple[Vote, ...]] = {}
        try:
            for stage in self.compiled.stages:
                order = RunStage(
                    region=self.catalog.region,
                    epoch=original.epoch,
                    turn=0,
                    stage=stage.id,
                    planned=planned,
                    earlier=dict(votes),
                    parallelism=original.parallelism,
                )
                rows = deployed.delivered(order, parent)
                votes[stage.id] = self._stage(tasks, stage, order, parent, rows)
                if self.focus is not None and stage.id == self.focus[0]:
                    break  # what follows would see one key of many
        finally:
            deployed.close()
        after = self._after(original, parent, votes)
        return self._compared(original, after, votes), after

    def _tasks(self, original: Manifest) -> StageTasks:
        return StageTasks(
            compiled=self.compiled,
            storage=self._storage,
            region=self.catalog.region,
            run=original.run,
            token=self._token,
            flow=original.flow,
            parallelism=original.parallelism,
            working_dir=str(self.scratch / "working"),
        )

    def _planned(self, original: Manifest, parent: Manifest | None) -> PlannedInputs:
        nothing = {uid: r.initial() for uid, r in self.readers.items()}
        inputs = {
            uid: original.inputs.get(uid, InputRange(start=at, end=at))
            for uid, at in nothing.items()
        }
        return PlannedInputs(
            inputs=inputs,
            # For operators that the epoch did not have.
            watermarks={} if parent is None else parent.watermarks,
            now_us=original.now_us,
            seed=original.seed,
            started_us=original.started_us,
            recorded={u: s.watermark_us for u, s in original.operators.items()},
            parameters=self._parameters(original),
        )

    def _parameters(self, original: Manifest) -> Parameters:
        """Return what was in force, also where the code has another default by now."""
        recorded = parameters_of(original.operators)
        return {
            s.id: replayed(s.program.parameters, recorded.get(s.id, {}))
            for s in self.compiled.keyed
        }

    def _stage(
        self,
        tasks: StageTasks,
        stage: KeyedStage | WriteStage,
        order: RunStage,
        parent: Manifest | None,
        rows: Mapping[int, list[pa.RecordBatch]],
    ) -> tuple[Vote, ...]:
        if not isinstance(stage, KeyedStage):
            staging = tasks.write(stage, order)
            targets = {n: self._quiet(t) for n, t in stage.targets.items()}
            quiet = dataclasses.replace(staging, targets=targets)
            return tuple(quiet.vote(rows[p], p) for p in sorted(rows))
        only = self.focus[1] if self.focus and self.focus[0] == stage.id else None
        if only is not None:
            self._key_rows += sum(map(only.number_in, rows.values()))
        task = dataclasses.replace(
            tasks.keyed(stage),
            targets={n: self._quiet(t) for n, t in stage.targets.items()},
            only=only,
            watch=None if only is None else self._steps.watch,
        )
        begun = tasks.begun(stage, order, parent)

        def run() -> tuple[Vote, ...]:
            return tuple(
                task.vote(rows.get(p, []), p, begun) for p in range(tasks.parallelism)
            )

        return run() if self.stepper is None else self.stepper.run(run)

    def _quiet(self, targets: Targets) -> Targets:
        """Return targets that stage in our own place, whatever the sink is."""
        sinks = {uid: self._stager(uid, s) for uid, s in targets.sinks.items()}
        return dataclasses.replace(targets, sinks=sinks)

    def _stager(self, uid: str, stager: Stager) -> Stager:
        if isinstance(stager, FileStager):
            return dataclasses.replace(stager, path=str(self.scratch / "sinks" / uid))
        is_ours = isinstance(stager, TableStager | ChannelStager)
        return stager if is_ours else TableStager(sink=uid)

    def _after(
        self,
        original: Manifest,
        parent: Manifest | None,
        votes: Mapping[str, Iterable[Vote]],
    ) -> Manifest:
        """Return what the epoch would have decided, as far as the next one needs it."""
        before = {} if parent is None else parent.operators
        operators = dict(before)
        for stage in self.compiled.keyed:
            if stage.id not in votes:
                continue
            old, plan = before.get(stage.id), stage.plan
            files = [f for v in votes[stage.id] for f in v.operators[stage.id].files]
            known = original.operators.get(stage.id)
            operators[stage.id] = OperatorState(
                keys=plan.keys,
                variables=dict(plan.variables),
                files=(*(() if old is None else old.files), *files),
                watermark_us=None if known is None else known.watermark_us,
                windows=plan.windows,
            )
        history = () if parent is None else parent.history
        if not history or history[-1][1] != self._token:
            history = (*history, (original.epoch, self._token))
        return msgspec.structs.replace(original, operators=operators, history=history)

    def _compared(
        self,
        original: Manifest,
        after: Manifest,
        votes: Mapping[str, Sequence[Vote]],
    ) -> EpochReplay:
        ran = [s.id for s in self.compiled.stages if s.id in votes]
        keyed = [s.id for s in self.compiled.keyed]
        mine = [uid for uid in keyed if uid in votes]
        gone = [u for u in original.operators if u not in keyed and not self.focus]
        return EpochReplay(
            epoch=original.epoch,
            rows=sum(v.rows for stage in ran for v in votes[stage]),
            states=tuple(self._state(u, original, after) for u in (*mine, *gone)),
            outputs=() if self.focus else tuple(self._outputs(original, votes)),
        )

    def _state(self, uid: str, original: Manifest, after: Manifest) -> StateComparison:
        epoch, storage = original.epoch, self._storage
        only = self.focus[1] if self.focus and self.focus[0] == uid else None
        before = changed_entries(storage, original.operators.get(uid), epoch, only)
        now: Entries = {}
        if uid in after.operators:
            now = changed_entries(storage, after.operators[uid], epoch, only)
        self._recorded.setdefault(uid, {}).update(before)
        self._replayed.setdefault(uid, {}).update(now)
        return compare_state(uid, before, now)

    def _outputs(
        self, original: Manifest, votes: Mapping[str, Sequence[Vote]]
    ) -> Iterable[OutputComparison]:
        every = [v for found in votes.values() for v in found]
        kinds = {w.uid: w.sink.kind for w in self.compiled.flow.writes}
        for sink in dict.fromkeys([*kinds, *original.outputs]):
            now = SinkOutput(
                kind=kinds.get(sink, "none"),
                tokens=tuple(t for v in every for t in v.outputs.get(sink, ())),
                rows=sum(v.output_rows.get(sink, 0) for v in every),
            )
            recorded = original.outputs.get(sink)
            yield compare_output(sink, recorded, now, self._storage, original.epoch)
