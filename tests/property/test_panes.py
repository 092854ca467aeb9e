"""Panes that workers remember: results are those of a process that remembers none."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pyspark import cloudpickle
from tests.property import test_windows as windows
from tests.property.test_working_copy import World
from tests.unit.worker.tasks import RowStager, Tasks

from riverlock.core.hidden_columns import TIME
from riverlock.core.types import Schema, Type, schema_of
from riverlock.operators.aggregates.partial import Merge, PartialAggregate
from riverlock.operators.base import Work
from riverlock.operators.running import run_operator
from riverlock.operators.shipped import MAIN, UPDATES, EpochInfo, OperatorProgram
from riverlock.operators.windows import panes
from riverlock.operators.windows.window_aggregate import WindowAggregate
from riverlock.program.windows import TimeWindows
from riverlock.state.copy import layers, tail
from riverlock.state.copy.memory import MemoryStore
from riverlock.state.store import Changes, Version
from riverlock.storage import LocalStorage
from riverlock.worker.task import KeyedEpoch, KeyedTask, Targets

DOUBLE = Type("double")
AGGREGATES = {
    **windows.AGGREGATES,
    "s": PartialAggregate(
        type=DOUBLE, merges=(Merge(columns={"s": DOUBLE}, how="sum"),), result="same"
    ),
}
# In which order they are added up can be seen.
FLOATS = [0.1, 1e16, 3.3, -1e16, 0.7]
# A key, and how long after the earliest record of its epoch one happened.
# Of many keys, so that they come and go.
KEYS = st.sampled_from([*"abcdefghijklmnopqrstuvwxyz", "x" * 300])
RECORDS = st.tuples(KEYS, st.integers(0, 40))
EPOCH = st.tuples(st.just("epoch"), st.lists(RECORDS, min_size=1, max_size=6))
STEPS = st.lists(
    EPOCH
    | EPOCH
    | EPOCH
    | st.tuples(
        st.sampled_from(
            ["other worker", "other worker", "lose", "damage", "back", "compact"]
        ),
        st.integers(0, 100),
    ),
    min_size=4,
    max_size=20,
)
WINDOWS = st.builds(
    TimeWindows, size_us=st.sampled_from([20, 30, 45]), slide_us=st.just(10)
)


@dataclass
class WindowTasks(Tasks):
    """Tasks that are told of event time."""

    previous: int | None = None
    watermark: int | None = None

    def operator(self) -> OperatorProgram:
        process = self.process
        assert isinstance(process, WindowAggregate)
        output = schema_of(process.output)
        return OperatorProgram(
            uid="op",
            process=process,
            keys=process.state_keys(windows.KEYS),
            input=Schema(windows.KEYS.fields),
            outputs={MAIN: output, UPDATES: output},
        )

    def program(self) -> bytes:
        dumps: Any = cloudpickle.dumps
        blob: bytes = dumps(self.operator())
        return blob

    def task(self) -> KeyedTask:
        targets = {n: Targets(sinks={n: RowStager()}) for n in (MAIN, UPDATES)}
        return replace(super().task(), key_groups=windows.GROUPS, targets=targets)

    def info(self) -> EpochInfo:
        return EpochInfo(
            epoch=self.epoch + 1,
            now_us=0,
            seed=0,
            watermark_us=self.watermark,
            previous_us=self.previous,
        )

    def begun(self) -> KeyedEpoch:
        return replace(super().begun(), info=self.info())

    def batches(self, rows: list[Any], partition: int) -> list[Any]:
        assert partition == 0
        found: list[Any] = self.table(rows).to_batches()
        return found

    def table(self, rows: list[tuple[str, int]]) -> pa.Table:
        assert isinstance(self.process, WindowAggregate)
        records: list[windows.Record] = [
            (k, 8 * self.epoch + t, "pqr"[t % 3]) for k, t in rows
        ]
        table = windows.partial_rows(records, self.process.window)
        floats = [FLOATS[n % len(FLOATS)] for n in range(table.num_rows)]
        return table.append_column("s", pa.array(floats))

    def advance(self, rows: list[tuple[str, int]]) -> None:
        """Move the watermark as the records say that came last."""
        newest = max(8 * (self.epoch - 1) + t for _, t in rows) - windows.DELAY
        self.previous = self.watermark
        self.watermark = max(newest, self.watermark or newest)


class WindowWorld(World):
    """The tasks, and beside them the same operator over a store without any memory."""

    def __init__(self, place: Path, window: TimeWindows, lateness: int) -> None:
        super().__init__(place)
        aggregate = WindowAggregate(AGGREGATES, window, lateness)
        process = aggregate.bound(windows.KEYS, windows.KEYS)
        self.tasks = WindowTasks(
            LocalStorage(place / "store"), place / "work", process, "", parallelism=1
        )
        self.totals = {"entries": {}}

    def epoch(self, rows: list[tuple[str, int]]) -> None:
        assert isinstance(self.tasks, WindowTasks)
        expected = self.expected(self.tasks, rows)

        self.tasks.run(*rows)

        found = self.tasks.votes[0].outputs
        for name, table in expected.items():
            # The same bits in the same order.
            assert list(map(repr, found.get(name, ()))) == list(map(repr, table))
        self.tasks.advance(rows)
        self.moments.append((replace(self.tasks), dict(self.totals)))

    def expected(self, tasks: WindowTasks, rows: list[tuple[str, int]]) -> Any:
        """Return what an epoch gives, from what is stored alone."""
        store, program = MemoryStore(), tasks.operator()
        version = Version(tasks.epoch, "t", "s")
        store.apply(Changes(self.totals["entries"], [], [], []), version)
        table = tasks.table(rows)
        work = Work(
            program=program,
            layout=program.layout(),
            reader=store,
            info=tasks.info(),
            table=table,
            wanted=program.outputs,
        )
        effects = run_operator(work)
        outputs = {}
        for name in program.outputs:
            visible = effects.outputs[name].drop_columns([TIME])
            mine = [tuple(row.values()) for row in visible.to_pylist()]
            # As they come back from a task.
            outputs[name] = msgspec.msgpack.decode(msgspec.msgpack.encode(mine))
        store.apply(effects.changes.redo().changes(), version)
        self.totals = {"entries": dict(store.scan(b""))}
        return outputs


@pytest.fixture(autouse=True)
def small_memories(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make everything as frequent as epochs."""
    monkeypatch.setattr(tail, "_MAX_ORDERED", 12)
    monkeypatch.setattr(tail, "_MAX_ROWS", 12)
    monkeypatch.setattr(tail, "_MAX_FILES", 5)
    monkeypatch.setattr(layers, "_MAX_LAYERS", 2)
    monkeypatch.setattr(panes, "_FEW_KEYS", 1)


# Every pane of a window is touched in every epoch.
EVERYWHERE = ("epoch", [("a", 0), ("b", 8), ("a", 16), ("b", 24), ("a", 32)])


@settings(max_examples=30)
@given(WINDOWS, st.sampled_from([0, 25]), st.sampled_from([300, 1 << 20]), STEPS)
@example(
    # One worker remembers; meanwhile another one writes all to LMDB, and goes on.
    window=TimeWindows(size_us=45, slide_us=10),
    lateness=25,
    size=1 << 20,
    steps=[
        *[*[EVERYWHERE] * 4, ("other worker", 0)],
        *[*[EVERYWHERE] * 5, ("other worker", 0), ("other worker", 0)],
    ]
    * 3,
)
def test_remembered_panes_are_those_of_the_store(
    window: TimeWindows, lateness: int, size: int, steps: list[Any]
) -> None:
    with tempfile.TemporaryDirectory() as place, pytest.MonkeyPatch.context() as patch:
        patch.setattr(panes, "_MAX_BYTES", size)
        WindowWorld(Path(place), window, lateness).play(steps)
