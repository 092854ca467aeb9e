"""When regions that feed each other rest, and how often rows have gone round."""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field, replace

from tests.unit.coordinator.cuts.ledger import random_topology

from riverlock.coordinator.circle import Circle, Place, Rest
from riverlock.coordinator.cuts import Channel, Topology

SELF = Topology(
    regions=("a",),
    channels=(Channel(name="loop", writer="a", reader="a", is_back=True),),
)
PAIR = Topology(
    regions=("a", "b"),
    channels=(
        Channel(name="over", writer="a", reader="b"),
        Channel(name="back", writer="b", reader="a", is_back=True),
    ),
)


def rest(*, ended: bool = False, knows: bool = False, **seen: int) -> Rest:
    return Rest(seen=seen, is_final=True, has_ended=ended, knows_end=knows)


def may_stop(circle: Circle) -> bool:
    return circle.is_final


def place(epoch: int, **read: int) -> Place:
    return Place(epoch=epoch, read=read)


def test_a_region_rests_when_it_has_seen_its_own_newest_epoch() -> None:
    circle = Circle(SELF)
    circle.rests("a", place(3, loop=3), rest(loop=3))
    assert not may_stop(circle)
    circle.rests("a", place(3, loop=3), rest(loop=4))
    assert may_stop(circle)


def test_regions_rest_when_each_has_seen_the_newest_epoch_of_the_others() -> None:
    circle = Circle(PAIR)
    circle.rests("a", place(5, back=2), rest(back=3))
    circle.rests("b", place(2, over=5), rest(over=5))
    assert not may_stop(circle)  # b has not looked at a's epoch 5
    circle.rests("b", place(2, over=5), rest(over=6))
    assert may_stop(circle)
    circle.works("b", place(2, over=5), is_fresh=True, moves_rows=False)
    assert not may_stop(circle)


def test_the_end_is_told_before_regions_stop() -> None:
    circle = Circle(PAIR)
    circle.rests("a", place(0, back=0), rest(back=1, ended=True))
    circle.rests("b", place(0, over=1), rest(over=1, ended=True))
    assert circle.has_ended
    assert not may_stop(circle)
    # The end makes an epoch of a, which b has to see.
    circle.works("a", place(0, back=1), is_fresh=False, moves_rows=False)
    circle.rests("b", place(0, over=1), rest(over=1, ended=True, knows=True))
    circle.rests("a", place(1, back=1), rest(back=1, ended=True, knows=True))
    assert not may_stop(circle)
    circle.rests("b", place(1, over=2), rest(over=2, ended=True, knows=True))
    circle.rests("a", place(1, back=1), rest(back=2, ended=True, knows=True))
    assert may_stop(circle)


def test_a_round_of_a_region_that_feeds_itself_is_what_was_there() -> None:
    circle = Circle(SELF)
    circle.works("a", place(-1, loop=0), is_fresh=True, moves_rows=False)
    # What epoch 0 has fed is read in two epochs: one round.
    for epoch, read, rounds in [(0, 0, 0), (1, 0, 0), (2, 1, 1), (3, 3, 2)]:
        circle.works("a", place(epoch, loop=read), is_fresh=False, moves_rows=True)
        assert circle.rounds == rounds
    circle.works("a", place(4, loop=4), is_fresh=True, moves_rows=True)
    assert circle.rounds == 0


def test_rounds_begin_anew_when_all_have_rested() -> None:
    circle = Circle(SELF)
    for epoch in range(5):
        at = place(epoch, loop=epoch)
        circle.works("a", at, is_fresh=False, moves_rows=True)
    assert circle.rounds == 4
    circle.rests("a", place(5, loop=6), rest(loop=6))
    assert circle.rounds == 0


