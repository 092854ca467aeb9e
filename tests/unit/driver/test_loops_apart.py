"""Regions that feed each other in runs of their own, joined by the store alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.unit.driver.ledger_flow import bouncing_balance, bouncing_ledger, transfers
from tests.unit.driver.test_loop_snapshots import received
from tests.unit.driver.test_regions_run import expected

import riverlock as rl
from riverlock.core.errors import EndlessLoopError
from riverlock.snapshot.catalog import Catalog
from riverlock.snapshot.stands import read_stand
from riverlock.storage.open import open_storage
from riverlock.testing import rows

SOON = 250.0


def begin(flow: rl.Flow, store: str, **options: Any) -> rl.Handle:
    return flow.start(store, execution="local", **options)


def live(
    store: str, given: list[Any], *, bounded: bool, order: tuple[str, ...]
) -> None:
    """Run both regions until the loop is empty."""
    handles = [
        begin(
            bouncing_ledger(given, bounded=bounded),
            store,
            region=region,
            available_now=True,
            max_rows_per_epoch=20,
        )
        for region in order
    ]
    for handle in handles:
        handle.wait(SOON)
        assert not handle.is_active


def test_regions_of_a_loop_end_together_day_by_day(tmp_path: Path) -> None:
    store, given = str(tmp_path / "s"), transfers(40)
    live(store, given, bounded=False, order=("main", "bank"))
    assert received(store) == expected(given)
    # What was said the day before does not end a region before the other has begun.
    given += transfers(70)[40:]
    live(store, given, bounded=False, order=("bank", "main"))
    assert received(store) == expected(given)
    # Nor if there is nothing to do at all.
    live(store, given, bounded=False, order=("main", "bank"))
    assert received(store) == expected(given)
    assert rl.stores.verify(store).is_whole


def test_bounded_input_ends_time_for_all_of_them(tmp_path: Path) -> None:
    store, given = str(tmp_path / "s"), transfers(30)
    live(store, given, bounded=True, order=("bank", "main"))
    assert received(store) == expected(given)
    for region in ("main", "bank"):
        stand = read_stand(Catalog(open_storage(store), region))
        assert stand is not None
        assert stand.rests is not None
        assert stand.rests.knows_end


@pytest.mark.parametrize("protocol", ["aligned", "drain"])
def test_snapshots_of_a_loop_over_runs(tmp_path: Path, protocol: Any) -> None:
    store, given = str(tmp_path / "s"), transfers(40)
    regions = ("main", "bank")
    handles = [begin(bouncing_ledger(given), store, region=r) for r in regions]
    given += transfers(80)[40:]
    named = handles[0].savepoint("v", protocol=protocol)
    for handle in handles:
        handle.stop()
    assert len(set(bouncing_balance(store, named))) == 1


def test_regions_of_a_loop_go_back_together_and_end_together(tmp_path: Path) -> None:
    store, given = str(tmp_path / "s"), transfers(40)
    handles = [
        begin(bouncing_ledger(given), store, region=region)
        for region in ("main", "bank")
    ]
    handles[0].savepoint("v", protocol="unaligned")
    given += transfers(70)[40:]
    assert handles[1].restore("v").waiting == ()
    for handle in handles:
        handle.stop()
        handle.wait(SOON)
    live(store, given, bounded=False, order=("bank", "main"))
    assert received(store) == expected(given)
    rl.stores.restore_all(f"{store}@v")
    live(store, given, bounded=False, order=("main", "bank"))
    assert received(store) == expected(given)


def test_a_loop_that_never_empties_is_stopped_in_runs_of_their_own(
    tmp_path: Path,
) -> None:
    class Passed(rl.Process):
        output = "k string"

        def on_event(self, e: Any, ctx: rl.Context) -> Any:
            yield (e.k,)

    def endless() -> rl.Flow:
        flow = rl.Flow("endless", key_groups=8)
        new = flow.read(rows("k string", [("a",)]), uid="in")
        again = flow.loop("k string", uid="again", max_rounds=3)
        there = new.union(again).key_by("k").process(Passed(), uid="there")
        back = there.region("other", uid="over").key_by("k")
        back.process(Passed(), uid="back").feed(again)
        return flow

    store = str(tmp_path / "s")
    other = begin(endless(), store, region="other")
    with pytest.raises(EndlessLoopError, match="again"):
        begin(endless(), store, region="main", available_now=True).wait(SOON)
    other.stop()
