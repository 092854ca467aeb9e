"""A flow of four regions whose process is killed at every point, again and again."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest
from examples.regions.__main__ import bill
from tests.unit.driver.ledger_flow import balance, transfers
from tests.unit.driver.test_regions_run import arrived, expected

import riverlock as rl
from riverlock.core.faults import PLAN_VARIABLE
from riverlock.snapshot.catalog import Catalog
from riverlock.storage.open import open_storage

pytestmark = pytest.mark.chaos

COUNT = 150
POINTS = ("P1", "P3", "P4", "P5", "P6", "P7", "P8", "P9", "P10", "P11", "R1", "R3")


def live(place: Path, faults: str, *cut: str) -> int:
    """Run the flow in a process of its own; return how it ended."""
    command = [sys.executable, "-m", "tests.chaos.ledger_child"]
    command += [str(place / "s"), str(place / "out"), str(COUNT), *cut]
    environment = {**os.environ, PLAN_VARIABLE: faults}
    ended = subprocess.run(
        command,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ended.returncode in (0, -signal.SIGKILL), ended.stderr
    return ended.returncode


def written(place: Path) -> dict[str, Counter[int]]:
    """Return the amounts that the output says arrived, by account.

    A row has the account's total so far. Which of two transfers of an epoch comes first
    is not fixed, so what each row adds is compared.
    """
    totals: dict[str, list[int]] = {}
    for file in (place / "out").glob("**/*.json"):
        if "_riverlock" not in file.parts:
            for row in map(json.loads, file.read_text().splitlines()):
                totals.setdefault(row["target"], [0]).append(row["total"])
    return {
        target: Counter(b - a for a, b in pairwise(sorted(found)))
        for target, found in totals.items()
    }


def wanted() -> dict[str, Counter[int]]:
    """Return the same of a perfect run, computed in plain Python."""
    found: dict[str, Counter[int]] = {}
    for _, target, amount in transfers(COUNT):
        found.setdefault(target, Counter())[amount] += 1
    return found


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in range(1, 15))]
)
def test_kills_of_all_regions_lose_and_double_nothing(
    tmp_path: Path, seed: int
) -> None:
    chance = random.Random(seed)
    kills = 0
    for _ in range(7):
        fault = f"{chance.choice(POINTS)}=kill@{chance.randrange(1, 9)}"
        kills += live(tmp_path, fault) != 0
    assert kills
    assert live(tmp_path, "") == 0
    assert arrived(str(tmp_path / "s")) == expected(transfers(COUNT))
    assert written(tmp_path) == wanted()
    assert rl.stores.verify(str(tmp_path / "s")).is_whole


@pytest.mark.parametrize(
    "protocol",
    [
        "unaligned",
        "drain",
        pytest.param("aligned", marks=pytest.mark.slow),
        pytest.param("epochs", marks=pytest.mark.slow),
    ],
)
def test_snapshots_among_kills_fit_together_and_can_be_gone_back_to(
    tmp_path: Path, protocol: str
) -> None:
    chance, store = random.Random(protocol), str(tmp_path / "s")
    for number in range(3):
        fault = f"{chance.choice(POINTS)}=kill@{chance.randrange(2, 14)}"
        live(tmp_path, fault, f"v{number}", protocol)
    assert live(tmp_path, "", "last", protocol) == 0
    found = Catalog(open_storage(store)).snapshots()
    assert "last" in [named.name for named in found]
    for named in found:
        debited, accounted = balance(store, named)
        assert debited == accounted, named
    rl.stores.restore_all(f"{store}@{found[0].name}")
    assert live(tmp_path, "") == 0
    assert arrived(store) == expected(transfers(COUNT))
    assert written(tmp_path) == wanted()


def test_bills_are_exact_and_alerts_are_there_after_kills(tmp_path: Path) -> None:
    assert bill(tmp_path, 600)
    assert rl.stores.verify(str(tmp_path / "store")).is_whole