@dataclass
class World:
    """Regions that pass tokens on, each token for so many moves; nobody looks ahead."""

    topology: Topology
    chance: random.Random
    circle: Circle = field(init=False)
    # By channel: what each epoch of the writer has sent, as moves that are left.
    sent: dict[str, list[list[int]]] = field(default_factory=dict)
    read: dict[str, int] = field(default_factory=dict)
    epochs: dict[str, int] = field(default_factory=dict)
    sources: dict[str, deque[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.circle = Circle(self.topology)
        self.sent = {c.name: [] for c in self.topology.channels}
        self.read = dict.fromkeys(self.sent, 0)
        self.epochs = dict.fromkeys(self.topology.regions, -1)
        self.sources = {
            r: deque(self.chance.choices(range(6), k=self.chance.randrange(4)))
            for r in self.topology.regions
        }

    @property
    def is_empty(self) -> bool:
        unread = any(
            any(self.sent[name][at:]) for name, at in self.read.items() if self.sent
        )
        return not unread and not any(self.sources.values())

    def step(self) -> None:
        """Let a region plan: an epoch, or rest."""
        region = self.chance.choice(self.topology.regions)
        inputs = self.topology.inputs(region)
        at = Place(
            epoch=self.epochs[region], read={c.name: self.read[c.name] for c in inputs}
        )
        # What it sees of the others may be old.
        seen = {c.name: len(self.sent[c.name]) for c in inputs}
        if self.chance.random() < 0.3:
            for name, end in seen.items():
                seen[name] = self.chance.randint(self.read[name], end)
        rows = [
            row
            for c in inputs
            for sent in self.sent[c.name][self.read[c.name] : seen[c.name]]
            for row in sent
        ]
        source = self.sources[region]
        fresh = [source.popleft()] if source and self.chance.random() < 0.5 else []
        if not rows and not fresh and not source:
            said = Rest(seen=seen, is_final=True, has_ended=True, knows_end=True)
            self.circle.rests(region, at, said)
            return
        self.circle.works(region, at, is_fresh=bool(fresh), moves_rows=bool(rows))
        self.read |= seen
        ways = [c.name for c in self.topology.channels if c.writer == region]
        self.epochs[region] += 1
        for name in ways:
            self.sent[name].append([])
        for left in [*rows, *fresh]:
            if left and ways:
                self.sent[self.chance.choice(ways)][-1].append(left - 1)


def test_random_graphs_rest_exactly_when_nothing_is_left() -> None:
    sizes = set()
    for seed in range(500):
        chance = random.Random(seed)
        whole = random_topology(chance)
        topology = whole.circle_of(chance.choice(whole.regions))
        world = World(topology, chance)
        for _ in range(6000):
            world.step()
            if world.circle.is_final:
                break
        assert world.circle.is_final, f"seed {seed}: never at rest"
        assert world.is_empty, f"seed {seed}"
        assert world.circle.has_ended, f"seed {seed}"
        sizes.add(len(topology.regions))
    assert sizes == {1, 2, 3, 4, 5, 6}


class Hasty(Circle):
    """Believes a region that rests, whether or not it has seen what others did."""

    @property
    def _is_at_rest(self) -> bool:
        return self._rests.keys() == set(self.topology.regions)


def test_a_rule_that_is_wrong_is_found() -> None:
    def is_found(seed: int) -> bool:
        chance = random.Random(seed)
        world = World(PAIR, chance)
        world.circle = Hasty(PAIR)
        for _ in range(300):
            world.step()
            if world.circle.is_final:
                return not world.is_empty
        return False

    assert any(map(is_found, range(200)))


def test_circles_of_a_topology() -> None:
    topology = Topology(
        regions=("a", "b", "c", "d"),
        channels=(
            Channel(name="ab", writer="a", reader="b"),
            Channel(name="bc", writer="b", reader="c"),
            Channel(name="cd", writer="c", reader="d"),
            Channel(name="cb", writer="c", reader="b", is_back=True),
            Channel(name="dd", writer="d", reader="d", is_back=True),
        ),
    )
    found = {r: topology.circle_of(r) for r in topology.regions}
    assert {r: [c.name for c in t.channels] for r, t in found.items()} == {
        "a": [],
        "b": ["bc", "cb"],
        "c": ["bc", "cb"],
        "d": ["dd"],
    }
    assert found["b"].regions == ("b", "c")


def back(at: Place) -> Place:
    """Return the same after all have gone back."""
    return replace(at, reset=1)


def has_ended(circle: Circle) -> bool:
    return circle.has_ended


def test_what_was_said_before_all_went_back_does_not_count() -> None:
    circle = Circle(PAIR)
    circle.rests("a", place(5, back=2), rest(back=3, ended=True))
    circle.rests("b", place(2, over=6), rest(over=6, ended=True))
    assert has_ended(circle)
    here = back(place(6, back=1))
    circle.works("a", here, is_fresh=True, moves_rows=False)
    assert not has_ended(circle)
    # The other one does not know of it yet, and is not heard.
    circle.rests("b", place(2, over=7), rest(over=7, ended=True))
    circle.rests("a", here, rest(back=3, ended=True))
    assert not has_ended(circle)
    circle.rests("b", back(place(2, over=7)), rest(over=7, ended=True))
    assert has_ended(circle)
