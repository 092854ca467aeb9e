"""Workers and the JVM die, tasks are tried again: rows 9 and 14 of the matrix."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest
from tests.chaos import oracle
from tests.chaos.children import child
from tests.chaos.processes import jvm_of
from tests.chaos.worker_flow import Options

from riverlock.core import faults
from riverlock.core.errors import ClusterLostError
from riverlock.snapshot.catalog import Catalog
from riverlock.storage.local import LocalStorage

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(1_200)]

# Each hits another task of another epoch: SIGKILL and os._exit in user code, an error
# after the change file is durable, SIGKILL before it is and after a sink has staged, a
# disk that is full, then well again.
PLAN = (
    "P2=kill@3;P2=exit@9;P4=raise@8;P3=kill@40;P5=kill@14;P4=kill@16;P3=enospc@70;"
    "P3=eio@90;R2=kill@3"
)


def test_jvm_and_tasks_that_die_and_are_tried_again_count_once(tmp_path: Path) -> None:
    options = Options(
        store=str(tmp_path / "store"), out=str(tmp_path / "out"), rows=5_000
    )
    with child(options) as driver:
        driver.wait_for_epochs(1)
        jvm = jvm_of(driver.pid)
        assert jvm is not None
        os.kill(jvm, signal.SIGKILL)
        code = driver.end()
        driver.wait_for_orphans()

    assert code == ClusterLostError.exit_code, driver.tail()
    assert "CLUSTER_LOST" in driver.tail()
    # At once: it does not come back.
    assert driver.tail().count("aborted:") <= 1, driver.tail()

    chosen = replace(options, worker_faults=PLAN)
    with child(chosen, faults_dir=tmp_path / "faults") as driver:
        assert driver.end() == 0, driver.tail()

    fired = faults.fired(tmp_path / "faults")
    assert fired == sorted(f"{f.point}-{f.at}" for f in faults.parse(PLAN))
    assert _left_by_dead_attempts(options), "no attempt died after its change file"
    oracle.check(options)


def _left_by_dead_attempts(options: Options) -> set[str]:
    catalog = Catalog(LocalStorage(Path(options.store)))
    newest = catalog.newest()
    assert newest is not None
    reached = {f.path for s in newest.operators.values() for f in s.files}
    return {e.path for e in catalog.storage.list(catalog.paths.state)} - reached
