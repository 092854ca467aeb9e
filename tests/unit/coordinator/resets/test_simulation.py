from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from tests.unit.coordinator.cuts.ledger import ViolationError
from tests.unit.coordinator.resets.world import FAULTS, ResetRules, World

from riverlock.coordinator.resets import (
    GoBack,
    Order,
    Reset,
    Say,
    Standing,
    Writer,
    taken_up,
)
from riverlock.core.errors import InternalError

SEEDS = 120
MANY = 4_000


def played(seeds: range, rules: ResetRules | None = None) -> Counter[str]:
    counts: Counter[str] = Counter()
    for seed in seeds:
        world = World(seed, rules=rules)
        world.play()
        counts += world.counts
        counts["taken"] += len(world.taken)
    return counts


@pytest.mark.parametrize(
    "seeds",
    [range(SEEDS), pytest.param(range(SEEDS, MANY), marks=pytest.mark.slow)],
    ids=["some", "thousands"],
)
def test_no_row_is_lost_or_there_twice_however_often_all_go_back(seeds: range) -> None:
    counts = played(seeds)

    assert min(counts[kind] for kind in FAULTS) > len(seeds)
    assert counts["resets"] > len(seeds)
    assert counts["back"] > 3 * len(seeds)
    assert counts["said"] > 10
    assert counts["taken"] > 2 * len(seeds)


def test_a_region_that_never_comes_back_holds_up_only_who_reads_it() -> None:
    gone = 0
    for seed in range(25):
        world = World(seed)
        dead = world.topology.regions[0]
        world.play_without(dead)
        others = [r for r in world.topology.regions if r != dead]
        if not world.resets or not others:
            continue
        gone += 1
        for region in others:
            if world.store[region]:
                assert world.store[region][-1].reset == len(world.resets)
    assert gone > 4


def _only_says(standing: Standing, last: Reset | None) -> Order | None:
    order = taken_up(standing, last)
    return Say(reset=order.reset) if isinstance(order, GoBack) else order


def _again(standing: Standing, last: Reset | None) -> Order | None:
    # Forgets that it has gone back as soon as it has decided anything since.
    if last is not None and last.number == standing.reset and standing.same_as:
        target = last.epochs[standing.region]
        if target not in standing.same_as and standing.same_as[0] % 7 == 0:
            return GoBack(reset=last.number, epoch=target)
    return taken_up(standing, last)


def _resumes_early(own: int, held: int, writer: Writer) -> int | None:
    return held if writer.epoch >= held else None


@pytest.mark.parametrize(
    "rules",
    [
        # It reads on while its writer has not gone back.
        ResetRules(held_at=lambda *_: None),
        # It goes on as soon as there is anything behind the cut.
        ResetRules(resumed_at=_resumes_early),
        # It reads what its writer decided since, before it has gone back itself.
        ResetRules(is_ahead=lambda *_: False),
        # It keeps what it has, and says the number.
        ResetRules(taken_up=_only_says),
        # It goes back twice for one reset.
        ResetRules(taken_up=_again),
        # It goes by where its writer is, not by where it was in the cut.
        ResetRules(looks_at_the_cut=False),
        # A cut is made of epochs from before a reset and from after it.
        ResetRules(tells_numbers=False, gives_up_cuts=False),
    ],
    ids=["reads on", "early", "ahead", "says", "again", "newest", "mixed"],
)
def test_rules_that_are_wrong_are_found(rules: ResetRules) -> None:
    with pytest.raises((ViolationError, InternalError)):
        played(range(200, 1_200), rules=rules)


def test_giving_cuts_up_and_telling_numbers_each_do_their_part() -> None:
    # Cuts are of one number: what nobody gave up is not complete, or whole.
    assert played(range(40), rules=replace(ResetRules(), gives_up_cuts=False))
