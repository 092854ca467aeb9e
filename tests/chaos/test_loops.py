"""A flow with two loops whose process is killed at every point, again and again."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from examples.loop import __main__ as retries
from tests.chaos.test_regions import POINTS
from tests.unit.driver.ledger_flow import bouncing_balance, transfers
from tests.unit.driver.test_loop_snapshots import received
from tests.unit.driver.test_regions_run import expected

import riverlock as rl
from riverlock.core.faults import PLAN_VARIABLE
from riverlock.snapshot.catalog import Catalog
from riverlock.storage.open import open_storage

pytestmark = pytest.mark.chaos

COUNT = 70


def live(place: Path, faults: str, *cut: str) -> int:
    """Run the flow in a process of its own; return how it ended."""
    command = [sys.executable, "-m", "tests.chaos.loop_child"]
    command += [str(place / "s"), str(place / "out"), str(COUNT), *cut]
    ended = subprocess.run(
        command,
        env={**os.environ, PLAN_VARIABLE: faults},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ended.returncode in (0, -signal.SIGKILL), ended.stderr
    return ended.returncode


def written(place: Path) -> Counter[tuple[str, int]]:
    """Return the rows that reached the sink."""
    found: Counter[tuple[str, int]] = Counter()
    for file in (place / "out").glob("epoch=*/*.json"):
        for row in map(json.loads, file.read_text().splitlines()):
            found[(row["target"], row["amount"])] += 1
    return found


def check_end(place: Path) -> None:
    """Compare what the flow has ended with with plain Python."""
    given = transfers(COUNT)
    assert received(str(place / "s")) == expected(given)
    assert written(place) == Counter((target, amount) for _, target, amount in given)
    assert rl.stores.verify(str(place / "s")).is_whole


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_kills_lose_and_double_nothing_that_comes_round(
    tmp_path: Path, seed: int
) -> None:
    chance = random.Random(seed)
    kills = 0
    for _ in range(4):
        fault = f"{chance.choice(POINTS)}=kill@{chance.randrange(1, 12)}"
        kills += live(tmp_path, fault) != 0
    assert kills
    assert live(tmp_path, "") == 0
    check_end(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["aligned", "unaligned", "drain", "epochs"])
def test_snapshots_among_kills_have_what_comes_round(
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
        paid, accounted = bouncing_balance(store, named)
        assert paid == accounted, named
    rl.stores.restore_all(f"{store}@{found[0].name}")
    assert live(tmp_path, "") == 0
    check_end(tmp_path)


def test_the_example_settles_every_payment_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert retries.settle(tmp_path, payments=200)
    told = capsys.readouterr().out
    assert told.count("killed") == len(retries.KILLS) - 1
    assert "equal to plain Python" in told
