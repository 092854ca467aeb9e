"""Random mishaps to the store of four regions: what comes of it is told, or exact.

Backups are put back as a whole, for some regions alone, or are of several moments, as
when a store is copied while it runs; newest epochs vanish; snapshots are taken and gone
back to; retention keeps hardly anything. A run may refuse to go on. If it does not,
state, output and every snapshot are right.
"""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.chaos.test_regions import written
from tests.unit.driver.ledger_flow import balance, ledger, transfers
from tests.unit.driver.test_regions_run import PROTOCOLS, arrived, expected

import riverlock as rl
from riverlock.core.errors import RiverlockError
from riverlock.snapshot.catalog import Catalog
from riverlock.snapshot.retention.policy import Retention, sweep
from riverlock.storage.open import open_storage

pytestmark = pytest.mark.chaos

REGIONS = ("main", "east", "west", "final")
LATER = datetime.now(UTC) + timedelta(days=30)


class World:
    """A store, its input and output, and what was kept of the store."""

    def __init__(self, place: Path, seed: int) -> None:
        self.chance = random.Random(seed)
        self.place, self.store = place, place / "s"
        self.given: list[Any] = []
        self.backups: list[Path] = []
        self.snapshots = 0

    def flow(self) -> rl.Flow:
        out = rl.sinks.files(str(self.place / "out"), format="json")
        return ledger(self.given, out)

    def options(self) -> dict[str, Any]:
        rows = self.chance.choice((3, 7, 20, 100))
        return {"execution": "local", "max_rows_per_epoch": rows}

    def more_comes(self) -> None:
        count = len(self.given) + self.chance.randrange(5, 40)
        self.given += transfers(count)[len(self.given) :]

    def runs(self, epochs: int | None = None) -> None:
        self.flow().run(
            str(self.store), available_now=True, max_epochs=epochs, **self.options()
        )

    def runs_for_a_while(self) -> None:
        self.runs(self.chance.randrange(1, 5))

    def snapshot(self) -> None:
        self.snapshots += 1
        handle = self.flow().start(str(self.store), **self.options())
        try:
            protocol = self.chance.choice(PROTOCOLS)
            handle.savepoint(f"v{self.snapshots}", protocol=protocol)
        finally:
            handle.stop()

    def names(self) -> list[str]:
        return sorted(p.stem for p in (self.store / "snapshots").glob("*.json"))

    def goes_back(self) -> None:
        if self.names():
            name = self.chance.choice(self.names())
            rl.stores.restore_all(f"{self.store}@{name}")

    def is_swept(self) -> None:
        for region in self.chance.sample(REGIONS, 2):
            catalog = Catalog(open_storage(str(self.store)), region)
            keep = Retention(epochs=self.chance.choice((1, 3)), grace=timedelta(0))
            sweep(catalog, keep, now=LATER)

    def is_copied(self) -> None:
        """Copy the store; perhaps while it runs: a part now, the rest later."""
        parts = self._parts()
        self.chance.shuffle(parts)
        first = self.chance.choice((len(parts), self.chance.randrange(len(parts))))
        backup = self.place / f"backup-{len(self.backups)}"
        copied(self.store, backup, parts[:first])
        if first < len(parts):
            self.more_comes()
            self.runs()
        copied(self.store, backup, parts[first:])
        self.backups.append(backup)

    def _parts(self) -> list[Path]:
        found = [*self.store.glob("regions/*"), *self.store.glob("*")]
        return [p.relative_to(self.store) for p in sorted(found) if p.name != "regions"]

    def is_put_back(self) -> None:
        shutil.rmtree(self.store)
        shutil.copytree(self.chance.choice(self.backups), self.store)

    def some_regions_are_put_back(self) -> None:
        backup = self.chance.choice(self.backups)
        for region in self.chance.sample(REGIONS, self.chance.randrange(1, 5)):
            shutil.rmtree(self.store / "regions" / region, ignore_errors=True)
            kept = backup / "regions" / region
            if kept.exists():
                shutil.copytree(kept, self.store / "regions" / region)

    def newest_epochs_vanish(self) -> None:
        folder = self.store / "regions" / self.chance.choice(REGIONS) / "epochs"
        for file in sorted(folder.glob("*.json"))[-self.chance.randrange(1, 3) :]:
            file.unlink()

    def check(self) -> None:
        """Check that nothing is missing or there twice."""
        assert arrived(str(self.store)) == expected(self.given)
        wanted: dict[str, Counter[int]] = {}
        for _, target, amount in self.given:
            wanted.setdefault(target, Counter())[amount] += 1
        assert written(self.place) == wanted
        catalog = Catalog(open_storage(str(self.store)))
        for named in catalog.snapshots():
            for debited, accounted in balances(str(self.store), named):
                assert debited == accounted, named


def copied(store: Path, to: Path, parts: list[Path]) -> None:
    for part in parts:
        if (store / part).is_dir():
            shutil.copytree(store / part, to / part, dirs_exist_ok=True)
        elif (store / part).exists():
            (to / part).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(store / part, to / part)


def balances(store: str, named: Any) -> Iterator[tuple[int, int]]:
    """Yield what a snapshot says of money, unless it is refused."""
    try:
        yield balance(store, named)
    except (RiverlockError, FileNotFoundError):
        return


MISHAPS = (
    World.more_comes,
    World.runs_for_a_while,
    World.runs_for_a_while,
    World.snapshot,
    World.goes_back,
    World.is_swept,
    World.is_copied,
    World.is_put_back,
    World.some_regions_are_put_back,
    World.newest_epochs_vanish,
)


@pytest.mark.parametrize(
    "seed", [0, 1, *(pytest.param(n, marks=pytest.mark.slow) for n in range(2, 60))]
)
def test_what_comes_of_mishaps_is_told_or_exact(tmp_path: Path, seed: int) -> None:
    world = World(tmp_path, seed)
    world.more_comes()
    world.runs()
    world.is_copied()
    try:
        for act in world.chance.choices(MISHAPS, k=6):
            act(world)
        world.more_comes()
        world.runs()
    except RiverlockError:
        return
    world.check()
