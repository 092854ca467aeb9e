"""Regions that feed each other, a process each: killed, begun again, ended."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.chaos.test_loops import COUNT, check_end

from riverlock.core.faults import PLAN_VARIABLE

pytestmark = pytest.mark.chaos

REGIONS = ("main", "bank")
# Before and after a decision, and while rows are staged.
POINTS = ("P1", "P4", "P6", "P7", "P8", "P10")


def start(place: Path, region: str, faults: str = "") -> subprocess.Popen[str]:
    """Start a region in a process of its own."""
    command = [sys.executable, "-m", "tests.chaos.loop_region_child"]
    command += [str(place / "s"), str(place / "out"), str(COUNT), region]
    return subprocess.Popen(
        command,
        env={**os.environ, PLAN_VARIABLE: faults},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@pytest.mark.parametrize(
    ("victim", "seed"),
    [
        ("bank", 0),
        *(
            pytest.param(region, seed, marks=pytest.mark.slow)
            for region in REGIONS
            for seed in range(1, 9)
        ),
    ],
)
def test_a_loop_over_processes_ends_with_all_that_came_round(
    tmp_path: Path, victim: str, seed: int
) -> None:
    chance = random.Random(f"{victim}-{seed}")
    other = next(region for region in REGIONS if region != victim)
    with ExitStack() as stack:

        def begun(region: str, faults: str = "") -> subprocess.Popen[str]:
            child = start(tmp_path, region, faults)
            stack.callback(child.wait, 60)
            stack.callback(child.kill)
            return child

        stays = begun(other)
        fault = f"{chance.choice(POINTS)}=kill@{chance.randrange(1, 4)}"
        killed = begun(victim, fault)
        said, _ = killed.communicate(timeout=250)
        assert killed.returncode == -signal.SIGKILL, (fault, said)
        assert stays.poll() is None  # it waits for the one that is away
        again = begun(victim)
        for child in (again, stays):
            said, _ = child.communicate(timeout=250)
            assert child.returncode == 0, said
    check_end(tmp_path)
