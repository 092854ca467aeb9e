"""A working copy is a cache: whatever happens to it, results stay the same."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.unit.worker.tasks import GROUPS, Tasks

from riverlock.core.errors import SnapshotCorruptedError, UserCodeError
from riverlock.core.times import seconds
from riverlock.program.process import Process
from riverlock.snapshot.format.state_files import read_table
from riverlock.snapshot.format.store_layout import RegionPaths
from riverlock.snapshot.retention.compaction import Compaction, compact
from riverlock.state.copy import working_copy
from riverlock.state.copy.lmdb import LmdbStore
from riverlock.state.copy.redo import forget_recent
from riverlock.state.spec import List, Map, Value
from riverlock.storage import LocalStorage

T = datetime(2024, 1, 1, tzinfo=UTC)
NAMES = [f"key {i}" for i in range(12)]


class Total(Process):
    output = "k string, total long, items array<long>"
    total = Value("long", default=0)
    items = List("long")
    seen = Map("string", "long")

    def on_event(self, record: Any, ctx: Any) -> Iterator[Any]:
        if record.v == 0:
            del self.total
            self.items.clear()
            self.seen.clear()
            return
        self.total += record.v
        self.items.append(record.v)
        self.seen[str(record.v)] = record.v
        ctx.set_timer(T + seconds(record.v))
        yield ctx.key, self.total, self.items


class Renamed(Total):
    extra = Value("string", default="new")
    first = Value("long", default=0)


@pytest.fixture
def tasks(store: LocalStorage, tmp_path: Path) -> Tasks:
    return Tasks(store, tmp_path / "work", Total(), Total.output)


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Which state files were read back from the store."""
    found: list[str] = []
    real = read_table

    def read(storage: Any, file: Any, groups: Any = None) -> Any:
        found.append(file.path)
        return real(storage, file, groups)

    monkeypatch.setattr(working_copy, "read_table", read)
    return found


def all_rows(v: int) -> list[tuple[str, int]]:
    return [(k, v) for k in NAMES]


def check(tasks: Tasks, *expected: int) -> None:
    """The next epoch must see exactly what was sent before it."""
    rows = tasks.run(*all_rows(100))

    total = sum(expected) + 100
    assert sorted(rows) == sorted((k, total, [*expected, 100]) for k in NAMES)
    assert {k: d["total"] for k, d in tasks.truth().items()} == dict.fromkeys(
        NAMES, total
    )


def test_copy_catches_up_from_its_redo_without_reading_the_store(
    tasks: Tasks, reads: list[str]
) -> None:
    for v in (1, 2, 3):
        tasks.run(*all_rows(v))

    check(tasks, 1, 2, 3)
    assert reads == []


def test_copy_that_lost_its_redo_catches_up_from_the_newest_file(
    tasks: Tasks, reads: list[str]
) -> None:
    tasks.run(*all_rows(1))
    tasks.run(*all_rows(2))
    for redo in tasks.working_dir.rglob("*.redo"):
        if redo.is_file():
            redo.unlink()
    forget_recent()

    check(tasks, 1, 2)
    newest = [f.path for f in tasks.files if f.first_epoch == 2]
    assert sorted(reads) == sorted(newest)


def test_redo_that_was_altered_is_not_believed(tasks: Tasks, reads: list[str]) -> None:
    tasks.run(*all_rows(1))
    for redo in tasks.working_dir.rglob("*.redo"):
        if redo.is_file():
            data = bytearray(redo.read_bytes())
            data[-3] ^= 1
            redo.write_bytes(data)
    forget_recent()

    check(tasks, 1)
    assert len(reads) == 2


def test_copy_of_an_epoch_that_was_not_decided_holds_nothing_of_it(
    tasks: Tasks,
) -> None:
    tasks.run(*all_rows(1))

    for _ in range(3):
        tasks.attempt(all_rows(50))

    check(tasks, 1)


def test_copy_on_another_machine_is_rebuilt(tasks: Tasks, tmp_path: Path) -> None:
    for v in (1, 2, 3):
        tasks.run(*all_rows(v))
    tasks.working_dir = tmp_path / "elsewhere"

    check(tasks, 1, 2, 3)


def test_copy_that_slept_for_some_epochs_catches_up(
    tasks: Tasks, tmp_path: Path, reads: list[str]
) -> None:
    home, away = tasks.working_dir, tmp_path / "away"
    for v, where in ((1, home), (2, away), (3, away), (4, away)):
        tasks.working_dir = where
        tasks.run(*all_rows(v))
    tasks.working_dir = home
    reads.clear()

    check(tasks, 1, 2, 3, 4)
    # Epoch 1 is in the redo at home; 2 to 4 come from the store.
    assert len(reads) == 6


@pytest.mark.parametrize("parallelism", [1, 3, 16])
def test_copies_follow_another_parallelism(tasks: Tasks, parallelism: int) -> None:
    tasks.run(*all_rows(1))
    tasks.run(*all_rows(2))

    other = tasks.restarted(parallelism=parallelism)
    other.run(*all_rows(3))
    back = other.restarted(parallelism=2)

    check(back, 1, 2, 3)


def test_copy_of_another_timeline_is_thrown_away(tasks: Tasks) -> None:
    tasks.run(*all_rows(1))
    other = tasks.restarted()
    tasks.run(*all_rows(50))  # epoch 2 of the first run ...
    tasks.run(*all_rows(60))
    other.run(*all_rows(2))  # ... and of a run that began from a copy of the store
    other.run(*all_rows(3))

    check(other, 1, 2, 3)


