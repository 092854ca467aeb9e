"""State moves between tasks, 1 → 2 → 7 → 3 → 1, with a crash in each restore."""

from __future__ import annotations

import shutil
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from tests.unit.snapshot.killing import arm, killed, killed_at
from tests.unit.snapshot.small_flow import SmallFlow, output_of, state_of

from riverlock.driver.region_loop import RegionDriver
from riverlock.snapshot.format.records import StateFile
from riverlock.snapshot.format.state_files import read_table
from riverlock.snapshot.verbs.verify import verify
from riverlock.state.copy import working_copy

TASKS = (1, 2, 7, 3, 1)
ROWS = [(f"k{n * 7 % 23}", n % 11) for n in range(200)]
# Before the manifest is read, before state is and in the middle of it, before the first
# epoch, and with that epoch decided.
CRASHES = [("R1", 1), ("R2", 1), ("R2", 3), ("R4", 1), ("P8", 1)]


@pytest.fixture
def flow(tmp_path: Path) -> SmallFlow:
    made = SmallFlow(tmp_path / "store", ROWS, tmp_path / "out")
    made.run(2, epoch_rows=10)
    return made


def check(flow: SmallFlow, *, is_committed: bool = True) -> None:
    """Compare what there is with the sums of the rows that were read."""
    done = flow.rows[: flow.catalog.resolve(None).inputs["rows"].end]
    assert flow.state() == state_of(done)
    assert not is_committed or flow.output() == output_of(done)


def test_start_with_another_number_of_tasks_and_a_crash_in_each_restore(
    flow: SmallFlow,
) -> None:
    for before, tasks in pairwise(TASKS):
        flow.parallelism = tasks
        shutil.rmtree(flow.store / ".working")  # as on another machine
        for point, count in CRASHES:
            assert killed_at(point, lambda: flow.run(1, epoch_rows=10), count=count), (
                f"{point} was not reached from {before} to {tasks}"
            )
            check(flow, is_committed=False)
        assert flow.catalog.resolve(None).parallelism == tasks  # decided before P8
        flow.run(1, epoch_rows=10)
        check(flow)

    flow.run(epoch_rows=50)
    assert flow.state() == state_of(ROWS)
    assert flow.output() == output_of(ROWS)
    assert [r.problems for r in verify(flow.catalog) if not r.is_whole] == []


def rescaled(
    driver: RegionDriver, *, tasks: int, crash: tuple[str, int] | None = None
) -> None:
    """Ask for another number of tasks, and be killed then."""
    driver.rescale(tasks)
    if crash is not None:
        arm(crash[0], count=crash[1])


def test_rescale_while_the_flow_runs_with_a_crash_in_each_restore(
    flow: SmallFlow,
) -> None:
    for before, tasks in pairwise(TASKS):
        flow.parallelism = before
        shutil.rmtree(flow.store / ".working")  # no copies of earlier steps
        # In the middle of reading state, and with the changes of one task written.
        for point, count in (("R2", 3), ("P4", 1)):
            flow.after = partial(rescaled, tasks=tasks, crash=(point, count))
            assert killed(lambda: flow.run(2, epoch_rows=5)), (before, tasks, point)
            # The epoch before the rescale is there, that of the rescale is not.
            assert flow.catalog.resolve(None).parallelism == before
            check(flow)

        flow.after = partial(rescaled, tasks=tasks)
        flow.run(2, epoch_rows=5)
        assert flow.catalog.resolve(None).parallelism == tasks
        check(flow)

    flow.run(epoch_rows=50)
    assert flow.state() == state_of(ROWS)
    assert flow.output() == output_of(ROWS)
    assert [r.problems for r in verify(flow.catalog) if not r.is_whole] == []


def test_groups_that_stay_on_the_machine_are_not_read_from_the_store(
    flow: SmallFlow, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    read = tmp_path / "read"  # by those that are killed too
    read.touch()

    def counted(storage: Any, file: StateFile, groups: Any) -> Any:
        with read.open("a") as out:
            out.write(f"{file.path}: {file.bytes} bytes\n")
        return read_table(storage, file, groups)

    monkeypatch.setattr(working_copy, "read_table", counted)
    flow.run(2, epoch_rows=10)
    for before, tasks in pairwise(TASKS):
        flow.parallelism = tasks
        # Before anything is taken, with a part of it, and with the copies made.
        for point, count in (("R2", 1), ("R2", 2), ("R2", 3), ("P2", tasks)):
            assert killed_at(point, lambda: flow.run(1, epoch_rows=10), count=count), (
                f"{point} was not reached from {before} to {tasks}"
            )
            check(flow)
        flow.run(1, epoch_rows=10)
        check(flow)
        assert flow.catalog.resolve(None).parallelism == tasks
        assert read.read_text() == "", f"from {before} to {tasks}"
        flow.run(3, epoch_rows=5)
        check(flow)
    assert [r.problems for r in verify(flow.catalog) if not r.is_whole] == []
