"""What a run shows is put into the store at a pace, and at once when it matters."""

from __future__ import annotations

import pytest

from riverlock.coordinator.plan import RegionPlan
from riverlock.coordinator.restart import NoRestart
from riverlock.core.clock import SystemClock
from riverlock.driver.status import status_board
from riverlock.driver.status.status_board import Board
from riverlock.snapshot.catalog import Catalog
from riverlock.snapshot.format.run_status import Status
from riverlock.snapshot.format.sealed import read_hint
from riverlock.storage.memory import MemoryStorage

PLAN = RegionPlan(
    store="s",
    flow="f",
    region="main",
    run=1,
    key_groups=1,
    parallelism=1,
    code="",
    stages=("s",),
    restart=NoRestart(),
)


def status(epoch: int) -> Status:
    return Status(
        flow="f", region="main", run=1, state="running", epoch=epoch, updated_us=epoch
    )


def test_small_epochs_are_all_told_and_put_at_a_pace(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now_ns = 10**12
    monkeypatch.setattr("time.monotonic_ns", lambda: now_ns)
    told: list[int | None] = []
    catalog = Catalog(MemoryStorage(), "main")
    board = Board(PLAN, catalog, SystemClock(), lambda s: told.append(s.epoch))

    def stored() -> int | None:
        found = read_hint(catalog.storage.get(catalog.paths.status), Status)
        assert found is not None
        return found.epoch

    board.show(status(1))
    assert stored() == 1
    for epoch in range(2, 6):
        now_ns += 10_000_000
        board.show(status(epoch))
    assert stored() == 1
    now_ns += status_board._PACE_US * 1_000
    board.show_plan((), None)
    assert stored() == 5
    board.show(status(6))
    board.show_state("stopped", None, None)
    assert stored() == 6
    assert told == [1, 2, 3, 4, 5, 6, 6]
