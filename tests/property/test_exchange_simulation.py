"""Seeded worlds of tasks that exchange rows; and broken ones, to see that it shows.

``RIVERLOCK_SIM_SEEDS`` sets how many worlds are played, ``RIVERLOCK_SIM_FIRST`` the
first seed, so that a failure is played again with ``FIRST=<seed> SEEDS=1``.
"""

from __future__ import annotations

import os
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from tests.unit.exchange.protocol.mutants import PATCHES, SIMULATIONS
from tests.unit.exchange.protocol.simulation import Simulation, ViolationError

from riverlock.core.errors import InternalError

if TYPE_CHECKING:
    from collections.abc import Callable

SEEDS = int(os.environ.get("RIVERLOCK_SIM_SEEDS", "20000"))
FIRST = int(os.environ.get("RIVERLOCK_SIM_FIRST", "0"))
# These need a rare turn of events.
RARE = {"a full edge stops others", "limits survive a cancel"}


def _play(seeds: range) -> Counter[str]:
    seen: Counter[str] = Counter()
    for seed in seeds:
        simulation = Simulation(seed)
        try:
            simulation.play()
        except (ViolationError, InternalError) as error:
            pytest.fail(f"seed {seed}: {error}")
        seen += simulation.seen
    return seen


def test_every_table_is_what_was_sent_and_nobody_waits_for_ever() -> None:
    seen = _play(range(40))

    expected = {"cancel", "kill", "generation", "no room", "heard from a peer"}
    assert expected <= {name for name, count in seen.items() if count}


@pytest.mark.slow
def test_the_same_in_thousands_of_worlds() -> None:
    seen = _play(range(FIRST, FIRST + SEEDS))

    assert SEEDS < 1000 or seen["late vote"]


def test_same_seed_plays_the_same_world() -> None:
    seen = []
    for _ in range(2):
        simulation = Simulation(7)
        simulation.play()
        seen.append((simulation.seen, simulation.sent))

    assert seen[0] == seen[1]


@pytest.mark.parametrize("name", SIMULATIONS)
def test_a_broken_connection_is_caught(name: str) -> None:
    assert _is_caught(SIMULATIONS[name], 30)


@pytest.mark.parametrize("name", [n for n in PATCHES if n not in RARE])
def test_a_broken_protocol_is_caught(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert _is_caught(_patched(name, monkeypatch), 60)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(RARE))
def test_a_protocol_that_is_seldom_broken_is_caught(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert _is_caught(_patched(name, monkeypatch), 2000)


def _patched(name: str, monkeypatch: pytest.MonkeyPatch) -> type[Simulation]:
    patches, world = PATCHES[name]
    for owner, method, broken in patches:
        monkeypatch.setattr(owner, method, broken)
    return world


def _is_caught(make: Callable[[int], Simulation], seeds: int) -> bool:
    for seed in range(seeds):
        try:
            make(seed).play()
        except (ViolationError, InternalError):
            return True
    return False
