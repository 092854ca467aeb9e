"""State is read while a flow is killed at every point and comes back rescaled."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.unit.query.live_flow import read_live

from riverlock.core.faults import PLAN_VARIABLE

pytestmark = pytest.mark.chaos

COUNT = 200
POINTS = ("P3", "P4", "P6", "P7", "P8", "P10", "P11", "P12", "R1", "R4")


def child(store: str, faults: str, parallelism: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tests.chaos.live_child"]
    command += [store, str(COUNT), str(parallelism)]
    return subprocess.Popen(command, env={**os.environ, PLAN_VARIABLE: faults})


def read_while(process: subprocess.Popen[bytes], store: str) -> list[int]:
    """Read until a process has ended, then once more; return the epochs."""
    found: list[int | None] = []
    while process.poll() is None:
        found.append(read_live(store))
    assert process.returncode in (0, -signal.SIGKILL)
    found.append(read_live(store))
    return [epoch for epoch in found if epoch is not None]


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in range(1, 6))]
)
def test_each_read_among_kills_and_rescales_is_one_epoch(
    tmp_path: Path, seed: int
) -> None:
    store, chance = str(tmp_path / "s"), random.Random(seed)
    epochs, kills = [], 0
    for life in range(3 if seed == 0 else 6):
        fault = f"{chance.choice(POINTS)}=kill@{chance.randrange(2, 7)}"
        process = child(store, fault, 1 + life % 4)
        epochs += read_while(process, store)
        kills += process.returncode != 0
    epochs += read_while(child(store, "", 3), store)
    assert kills
    assert epochs == sorted(epochs)
    assert epochs[-1] == COUNT // 10 - 1
