"""Kills of a flow with a region that is not exactly once: each guarantee, no other.

`at least once`: rows repeat, none is missing. `at most once`: rows are missing, none
repeats. State is right in both, and the region beside them stays exactly once.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.chaos.guarantee_flow import (
    balance,
    in_files,
    in_table,
    left,
    perfect,
    processed,
    state,
    state_after,
)

import riverlock as rl
from riverlock.core.faults import PLAN_VARIABLE
from riverlock.core.guarantees import AT_LEAST_ONCE, AT_MOST_ONCE
from riverlock.snapshot.catalog import Catalog
from riverlock.storage.open import open_storage

pytestmark = pytest.mark.chaos

POINTS = ("P1", "P3", "P4", "P5", "P6", "P7", "P8", "P9", "P10", "P11", "R1", "R3")
SEEDS = [0, *(pytest.param(n, marks=pytest.mark.slow) for n in range(1, 12))]
KILLS = 3
STEP = 40  # more events in each life


def live(
    place: Path,
    count: int,
    guarantee: str,
    *cut: str,
    faults: str = "",
    dies_at: int = 0,
) -> bool:
    """Run the flow in a process of its own; tell whether it was killed."""
    command = [sys.executable, "-m", "tests.chaos.guarantee_child"]
    command += [str(place / "s"), str(place), str(count), guarantee, str(dies_at)]
    command += cut
    ended = subprocess.run(
        command,
        env={**os.environ, PLAN_VARIABLE: faults},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ended.returncode in (0, -signal.SIGKILL), ended.stderr
    return ended.returncode != 0


def live_and_die(place: Path, guarantee: str, seed: int) -> int:
    """Kill the flow at random points, let it end; return how many events there were."""
    chance, kills, count = random.Random(seed), 0, STEP
    for _ in range(KILLS):
        fault = f"{chance.choice(POINTS)}=kill@{chance.randrange(1, 12)}"
        kills += live(place, count, guarantee, faults=fault)
        count += STEP
    assert kills
    assert not live(place, count, guarantee)
    return count


def check_at_least_once(place: Path, count: int) -> None:
    # These get their rows when the epoch is decided, whatever the region promises.
    assert in_files(place, "loose") == in_table(place) == perfect(count)
    assert left(place).keys() == perfect(count).keys()
    assert state(str(place / "s"), "repeat-loose") == state_after([*range(count)])
    check_strict(place, count)


def check_at_most_once(place: Path, count: int) -> int:
    """Check; return how many events have left no trace in the output."""
    numbers, skipped = processed(str(place / "s"))
    found = left(place)
    for sink in (found, in_files(place, "loose"), in_table(place)):
        assert set(sink.values()) <= {1}, "a row left twice"
        assert sink.keys() <= perfect(count).keys()
    assert len(numbers) == len(set(numbers)) == count - skipped
    assert {n for _, n in found} <= set(numbers)
    assert state(str(place / "s"), "repeat-loose") == state_after(numbers)
    check_strict(place, count)
    return count - sum(kind == "event" for kind, _ in found)


def check_strict(place: Path, count: int) -> None:
    assert in_files(place, "strict") == perfect(count)
    assert state(str(place / "s"), "repeat-strict") == state_after([*range(count)])
    assert rl.stores.verify(str(place / "s")).is_whole


@pytest.mark.parametrize("seed", SEEDS)
def test_at_least_once_loses_nothing_wherever_it_is_killed(
    tmp_path: Path, seed: int
) -> None:
    check_at_least_once(tmp_path, live_and_die(tmp_path, AT_LEAST_ONCE, seed))


@pytest.mark.parametrize("seed", SEEDS)
def test_at_most_once_repeats_nothing_wherever_it_is_killed(
    tmp_path: Path, seed: int
) -> None:
    check_at_most_once(tmp_path, live_and_die(tmp_path, AT_MOST_ONCE, seed))


def test_at_least_once_repeats_rows_that_left_before_a_kill(tmp_path: Path) -> None:
    assert live(tmp_path, STEP, AT_LEAST_ONCE, dies_at=10)
    early = left(tmp_path)
    # They left with their task: their epoch was never decided.
    decided, _ = processed(str(tmp_path / "s"))
    assert {n for _, n in early} - set(decided)
    assert not live(tmp_path, 2 * STEP, AT_LEAST_ONCE)
    check_at_least_once(tmp_path, 2 * STEP)
    repeated = {row for row, times in left(tmp_path).items() if times > 1}
    assert repeated
    assert repeated <= early.keys()


def test_at_most_once_misses_rows_that_had_not_left_before_a_kill(
    tmp_path: Path,
) -> None:
    assert live(tmp_path, STEP, AT_MOST_ONCE, dies_at=10)
    assert not live(tmp_path, 2 * STEP, AT_MOST_ONCE)
    assert check_at_most_once(tmp_path, 2 * STEP) > 0
    numbers, skipped = processed(str(tmp_path / "s"))
    assert skipped > 0
    # It went on: events of the second life are there.
    assert max(numbers) == 2 * STEP - 1
    assert ("event", 2 * STEP - 1) in left(tmp_path)


@pytest.mark.parametrize(
    "protocol",
    [
        "unaligned",
        *(pytest.param(p, marks=pytest.mark.slow) for p in ("aligned", "drain")),
    ],
)
@pytest.mark.parametrize(
    "guarantee",
    [AT_MOST_ONCE, pytest.param(AT_LEAST_ONCE, marks=pytest.mark.slow)],
)
def test_snapshots_among_kills_account_for_every_event(
    tmp_path: Path, guarantee: str, protocol: str
) -> None:
    chance, count, store = random.Random(protocol), STEP, str(tmp_path / "s")
    for number in range(KILLS):
        fault = f"{chance.choice(POINTS)}=kill@{chance.randrange(2, 14)}"
        live(tmp_path, count, guarantee, f"v{number}", protocol, faults=fault)
        count += STEP
    assert not live(tmp_path, count, guarantee, "last", protocol)
    named = Catalog(open_storage(store)).snapshots()
    assert "last" in [each.name for each in named]
    for each in named:
        handed_on, accounted = balance(store, each)
        assert handed_on == accounted, each
    if guarantee == AT_MOST_ONCE:
        check_at_most_once(tmp_path, count)
    else:
        check_at_least_once(tmp_path, count)


@pytest.mark.slow
def test_exactly_once_in_the_same_place_for_comparison(tmp_path: Path) -> None:
    # Calls of a function may be repeated, since it cannot say what it has.
    assert live(tmp_path, STEP, "exactly once", dies_at=10)
    assert not live(tmp_path, 2 * STEP, "exactly once")
    check_at_least_once(tmp_path, 2 * STEP)
