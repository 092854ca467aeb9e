"""A process per region: one is killed again and again, the others go on."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.chaos.processes import wait_until
from tests.chaos.test_regions import COUNT, POINTS, wanted, written
from tests.unit.driver.ledger_flow import is_for, total, transfers
from tests.unit.driver.test_regions_run import arrived, expected

import riverlock as rl
from riverlock.core.faults import PLAN_VARIABLE
from riverlock.snapshot.catalog import Catalog
from riverlock.storage.open import open_storage

pytestmark = pytest.mark.chaos


def start(place: Path, region: str, *more: str, faults: str = "") -> subprocess.Popen:  # type: ignore[type-arg]
    """Start a region in a process of its own."""
    command = [sys.executable, "-m", "tests.chaos.region_child"]
    command += [str(place / "s"), str(place / "out"), str(COUNT), region, *more]
    return subprocess.Popen(
        command,
        env={**os.environ, PLAN_VARIABLE: faults},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


@contextlib.contextmanager
def running(place: Path, *regions: str) -> Iterator[None]:
    """Let regions run until the block is left."""
    children = [start(place, region) for region in regions]
    try:
        yield
        assert [child.poll() for child in children] == [None] * len(children)
    finally:
        for child in children:
            child.send_signal(signal.SIGTERM)
        ended = [child.wait(300) for child in children]
    assert ended == [0] * len(children)


class West:
    """What an account of the other half gets."""

    def __init__(self, target: str) -> None:
        self.target = target


@pytest.mark.parametrize("kills", [2, pytest.param(100, marks=pytest.mark.slow)])
def test_a_region_that_is_killed_again_and_again(tmp_path: Path, kills: int) -> None:
    chance, store = random.Random(kills), str(tmp_path / "s")
    west = Catalog(open_storage(store), "west")
    mine = [t for t in transfers(COUNT) if is_for("west", West(t[1]))]
    whole = sum(amount for *_, amount in mine)
    with running(tmp_path, "main", "west", "final"):
        for _ in range(kills):
            fault = f"{chance.choice(POINTS)}=kill@{chance.randrange(1, 4)}"
            killed = start(tmp_path, "east", "until-the-end", faults=fault)
            with contextlib.suppress(subprocess.TimeoutExpired):
                killed.wait(4)
            killed.kill()
            killed.wait(60)
        # Nobody has waited for it.
        wait_until(
            lambda: (
                west.newest() is not None
                and total(store, None, "credit-west", "received") == whole
            ),
            "all rows of the other half",
            250,
        )
    for region in ("main", "east", "west", "final"):
        assert start(tmp_path, region, "until-the-end").wait(300) == 0
    assert arrived(store) == expected(transfers(COUNT))
    assert written(tmp_path) == wanted()
    assert rl.stores.verify(store).is_whole
