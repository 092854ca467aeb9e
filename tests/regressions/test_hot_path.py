"""What a review of the compiled loop, the tail and the order of rows found."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.unit.worker.tasks import GROUPS, KEYS, Tasks

from riverlock.core.hidden_columns import GROUP, SEQ
from riverlock.core.types import schema_of
from riverlock.operators.shipped import OperatorProgram
from riverlock.operators.task_input import keyed_input
from riverlock.program.process import Process
from riverlock.snapshot.format.state_files import read_table
from riverlock.snapshot.format.store_layout import RegionPaths
from riverlock.snapshot.retention.compaction import Compaction, compact
from riverlock.state.copy import working_copy
from riverlock.state.copy.lmdb import close_all
from riverlock.state.copy.redo import forget_recent
from riverlock.state.keys import key_group, owner_of
from riverlock.state.spec import Value
from riverlock.storage import LocalStorage
from riverlock.testing import harness


class Shared(Process):
    output = "seen string"
    number = Value(float, default=7.0, scope="group")
    items = Value(list[int], default=[], scope="group")

    def on_event(self, record: Any, ctx: Any) -> Iterator[Any]:
        yield (repr((self.number, self.items)),)
        self.number = record.v
        self.items = (1, 2)


def test_group_state_is_settled_after_each_record() -> None:
    outputs = []
    splits: list[list[list[int | None]]] = [[[1, None, 2]], [[1], [None], [2]]]
    for epochs in splits:
        h = harness(Shared(), key="k", input="k string, v bigint")
        for values in epochs:
            h.send(*({"k": "a", "v": v} for v in values))
        outputs.append(h.output)

    assert outputs[0] == outputs[1]


class Sums(Process):
    output = "k string, total long"
    total = Value("long", default=0)

    def on_event(self, record: Any, ctx: Any) -> Iterator[Any]:
        self.total += record.v
        yield ctx.key, self.total


@pytest.mark.parametrize("cut", range(1, 6))
def test_rows_of_one_position_keep_their_order_wherever_batches_end(cut: int) -> None:
    # Two map tasks; flat_map made four rows of the row at position 20.
    rows = [(9, 100), (9, 101), (0, 20), (1, 20), (2, 20), (3, 20)]
    program = OperatorProgram(
        uid="op",
        process=Sums(),
        keys=KEYS,
        input=schema_of("k string, v long"),
        outputs={},
    )
    batches = [
        pa.record_batch(
            {
                "k": pa.array(["a"] * len(part)),
                "v": pa.array([v for v, _ in part], pa.int64()),
                SEQ: pa.array([s for _, s in part], pa.int64()),
                GROUP: pa.array([3] * len(part), pa.int32()),
            }
        )
        for part in (rows[:cut], rows[cut:])
    ]

    data = keyed_input(pa.Table.from_batches(batches), program)

    found: list[Any] = list(data.records)
    assert [r.v for r in found] == [0, 1, 2, 3, 9, 9]


def test_a_store_that_begins_anew_finds_no_rows_of_the_last_one(
    store: LocalStorage, tmp_path: Path
) -> None:
    tasks = Tasks(store, tmp_path / "work", Sums(), Sums.output)
    for _ in range(3):
        tasks.run(("a", 1), ("b", 1))
    close_all()
    shutil.rmtree(tmp_path / "work")  # but this process remembers

    anew = Tasks(store, tmp_path / "work", Sums(), Sums.output, token="other")

    assert sorted(anew.run(("a", 1), ("b", 1))) == [("a", 1), ("b", 1)]


class Chooses(Process):
    output = "how string"

    def open(self) -> None:
        self.__dict__["on_event"] = lambda record, ctx: [("fast",)]

    def on_event(self, record: Any, ctx: Any) -> list[Any]:
        return [("slow",)]


def test_open_may_choose_what_handles_records() -> None:
    assert harness(Chooses(), key="k", input="k string").send({"k": "a"}) == [("fast",)]


def test_a_range_without_changes_is_not_rebuilt_after_a_compaction(
    store: LocalStorage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks = Tasks(store, tmp_path / "work", Sums(), Sums.output)
    names = [f"key {n}" for n in range(20)]
    here = [n for n in names if owner_of(key_group((n,), KEYS, GROUPS), 2, GROUPS) == 0]
    tasks.run(*((n, 1) for n in names))
    for _ in range(4):
        tasks.run(*((n, 1) for n in here))  # the other range rests
    tasks.files = (
        compact(
            store,
            RegionPaths("main"),
            Compaction(operator="op", files=tasks.files[:-1], drops_tombstones=True),
            now_us=0,
            pieces=[(0, GROUPS)],
            attempt="merged",
        )
        + tasks.files[-1:]
    )
    reads: list[str] = []

    def read(storage: Any, file: Any, groups: Any = None) -> Any:
        reads.append(file.path)
        return read_table(storage, file, groups)

    monkeypatch.setattr(working_copy, "read_table", read)
    forget_recent()

    tasks.run(*((n, 1) for n in names))

    assert reads == []
