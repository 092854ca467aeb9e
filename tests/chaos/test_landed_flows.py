"""Three Structured Streaming queries under one consistent cut; one flow dies at it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.chaos.landed_flow import FLOWS, QUERIES, check
from tests.unit.driver.ledger_flow import transfers

import riverlock as rl
from riverlock.core.faults import PLAN_VARIABLE
from riverlock.snapshot.catalog import Catalog
from riverlock.storage.open import open_storage

pytestmark = [pytest.mark.chaos, pytest.mark.slow]


def child(root: Path, name: str, faults: str = "") -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tests.chaos.landed_flow", name, str(root)]
    return subprocess.Popen(command, env={**os.environ, PLAN_VARIABLE: faults})


def ended(process: subprocess.Popen[bytes]) -> None:
    """Stop a process that this test has started."""
    if process.poll() is None:
        process.terminate()
    process.wait(180)


def add(root: Path, number: int) -> None:
    """Add a file of transfers to the input of each query."""
    names = ("source", "target", "amount")
    for place, query in enumerate(q for mine in QUERIES.values() for q in mine):
        given = transfers(20 + number + place)
        lines = [json.dumps(dict(zip(names, row, strict=True))) for row in given]
        path = root / "in" / query / f"{number:03d}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        aside = path.with_name(f".{path.name}")
        aside.write_text("\n".join(lines) + "\n")
        aside.rename(path)


def wait_until(holds: Callable[[], bool]) -> None:
    limit = time.monotonic() + 600
    while not holds():
        assert time.monotonic() < limit, "nothing came"
        time.sleep(0.2)


def test_three_queries_are_under_one_cut_and_one_dies_at_the_barrier(
    tmp_path: Path,
) -> None:
    root = tmp_path
    stores = [str(root / name) for name in FLOWS]
    add(root, 0)
    with ExitStack() as stack, ThreadPoolExecutor(1) as beside:
        stack.callback(ended, child(root, "debits"))
        victim = child(root, "credits", "P7=kill@2")
        stack.callback(ended, victim)
        wait_until(lambda: bool(Catalog(open_storage(stores[1])).epochs()))
        taken = beside.submit(
            rl.stores.savepoint_all, stores, "v", protocol="unaligned"
        )
        for number in range(1, 5):
            add(root, number)
        wait_until(lambda: victim.poll() is not None)
        assert victim.returncode == -signal.SIGKILL
        for store in stores:
            # Its second epoch died, and the first was before the cut.
            assert not Catalog(open_storage(store)).snapshots()
        stack.callback(ended, child(root, "credits"))
        found = taken.result(600)
        check(str(root), found)
        check(str(root), rl.stores.savepoint_all(stores, "later"))
    for store in stores:
        assert rl.stores.verify(store).is_whole
        names = [n.name for n in Catalog(open_storage(store)).snapshots()]
        assert names == ["later", "v"]
