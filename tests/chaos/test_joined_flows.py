"""Three flows, each in a process of its own, under one cut; one dies at the barrier."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Sequence
from concurrent import futures
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.unit.driver.joined_flow import FLOWS, balance, flow_of, second_balance
from tests.unit.driver.ledger_flow import transfers

import riverlock as rl
from riverlock.core.clock import SystemClock
from riverlock.core.errors import SnapshotAbandonedError
from riverlock.core.faults import PLAN_VARIABLE
from riverlock.snapshot.catalog import Catalog
from riverlock.snapshot.format.records import Named
from riverlock.snapshot.joint.joint_cut import take_joint_cut
from riverlock.storage.open import open_storage

pytestmark = pytest.mark.chaos

COUNT = 60
# Whoever has read everything decides its next epoch for the cut: that is the barrier.
AT_THE_BARRIER = [("west", f"P{n}") for n in (1, 3, 4, 6, 8, 9, 10, 11)]
AT_THE_BARRIER += [("east", "P6"), ("east", "P8"), ("debits", "P6"), ("debits", "P8")]
# The first flow decides the cut of all.
DECIDING = [("debits", point) for point in ("V2", "V3", "V4")]
USUAL = {("west", "P6"), ("debits", "V3")}


def child(root: str, name: str, faults: str = "") -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tests.chaos.joined_child", name, root, str(COUNT)]
    environment = {**os.environ, PLAN_VARIABLE: faults}
    return subprocess.Popen(command, env=environment)


def catalogs(root: str) -> list[Catalog]:
    return [Catalog(open_storage(f"{root}/{name}")) for name in FLOWS]


def prepare(root: str, count: int = COUNT, names: Sequence[str] = FLOWS) -> None:
    """Have flows read everything, so that what they decide next is the cut's."""
    for name in names:
        flow = flow_of(name, root, transfers(count))
        flow.run(
            f"{root}/{name}",
            execution="local",
            available_now=True,
            max_rows_per_epoch=10,
        )


def take(root: str, name: str, timeout_us: int = 120_000_000) -> str:
    """Take a snapshot over all flows; return why there is none, or nothing."""
    try:
        take_joint_cut(
            catalogs(root),
            name,
            protocol="unaligned",
            now_us=SystemClock().now_us(),
            timeout_us=timeout_us,
        )
    except SnapshotAbandonedError as error:
        return error.why
    return ""


def whole_or_absent(root: str, name: str) -> bool:
    """Check that all stores have a snapshot, and its money; or none has it."""
    found: dict[str, Named] = {}
    for flow, catalog in zip(FLOWS, catalogs(root), strict=True):
        for named in catalog.snapshots():
            if named.name == name:
                found[flow] = named
    if not found:
        return False
    assert set(found) == set(FLOWS)
    for debited, accounted in (balance(root, found), second_balance(root, found)):
        assert debited == accounted
    return True


@pytest.mark.parametrize(
    ("victim", "point"),
    [
        pytest.param(*case, marks=() if case in USUAL else pytest.mark.slow)
        for case in [*AT_THE_BARRIER, *DECIDING]
    ],
)
def test_a_flow_that_dies_at_the_barrier_comes_back_to_a_whole_cut(
    tmp_path: Path, victim: str, point: str
) -> None:
    root = str(tmp_path)
    prepare(root)
    with ExitStack() as stack, ThreadPoolExecutor(1) as beside:
        running = {
            name: child(root, name, f"{point}=kill@1" if name == victim else "")
            for name in FLOWS
        }
        for process in running.values():
            stack.callback(ended, process)
        taken = beside.submit(take, root, "v")
        assert running[victim].wait(120) == -signal.SIGKILL
        again = child(root, victim)
        stack.callback(ended, again)
        assert taken.result(180) == ""
    assert whole_or_absent(root, "v")
    for store in FLOWS:
        assert rl.stores.verify(f"{root}/{store}").is_whole


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_snapshots_of_flows_that_are_busy_and_die_are_whole_or_absent(
    tmp_path: Path, seed: int
) -> None:
    root, chance = str(tmp_path), random.Random(seed)
    prepare(root, COUNT // 2)
    prepare(root, COUNT, FLOWS[:1])  # the others have it to read
    points = sorted({point for _, point in [*AT_THE_BARRIER, *DECIDING]})
    for number in range(4):
        with ThreadPoolExecutor(1) as beside:
            taken = beside.submit(take, root, f"v{number}", 60_000_000)
            lives = {}
            for name in FLOWS:
                fault = f"{chance.choice(points)}=kill@{chance.randrange(1, 4)}"
                lives[name] = child(root, name, fault)
            while not taken.done():
                for name, life in lives.items():
                    if life.poll() is not None:
                        lives[name] = child(root, name)
                futures.wait([taken], timeout=0.1)
            for life in lives.values():
                ended(life)
        whole_or_absent(root, f"v{number}")
    with ExitStack() as stack:
        for name in FLOWS:
            stack.callback(ended, child(root, name))
        assert take(root, "last") == ""
    assert whole_or_absent(root, "last")


@pytest.mark.slow
def test_a_flow_that_stays_dead_has_no_cut_anywhere(tmp_path: Path) -> None:
    root = str(tmp_path)
    prepare(root)
    with ExitStack() as stack, ThreadPoolExecutor(1) as beside:
        for name in ("debits", "east"):
            stack.callback(ended, child(root, name))
        dying = child(root, "west", "P7=kill@1")
        stack.callback(ended, dying)
        taken = beside.submit(take, root, "v", 10_000_000)
        assert dying.wait(120) == -signal.SIGKILL
        assert "west" in taken.result(180)
    assert not whole_or_absent(root, "v")
    for catalog in catalogs(root):
        assert not list(catalog.storage.list("leases/"))


def ended(process: subprocess.Popen[bytes]) -> None:
    """Stop a process that this test has started."""
    if process.poll() is None:
        process.terminate()
    process.wait(120)
