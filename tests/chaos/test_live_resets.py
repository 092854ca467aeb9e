"""Regions in processes of their own are killed while all go back, again and again."""

from __future__ import annotations

import contextlib
import random
import signal
import subprocess
from pathlib import Path

import pytest
from tests.chaos.processes import wait_until
from tests.chaos.test_regions import COUNT, POINTS, wanted, written
from tests.chaos.test_regions_apart import start
from tests.unit.driver.ledger_flow import transfers
from tests.unit.driver.test_regions_run import arrived, expected

import riverlock as rl
from riverlock.snapshot.catalog import Catalog
from riverlock.storage.open import open_storage

pytestmark = pytest.mark.chaos
REGIONS = ("main", "east", "west", "final")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_kills_while_all_go_back(tmp_path: Path, seed: int) -> None:
    chance, store = random.Random(seed), str(tmp_path / "s")
    catalog = Catalog(open_storage(store))
    alive = {region: start(tmp_path, region) for region in REGIONS}

    def revive() -> None:
        for region, child in alive.items():
            if child.poll() is not None:
                alive[region] = start(tmp_path, region)

    def newest() -> list[int | None]:
        found = [catalog.of(region).newest() for region in REGIONS]
        return [None if m is None else m.reset for m in found]

    try:
        wait_until(lambda: None not in newest(), "an epoch of each region", 120)
        names = []
        for number in range(2):
            rl.stores.savepoint(store, f"v{number}", protocol="unaligned")
            names.append(f"v{number}")
        for _ in range(6):
            victim = chance.choice(REGIONS)
            alive[victim].send_signal(signal.SIGTERM)
            alive[victim].wait(120)
            fault = f"{chance.choice([*POINTS, 'V1', 'V2', 'V3', 'V8'])}=kill"
            fault += f"@{chance.randrange(1, 4)}"
            alive[victim] = start(tmp_path, victim, faults=fault)
            # It may have died by now, and may have claimed its region just before.
            with contextlib.suppress(rl.errors.FencedError):
                rl.stores.restore_all(f"{store}@{chance.choice(names)}")
            revive()
    finally:
        for child in alive.values():
            child.send_signal(signal.SIGTERM)
        for child in alive.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(120)
            child.kill()
    for region in REGIONS:
        assert start(tmp_path, region, "until-the-end").wait(300) == 0
    assert arrived(store) == expected(transfers(COUNT))
    assert written(tmp_path) == wanted()
    assert len(set(newest())) == 1
    assert rl.stores.verify(store).is_whole
