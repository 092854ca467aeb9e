"""Regions of a circle in processes of their own: by what each has last said."""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field, replace

import pytest
from tests.unit.coordinator.cuts.ledger import random_topology
from tests.unit.coordinator.test_circle import PAIR, place, rest

from riverlock.coordinator.apart import Apart
from riverlock.coordinator.circle import Place, Rest
from riverlock.coordinator.cuts import Topology
from riverlock.snapshot.stands import Stand


def a_pair() -> tuple[Apart, Apart]:
    return Apart(PAIR, "a", "a1"), Apart(PAIR, "b", "b1")


def may_stop(region: Apart) -> bool:
    return region.is_final


def awaited(region: Apart) -> tuple[str, ...]:
    return region.awaited


def meet(a: Apart, b: Apart) -> None:
    for _ in range(2):
        a.hear({"b": b.said})
        b.hear({"a": a.said})


def test_regions_stop_when_each_has_said_that_it_rests() -> None:
    a, b = a_pair()
    meet(a, b)
    a.rests(place(5, back=2), rest(back=3))
    b.hear({"a": a.said})
    b.rests(place(2, over=5), rest(over=5))
    assert not may_stop(b)  # b has not looked at a's epoch 5
    b.rests(place(2, over=5), rest(over=6))
    assert may_stop(b)
    assert not may_stop(a)
    a.hear({"b": b.said})
    assert may_stop(a)


def test_a_region_waits_for_those_that_have_not_begun() -> None:
    a, b = a_pair()
    # The day before: b rested, and has seen all that a has now.
    old = Apart(PAIR, "b", "b0")
    old.hear({"a": Stand(stint="a0", epoch=-1, read={}, met={})})
    a.hear({"b": old.rests(place(2, over=5), rest(over=6))})
    a.rests(place(5, back=2), rest(back=3))
    assert not may_stop(a)
    assert awaited(a) == ("b",)
    b.hear({"a": a.said})
    a.hear({"b": b.said})
    assert awaited(a) == ()
    assert not may_stop(a)
    b.rests(place(2, over=5), rest(over=6))
    a.hear({"b": b.said})
    assert may_stop(a)


def test_regions_that_went_back_stop_too() -> None:
    a, b = a_pair()
    meet(a, b)
    a.rests(back(place(7, back=4)), rest(back=5))
    b.hear({"a": a.said})
    b.rests(place(2, over=5), rest(over=8))
    # It may still have to go back to before what a has read.
    assert not may_stop(b)
    b.rests(back(place(4, over=8)), rest(over=8))
    assert may_stop(b)
    a.hear({"b": b.said})
    assert may_stop(a)


def back(place: Place) -> Place:
    """Return the same after all have gone back."""
    return replace(place, reset=1)


def test_a_run_after_one_that_died_belongs_to_its_stint() -> None:
    a, b = a_pair()
    meet(a, b)
    b.works(place(2, over=5), is_fresh=False, moves_rows=True)
    a.hear({"b": b.said})
    a.rests(place(5, back=2), rest(back=3))
    again = Apart(PAIR, "b", b.said.stint)
    again.hear({"a": a.said})
    again.rests(place(2, over=6), rest(over=6))
    assert may_stop(again)
    a.hear({"b": again.said})
    assert may_stop(a)


def test_rounds_are_counted_across_processes() -> None:
    a, b = a_pair()
    meet(a, b)
    a.works(place(-1, back=0), is_fresh=True, moves_rows=False)
    for epoch in range(20):
        b.hear({"a": a.said})
        b.works(place(epoch - 1, over=epoch), is_fresh=False, moves_rows=True)
        a.hear({"b": b.said})
        a.works(place(epoch, back=epoch), is_fresh=False, moves_rows=True)
    assert 5 < a.rounds <= 20
    assert 5 < b.rounds <= 20
    b.works(place(20, over=20), is_fresh=True, moves_rows=False)
    a.hear({"b": b.said})
    assert a.rounds == 0