def test_copy_of_another_schema_is_rebuilt(tasks: Tasks) -> None:
    tasks.run(*all_rows(1))
    tasks.run(*all_rows(2))

    changed = tasks.restarted(process=Renamed())

    check(changed, 1, 2)
    check(changed.restarted(process=Total()), 1, 2, 100)


@pytest.mark.parametrize("how", ["truncate", "garbage", "lose", "flip", "seal"])
def test_copy_that_was_damaged_is_rebuilt(tasks: Tasks, how: str) -> None:
    tasks.run(*all_rows(1))
    tasks.run(*all_rows(2))
    assert len(tasks.copies()) == 2
    for copy in tasks.copies():
        _damage(copy, how)

    check(tasks, 1, 2)


def _damage(copy: Path, how: str) -> None:
    LmdbStore(copy).close()
    data = copy / "data.mdb"
    match how:
        case "truncate":
            os.truncate(data, 4096)
        case "garbage":
            data.write_bytes(os.urandom(data.stat().st_size))
        case "lose":
            data.unlink()
        case "flip":
            # Inside the stored values: the checksum of each is ours.
            raw = data.read_bytes()
            data.write_bytes(
                raw.replace(b"\x94\x01", b"\x94\x07").replace(b"\x91\x01", b"\x91\x07")
            )
        case _:
            (copy / "seal.json").unlink()


def test_lost_state_file_is_told_and_nothing_goes_on(
    tasks: Tasks, tmp_path: Path
) -> None:
    tasks.run(*all_rows(1))
    tasks.run(*all_rows(2))
    tasks.working_dir = tmp_path / "elsewhere"
    tasks.storage.delete(tasks.files[0].path)

    with pytest.raises(SnapshotCorruptedError, match="no such file"):
        tasks.run(*all_rows(3))


def test_copy_behind_a_compaction_that_dropped_everything_is_rebuilt(
    tasks: Tasks, tmp_path: Path
) -> None:
    home = tasks.working_dir
    tasks.run(*all_rows(1))
    tasks.run()  # the copies at home have now applied epoch 1
    tasks.working_dir = tmp_path / "away"
    tasks.run(*all_rows(0))
    merged = compact(
        tasks.storage,
        RegionPaths("main"),
        Compaction(operator="op", files=tasks.files, drops_tombstones=True),
        now_us=0,
        pieces=[(0, GROUPS)],
        attempt="merged",
    )
    tasks.files = merged
    tasks.working_dir = home

    check(tasks)


def test_mark_of_a_crashed_worker_of_this_run_throws_the_copy_away(
    tasks: Tasks, reads: list[str]
) -> None:
    tasks.run(*all_rows(1))
    tasks.run(*all_rows(2))
    pid = _dead_pid()
    busy = list((tasks.working_dir / "main" / "op").glob("*.busy"))
    assert all(list(b.iterdir()) == [] for b in busy)
    (busy[0] / f"{pid}-{tasks.token}").touch()
    (busy[1] / f"{pid}-an earlier run").touch()

    check(tasks, 1, 2)
    # Only one of the two copies was rebuilt: from the store, but for its last redo.
    assert len(reads) == 1
    assert all(list(b.iterdir()) == [] for b in busy)


def _dead_pid() -> int:
    child = subprocess.Popen([sys.executable, "-c", "pass"])
    child.wait()
    return child.pid


def test_concurrent_attempts_on_one_machine_do_not_disturb_each_other(
    tasks: Tasks, tmp_path: Path
) -> None:
    for v in (1, 2, 3):
        tasks.run(*all_rows(v))
    tasks.working_dir = tmp_path / "shared"
    task = tasks.task()
    children = []
    for _ in range(6):
        pid = os.fork()
        if pid == 0:
            ok = False
            try:
                rows = [
                    row
                    for p in range(2)
                    for row in _staged(
                        task(tasks.batches(all_rows(9), p), p, tasks.begun())
                    )
                ]
                ok = sorted(rows) == sorted((k, 15, [1, 2, 3, 9]) for k in NAMES)
            finally:
                os._exit(0 if ok else 1)
        children.append(pid)

    assert [os.waitpid(pid, 0)[1] for pid in children] == [0] * 6
    check(tasks, 1, 2, 3)


def _staged(raw: bytes) -> list[Any]:
    from riverlock.worker.task import decode_outcome

    vote = decode_outcome(raw).vote
    assert vote is not None
    return [tuple(r) for r in vote.outputs.get("out", ())]


# Votes


def test_vote_tells_files_timers_and_counts(tasks: Tasks) -> None:
    tasks.run(("a", 5), ("b", 7), ("a", 3))

    rows = sum(v.rows for v in tasks.votes)
    heads = [v.operators["op"].timers.event_us for v in tasks.votes]
    added = sum(v.operators["op"].entries_delta for v in tasks.votes)
    assert rows == 3
    assert min(h for h in heads if h) == 1_704_067_203_000_000
    assert added == 2 + 3 + 3  # rows of values, list elements, map entries
    assert all(f.last_epoch == 1 for f in tasks.files)


def test_vote_without_input_has_no_files_but_timers(tasks: Tasks) -> None:
    tasks.run(("a", 5))
    before = [v.operators["op"].timers for v in tasks.votes]
    tasks.run()

    assert [v.operators["op"].files for v in tasks.votes] == [(), ()]
    assert [v.operators["op"].timers for v in tasks.votes] == before


def test_error_of_user_code_is_an_outcome_not_a_crash(tasks: Tasks) -> None:
    class Bad(Total):
        def on_event(self, record: Any, ctx: Any) -> Iterator[Any]:
            raise ValueError("poison")

    with pytest.raises(UserCodeError, match="poison") as caught:
        tasks.restarted(process=Bad()).run(("a", 1))

    assert (caught.value.operator, caught.value.key) == ("op", "a")
