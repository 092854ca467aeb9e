"""Thousands of seeded worlds; and broken coordinators, to see that the oracle sees.

``RIVERLOCK_SIM_SEEDS`` sets how many worlds are played, ``RIVERLOCK_SIM_FIRST`` the
first seed, so that a failure is played again with ``FIRST=<seed> SEEDS=1``.
"""

from __future__ import annotations

import os
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from tests.unit.coordinator.at_most_once import AtMostOnce
from tests.unit.coordinator.mutants import MUTANTS, PATCHES
from tests.unit.coordinator.simulation import Simulation
from tests.unit.coordinator.world import ViolationError

from riverlock.coordinator import region, sealing
from riverlock.core.errors import InternalError

if TYPE_CHECKING:
    from collections.abc import Callable

SEEDS = int(os.environ.get("RIVERLOCK_SIM_SEEDS", "2000"))
FIRST = int(os.environ.get("RIVERLOCK_SIM_FIRST", "0"))
# A mutant that lives longer than this would slip through a short run.
MUTANT_SEEDS = 400


def test_every_row_counts_once_in_every_world() -> None:
    faults: Counter[str] = Counter()
    for seed in range(FIRST, FIRST + SEEDS):
        simulation = Simulation(seed)
        try:
            simulation.play()
        except (ViolationError, InternalError) as error:
            pytest.fail(f"seed {seed}: {error}")
        faults += simulation.faults

    if SEEDS >= 100:
        expected = {"crash", "freeze", "wake", "rival", "stop", "twice", "compaction"}
        expected |= {"lost", "late", "unheard", "crash between orders"}
        expected |= {"stopped: OK", "stopped: FENCED", "stopped: COMMIT_UNKNOWN"}
        missed = {f for f in expected if not faults[f]}
        assert not missed, f"these never happened: {missed}"


def test_at_most_once_no_row_leaves_twice_in_any_world() -> None:
    faults: Counter[str] = Counter()
    for seed in range(FIRST, FIRST + SEEDS // 4):
        simulation = AtMostOnce(seed)
        try:
            simulation.play()
        except (ViolationError, InternalError) as error:
            pytest.fail(f"seed {seed}: {error}")
        faults += simulation.faults

    # And bad luck does cost rows.
    assert SEEDS < 100 or faults["missing"]


@pytest.mark.parametrize("name", ["settled_by_now", "is_given_up"])
def test_at_most_once_that_asks_again_is_caught(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken: dict[str, Callable[..., object]] = {
        "settled_by_now": lambda _, settled, **__: settled,
        "is_given_up": lambda *_: False,
    }
    monkeypatch.setattr(region, name, broken[name])

    assert _seed_that_catches(AtMostOnce) is not None


def test_same_seed_plays_the_same_world() -> None:
    worlds = []
    for _ in range(2):
        simulation = Simulation(7)
        simulation.play()
        worlds.append((simulation.world.store.manifests, simulation.faults))

    assert worlds[0] == worlds[1]


@pytest.mark.parametrize("name", MUTANTS)
def test_broken_shell_is_caught(name: str) -> None:
    assert _seed_that_catches(MUTANTS[name]) is not None


@pytest.mark.parametrize("name", PATCHES)
def test_broken_coordinator_is_caught(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    modules = {"region": region, "sealing": sealing}
    for module, function, broken in PATCHES[name]:
        monkeypatch.setattr(modules[module], function, broken)

    assert _seed_that_catches(lambda s: Simulation(s, is_validated=False)) is not None


def _seed_that_catches(make: Callable[[int], Simulation]) -> int | None:
    for seed in range(MUTANT_SEEDS):
        try:
            make(seed).play()
        except (ViolationError, InternalError):
            return seed
    return None