@dataclass
class World:
    """Regions that pass tokens on, die, come back, and hear of each other late."""

    topology: Topology
    chance: random.Random
    kind: type[Apart] = Apart
    stands: dict[str, Stand] = field(default_factory=dict)
    runs: dict[str, Apart] = field(default_factory=dict)
    ended: set[str] = field(default_factory=set)
    sent: dict[str, list[list[int]]] = field(default_factory=dict)
    read: dict[str, int] = field(default_factory=dict)
    epochs: dict[str, int] = field(default_factory=dict)
    sources: dict[str, deque[int]] = field(default_factory=dict)
    knows: dict[str, bool] = field(default_factory=dict)
    deaths: int = 4
    begun: int = 0

    def __post_init__(self) -> None:
        self.sent = {c.name: [] for c in self.topology.channels}
        self.read = dict.fromkeys(self.sent, 0)
        self.epochs = dict.fromkeys(self.topology.regions, -1)
        self.sources = {
            r: deque(self.chance.choices(range(6), k=self.chance.randrange(4)))
            for r in self.topology.regions
        }

    @property
    def is_empty(self) -> bool:
        unread = any(any(self.sent[name][at:]) for name, at in self.read.items())
        return not unread and not any(self.sources.values())

    def step(self) -> None:
        left = [r for r in self.topology.regions if r not in self.ended]
        region = self.chance.choice(left)
        if region not in self.runs:
            self.begin(region)
        elif self.deaths and self.chance.random() < 0.05:
            self.deaths -= 1
            del self.runs[region]
        else:
            self.plan(region, self.runs[region])

    def begin(self, region: str) -> None:
        self.begun += 1
        before = self.stands.get(region)
        # A stand from the day before is of a run that ended well.
        is_new = before is None or before.stint.startswith("old")
        stint = f"s{self.begun}" if is_new or before is None else before.stint
        run = self.runs[region] = self.kind(self.topology, region, stint)
        self.stands[region] = run.said

    def plan(self, region: str, run: Apart) -> None:
        """Let a region plan: an epoch, rest, or its end."""
        if self.chance.random() < 0.7:
            others = {r: s for r, s in self.stands.items() if r != region}
            self.stands[region] = run.hear(others)
        if run.is_final:
            assert self.is_empty
            assert all(r in self.ended or r in self.stands for r in self.epochs)
            del self.runs[region]
            self.ended.add(region)
            return
        knows, inputs = run.has_ended, self.topology.inputs(region)
        at = Place(
            epoch=self.epochs[region], read={c.name: self.read[c.name] for c in inputs}
        )
        seen = {c.name: len(self.sent[c.name]) for c in inputs}
        rows = [
            row
            for c in inputs
            for sent in self.sent[c.name][self.read[c.name] : seen[c.name]]
            for row in sent
        ]
        source = self.sources[region]
        fresh = [source.popleft()] if source and self.chance.random() < 0.5 else []
        if not rows and not fresh and not source:
            said = Rest(seen=seen, is_final=True, has_ended=True, knows_end=knows)
            self.stands[region] = run.rests(at, said)
            return
        said_now = run.works(at, is_fresh=bool(fresh), moves_rows=bool(rows))
        if self.chance.random() < 0.9:  # or it dies before anyone hears of it
            self.stands[region] = said_now
        self.read |= seen
        self.epochs[region] += 1
        goes = [left - 1 for left in (*rows, *fresh) if left > 0]
        for c in self.topology.channels:
            if c.writer == region:
                mine = goes if c.is_back or self.chance.random() < 0.5 else list(goes)
                self.sent[c.name].append(list(mine))


def world_of(seed: int, kind: type[Apart] = Apart) -> World:
    """Return a circle of several regions, maybe with what was said the day before."""
    chance = random.Random(seed)
    whole = random_topology(chance)
    circles = [whole.circle_of(r) for r in whole.regions]
    topology = next((c for c in circles if len(c.regions) > 1), PAIR)
    world = World(topology, chance, kind)
    if chance.random() < 0.5:
        for region in topology.regions:
            seen = {c.name: 0 for c in topology.inputs(region)}
            met = {o: f"old-{o}" for o in topology.regions if o != region}
            old = Apart(topology, region, f"old-{region}")
            old.said = Stand(stint=f"old-{region}", epoch=-1, read={}, met=met)
            said = Rest(seen=seen, is_final=True, has_ended=True, knows_end=True)
            world.stands[region] = old.rests(Place(epoch=-1, read={}), said)
    return world


@pytest.mark.parametrize("first", range(0, 400, 100))
def test_nobody_stops_while_there_are_rows_and_all_stop_in_the_end(first: int) -> None:
    for seed in range(first, first + 100):
        world = world_of(seed)
        for _ in range(60_000):
            if len(world.ended) == len(world.topology.regions):
                break
            world.step()
        else:
            pytest.fail(f"seed {seed}: only {world.ended} have ended")


class Hasty(Apart):
    """Believes what was said the day before, too."""

    @property
    def _have_met(self) -> bool:
        return True


def test_a_rule_that_is_wrong_is_found() -> None:
    def is_found(seed: int) -> bool:
        world = world_of(seed, Hasty)
        try:
            for _ in range(2_000):
                if len(world.ended) < len(world.topology.regions):
                    world.step()
        except AssertionError:
            return True
        return False

    assert any(map(is_found, range(100)))
