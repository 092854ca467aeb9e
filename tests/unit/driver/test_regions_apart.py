"""Regions in runs of their own, as in processes of their own: joined by the store."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.chaos.processes import wait_until
from tests.unit.driver.ledger_flow import HALVES, balance, ledger, transfers
from tests.unit.driver.test_regions_run import arrived, expected, run

import riverlock as rl
from riverlock.coordinator.restart import NoRestart
from riverlock.core.errors import (
    InvalidConfigError,
    SourceUnavailableError,
)
from riverlock.snapshot.catalog import Catalog
from riverlock.storage.open import open_storage

REGIONS = ("main", *HALVES, "final")
SOON = 250.0


def begin(flow: rl.Flow, store: str, **options: Any) -> rl.Handle:
    """Start a flow, or one of its regions, on the local engine."""
    return flow.start(store, execution="local", **options)


def eventually(condition: Callable[[], bool], what: str) -> None:
    wait_until(condition, what, SOON)


def test_regions_run_one_after_the_other(tmp_path: Path) -> None:
    store, given = str(tmp_path / "s"), transfers(120)
    for size in (120, 200):
        given += transfers(size)[len(given) :]
        for region in REGIONS:
            run(ledger(given), store, region=region, max_rows_per_epoch=25)
        assert arrived(store) == expected(given)
    for region in REGIONS:
        assert Catalog(open_storage(store), region).newest() is not None


def test_regions_run_beside_each_other_and_end_after_their_writers(
    tmp_path: Path,
) -> None:
    store, given = str(tmp_path / "s"), transfers(150)
    # Those that are read are started last.
    handles = [
        begin(ledger(given), store, region=region, available_now=True)
        for region in reversed(REGIONS)
    ]
    for handle in handles:
        handle.wait(SOON)
        assert not handle.is_active
    assert arrived(store) == expected(given)


def test_a_region_goes_on_while_its_writer_runs(tmp_path: Path) -> None:
    store, given = str(tmp_path / "s"), transfers(20)
    writer = begin(ledger(given), store, region="main")
    east = begin(ledger(given), store, region="east", available_now=True)
    credited = Catalog(open_storage(store), "east")
    eventually(lambda: bool(credited.epochs()), "an epoch of east")
    before = credited.epochs()[-1]
    given += transfers(60)[20:]
    eventually(lambda: credited.epochs()[-1] > before, "another epoch of east")
    assert east.is_active
    writer.stop()
    assert east.wait(SOON)


def test_a_region_waits_for_the_first_epoch_of_its_writer(tmp_path: Path) -> None:
    store, given = str(tmp_path / "s"), transfers(20)
    waiting = begin(ledger(given), store, region="west")
    found = waiting.status()
    assert found.state == "starting"
    assert found.error is not None
    assert "region 'main', which fills it, does not run here" in found.error
    run(ledger(given), store, region="main")
    eventually(lambda: waiting.status().epoch is not None, "the first epoch of west")
    waiting.stop()
    with pytest.raises(SourceUnavailableError, match="'to-west' has no columns yet"):
        run(
            ledger(given),
            str(tmp_path / "other"),
            region="west",
            restart=NoRestart(),
        )


def test_a_misspelt_region_is_told(tmp_path: Path) -> None:
    flow = ledger(transfers(3))
    with pytest.raises(InvalidConfigError, match="'main', 'east'") as told:
        run(flow, str(tmp_path), region="finl")
    assert "did you mean 'final'?" in told.value.hint
    handle = begin(flow, str(tmp_path / "s"))
    with pytest.raises(InvalidConfigError, match="region"):
        handle.rescale(2, region="finl")
    with pytest.raises(InvalidConfigError, match="region"):
        handle.status("finl")
    assert handle.status("east").region == "east"
    handle.stop()


def test_a_snapshot_of_regions_in_runs_of_their_own(tmp_path: Path) -> None:
    store, given = str(tmp_path / "s"), transfers(80)
    handles = [begin(ledger(given), store, region=region) for region in REGIONS]
    named = handles[1].savepoint("v1")
    given += transfers(130)[80:]
    other = handles[-1].savepoint("v2", protocol="unaligned")
    for handle in handles:
        handle.stop()
    for each in (named, other):
        assert set(each.regions) == set(REGIONS)
        debited, accounted = balance(store, each)
        assert debited == accounted


def test_regions_have_a_pace_of_their_own(tmp_path: Path) -> None:
    flow, sink = paced(transfers(40), rl.sinks.memory())
    handle = begin(flow, str(tmp_path), parallelism=1, max_rows_per_epoch=1000)
    storage = open_storage(str(tmp_path))
    main, slow = Catalog(storage), Catalog(storage, "slow")
    eventually(lambda: len(sink.rows()) == 40, "all rows")
    first = main.newest()
    assert first is not None
    assert first.parallelism == 1
    assert {m.parallelism for m in map(slow.manifest, slow.epochs())} == {3}
    handle.rescale(2, region="slow")
    handle.stop()


class Remembers(rl.Process):
    """Emits what it gets, if that is not too much."""

    output = "target string, amount long"
    limit = rl.Param(1_000, doc="the most that passes")
    seen = rl.Value("long", default=0)

    def on_event(self, transfer: Any, ctx: rl.Context) -> Any:
        self.seen += 1
        if transfer.amount <= self.limit:
            yield transfer.target, transfer.amount


def paced(given: list[Any], sink: Any, **options: Any) -> tuple[rl.Flow, Any]:
    """Return a flow of two regions, the second with options of its own."""
    from riverlock.testing import rows

    flow = rl.Flow("paced", key_groups=8)
    columns = "source string, target string, amount long"
    read = flow.read(rows(columns, given), uid="in").key_by("source")
    first = read.process(Remembers(), uid="first")
    own = {"parallelism": 3, "max_rows_per_epoch": 7, **options}
    behind = first.region("slow", uid="to-slow", **own)
    behind.key_by("target").process(Remembers(), uid="last").write(sink, uid="out")
    return flow, sink


def test_streams_that_enter_a_region_agree_on_its_options() -> None:
    from riverlock.core.errors import InvalidFlowError
    from riverlock.testing import rows

    read = rl.Flow("two").read(rows("k string", []), uid="in")
    read.region("slow", uid="a", parallelism=2)
    read.region("slow", uid="b")
    read.region("slow", uid="c", parallelism=2)
    with pytest.raises(InvalidFlowError, match="parallelism=2"):
        read.region("slow", uid="d", parallelism=3)
    for wrong in ({"parallelism": 0}, {"max_rows_per_epoch": "many"}):
        with pytest.raises(InvalidConfigError):
            read.region("other", uid="e", **wrong)


def test_parameters_of_each_region_change_with_its_next_epoch(tmp_path: Path) -> None:
    given = transfers(10)
    flow, sink = paced(given, rl.sinks.memory())
    handle = begin(flow, str(tmp_path))
    storage = open_storage(str(tmp_path))
    eventually(lambda: len(sink.rows()) == 10, "the first rows")
    epoch = handle.set("last", limit=0)
    slow = Catalog(storage, "slow")
    taken = slow.manifest(epoch).operators["last"].parameters["limit"]
    assert (taken.value, taken.since) == (0, epoch)
    main = Catalog(storage).newest()
    assert main is not None
    assert main.operators["first"].parameters["limit"].value is None
    with pytest.raises(InvalidConfigError, match="'lats'"):
        handle.set("lats", limit=1)
    given += transfers(20)[10:]
    eventually(
        lambda: (
            (newest := slow.newest()) is not None
            and any(r.rows for r in newest.inputs.values())
            and newest.epoch > epoch
        ),
        "an epoch with the others",
    )
    handle.stop()
    assert len(sink.rows()) == 10
    alone = begin(flow, str(tmp_path), region="main")
    with pytest.raises(InvalidConfigError, match="one of region 'slow'"):
        alone.set("last", limit=1)
    alone.stop()
