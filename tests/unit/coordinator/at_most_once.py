"""The same world for a region that is at most once: no row leaves twice, some never."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any

from tests.unit.coordinator.simulation import Simulation
from tests.unit.coordinator.world import World, expect, rows_between

from riverlock.coordinator import RegionPlan
from riverlock.core.guarantees import AT_MOST_ONCE
from riverlock.snapshot.format.records import Manifest

__all__ = ["AtMostOnce"]


@dataclass
class OnceWorld(World):
    """Sinks that count how often they are asked; state is checked as ever."""

    asked: Counter[tuple[str, int]] = field(default_factory=Counter)

    def plan(self) -> RegionPlan:
        return replace(super().plan(), guarantee=AT_MOST_ONCE)

    def put(self, manifest: Manifest) -> bool:
        if not self.store.put(manifest):
            return False
        self.check_state(manifest)
        return True

    def commit(self, name: str, epoch: int, run: int, tokens: tuple[Any, ...]) -> bool:
        self.asked[name, epoch] += 1
        expect(self.asked[name, epoch] == 1, f"{name!r} was asked twice for {epoch}")
        manifest = self.store.manifests.get(epoch)
        expect(manifest, f"{name!r} was given epoch {epoch} before its decision")
        assert manifest is not None
        expect(manifest.run == run, f"{name!r} was given epoch {epoch} of another run")
        rows = tuple(row for t in tokens for row in self.files[t])
        wanted = sorted(rows_between(manifest.inputs))
        expect(sorted(rows) == wanted, f"{name!r} was given other rows of {epoch}")
        return self.sinks[name].commit(epoch, run, rows)

    def is_done(self) -> bool:
        newest = self.store.newest()
        ends = {} if newest is None else {s: r.end for s, r in newest.inputs.items()}
        return all(ends.get(s, 0) == n for s, n in self.available.items())


class AtMostOnce(Simulation):
    """One seed, played with such a region."""

    world_type = OnceWorld

    def check(self) -> None:
        for name, sink in self.world.sinks.items():
            found = [row for _, rows in sink.commits.values() for row in rows]
            expect(len(found) == len(set(found)), f"{name!r} holds a row twice")
            lacking = len(self.world.store.manifests) - len(sink.commits)
            self.faults["missing"] += lacking
