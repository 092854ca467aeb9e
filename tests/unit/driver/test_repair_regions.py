"""Repair of stores of several regions: back to whole epochs that fit together."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.unit.driver.ledger_flow import HALVES, ledger, transfers
from tests.unit.driver.test_live_resets import gains, wanted
from tests.unit.driver.test_regions_run import arrived, expected, run

import riverlock as rl
from riverlock.cli import main
from riverlock.core.errors import (
    FencedError,
    InvalidConfigError,
    SnapshotCorruptedError,
    SnapshotNotFoundError,
)
from riverlock.snapshot.catalog import Catalog
from riverlock.storage.open import open_storage

REGIONS = ("main", *HALVES, "final")


class Shop:
    """A store of the ledger, and its output."""

    def __init__(self, place: Path) -> None:
        self.place, self.store = place / "s", str(place / "s")
        self.out = place / "out"
        self.given = transfers(60)
        self.run(max_rows_per_epoch=10)

    def run(self, **options: Any) -> None:
        sink = rl.sinks.files(str(self.out), format="json")
        run(ledger(self.given, sink), self.store, **options)

    def more(self, count: int) -> None:
        self.given += transfers(len(self.given) + count)[len(self.given) :]

    def damage(self, pattern: str) -> Path:
        """Damage the newest file of a kind."""
        path = sorted(self.place.glob(pattern))[-1]
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(bytes(data))
        return path

    def newest(self, region: str) -> int:
        return Catalog(open_storage(self.store), region).epochs()[-1]

    def check_end(self) -> None:
        """Go on, and compare with plain Python."""
        self.more(40)
        self.run(max_rows_per_epoch=15)
        assert arrived(self.store) == expected(self.given)
        assert gains(self.out) == wanted(self.given)
        assert rl.stores.verify(self.store).is_whole


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


def test_who_has_read_what_is_undone_goes_back_too(shop: Shop) -> None:
    shop.damage("regions/east/state/credit-east/*.parquet")
    with pytest.raises(InvalidConfigError, match=r"repair_all\(\)"):
        rl.stores.repair(shop.store)
    shown = rl.stores.repair_all(shop.store, dry_run=True)
    assert set(shown.back) == {"east", "final"}
    assert "is damaged" in shown.why["east"]
    assert "of region 'east', which is undone" in shown.why["final"]
    assert not (shop.place / "resets").exists()

    plan = rl.stores.repair_all(shop.store)

    assert plan.named.regions == shown.named.regions
    assert rl.stores.verify(shop.store).is_whole
    assert not rl.stores.repair_all(shop.store, dry_run=True).is_needed
    shop.check_end()


@pytest.mark.parametrize("region", REGIONS)
def test_a_damaged_manifest(shop: Shop, region: str) -> None:
    shop.damage(f"regions/{region}/epochs/*.json")
    with pytest.raises(SnapshotCorruptedError):
        shop.run()
    plan = rl.stores.repair_all(shop.store)
    behind = {"main": REGIONS, "final": ("final",)}.get(region, (region, "final"))
    assert set(plan.back) <= set(behind)
    assert region in plan.back
    shop.check_end()


def test_rows_that_were_not_read_are_written_again(shop: Shop) -> None:
    shop.more(30)
    flow = ledger(shop.given, rl.sinks.files(str(shop.out), format="json"))
    flow.run(
        shop.store,
        execution="local",
        region="main",
        available_now=True,
        max_rows_per_epoch=10,
    )
    shop.damage("regions/main/channels/to-east/*.parquet")
    plan = rl.stores.repair_all(shop.store)
    assert set(plan.back) == {"main"}
    assert "not read yet" in plan.why["main"]
    shop.check_end()


def test_rows_that_were_read_take_nobody_back(shop: Shop) -> None:
    path = shop.damage("regions/main/channels/to-east/*.parquet")
    plan = rl.stores.repair_all(shop.store)
    assert not plan.back
    assert str(path.relative_to(shop.place)) in plan.moved
    shop.run()
    assert arrived(shop.store) == expected(shop.given)


def test_nothing_is_left_that_fits(shop: Shop) -> None:
    for path in shop.place.glob("regions/east/epochs/*.json"):
        path.write_bytes(b"damaged")
    before = sorted(shop.place.rglob("*"))
    with pytest.raises(SnapshotNotFoundError, match="whole epoch of region 'east'"):
        rl.stores.repair_all(shop.store)
    assert sorted(shop.place.rglob("*")) == before


def test_a_flow_that_runs_is_not_repaired(shop: Shop) -> None:
    shop.damage("regions/east/state/credit-east/*.parquet")
    flow = ledger(shop.given, rl.sinks.files(str(shop.out), format="json"))
    handle = flow.start(shop.store, execution="local", region="main")
    try:
        with pytest.raises(FencedError):
            rl.stores.repair_all(shop.store)
    finally:
        handle.stop()
        handle.wait()


def test_the_command_shows_its_plan_first(shop: Shop) -> None:
    shop.damage("regions/east/state/credit-east/*.parquet")

    def told(*words: str) -> str:
        ended = CliRunner().invoke(main, ["repair", shop.store, *words])
        assert ended.exit_code == 0, ended.output
        return ended.output

    shown = told("--dry-run")
    assert "final: goes back to" in shown
    assert "final: since" in shown
    assert "which is undone" in shown
    done = json.loads(told("--yes", "--json"))
    assert set(done["plan"]["restore"]) == {"east", "final"}
    assert set(done["plan"]["lost"]) == {"east"}
    assert "nothing to repair" in told()
    shop.check_end()


@pytest.mark.parametrize(
    "seed",
    [*range(2), *(pytest.param(n, marks=pytest.mark.slow) for n in range(2, 40))],
)
def test_whatever_is_damaged(tmp_path: Path, seed: int) -> None:
    shop, chance = Shop(tmp_path), random.Random(seed)
    kinds = ("epochs/*.json", "state/*/*.parquet", "channels/*/*.parquet")
    for _ in range(chance.choice((1, 2, 4))):
        found = sorted(shop.place.glob(f"regions/*/{chance.choice(kinds)}"))
        path = chance.choice(found)
        if chance.random() < 0.3 and path.suffix != ".json":
            path.unlink()
        else:
            path.write_bytes(b"x" + path.read_bytes()[1:])
    try:
        rl.stores.repair_all(shop.store)
    except SnapshotNotFoundError:
        return
    shop.more(40)
    shop.run(max_rows_per_epoch=15)
    assert arrived(shop.store) == expected(shop.given)
    assert gains(shop.out) == wanted(shop.given)
