"""Three Structured Streaming queries under one consistent cut; one flow dies at it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.chaos.landed_flow import FLOWS, add, check, flow_of, has_read

import riverlock as rl
from riverlock.core.faults import PLAN_VARIABLE
from riverlock.snapshot.catalog import Catalog
from riverlock.storage.open import open_storage

pytestmark = [pytest.mark.chaos, pytest.mark.spark, pytest.mark.slow]


def child(root: str, name: str, faults: str = "") -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tests.chaos.landed_flow", name, root]
    return subprocess.Popen(command, env={**os.environ, PLAN_VARIABLE: faults})


def ended(process: subprocess.Popen[bytes]) -> None:
    """Stop a process that this test has started."""
    if process.poll() is None:
        process.terminate()
    process.wait(180)


def test_three_queries_are_under_one_cut_and_one_dies_at_the_barrier(
    spark: SparkSession, tmp_path: Path
) -> None:
    root, stores = str(tmp_path), [str(tmp_path / name) for name in FLOWS]
    add(root, 0)
    for name in FLOWS:
        flow = flow_of(name, root)
        flow.run(f"{root}/{name}", spark=spark, available_now=True, parallelism=1)
    assert has_read(root)

    with ExitStack() as stack, ThreadPoolExecutor(1) as beside:
        stack.callback(ended, child(root, "debits"))
        # It has read everything, so that its next epoch is the one for the cut.
        victim = child(root, "credits", "P6=kill@1")
        stack.callback(ended, victim)
        taken = beside.submit(
            rl.stores.savepoint_all, stores, "v", protocol="unaligned"
        )
        assert victim.wait(500) == -signal.SIGKILL
        for store in stores:
            assert not Catalog(open_storage(store)).snapshots()
        add(root, 1)
        stack.callback(ended, child(root, "credits"))
        check(root, taken.result(500))
        check(root, rl.stores.savepoint_all(stores, "later"))
    for store in stores:
        assert rl.stores.verify(store).is_whole
        names = [named.name for named in Catalog(open_storage(store)).snapshots()]
        assert sorted(names) == ["later", "v"]
