"""Regions that are not of one moment: a backup of one alone, or of all while they ran.

An epoch's number is no identity: a region that was put back decides it a second time.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.unit.driver.ledger_flow import ledger, transfers
from tests.unit.driver.test_regions_run import arrived, expected, run
from tests.unit.snapshot.builders import manifest

import riverlock as rl
from riverlock.connectors.channel.ends import ChannelSource
from riverlock.connectors.channel.reader import ChannelReader
from riverlock.core.errors import (
    SnapshotNotFoundError,
    SourceError,
    StateSchemaError,
)
from riverlock.snapshot.catalog import Catalog
from riverlock.storage.local import LocalStorage
from riverlock.storage.open import open_storage
from riverlock.testing import rows


def put_back(backup: Path, store: Path, *regions: str) -> None:
    for name in regions:
        shutil.rmtree(store / "regions" / name)
        shutil.copytree(backup / "regions" / name, store / "regions" / name)


def epochs(store: Path) -> dict[str, list[int]]:
    catalog = Catalog(open_storage(str(store)))
    return {region: catalog.of(region).epochs() for region in catalog.regions()}


@pytest.mark.parametrize("behind", [("main",), ("main", "west"), ("east", "west")])
def test_a_writer_that_was_put_back_alone_ends_the_start(
    tmp_path: Path, behind: tuple[str, ...]
) -> None:
    store, given = tmp_path / "s", transfers(40)
    run(ledger(given), str(store), max_rows_per_epoch=5)
    shutil.copytree(store, tmp_path / "backup")
    given += transfers(80)[40:]
    run(ledger(given), str(store), max_rows_per_epoch=5)
    put_back(tmp_path / "backup", store, *behind)
    before = epochs(store)
    given += transfers(100)[80:]

    with pytest.raises(SourceError, match="has no such epoch"):
        ledger(given).check(store=str(store), execution="local")
    with pytest.raises(SourceError, match="has no such epoch") as told:
        run(ledger(given), str(store))

    assert "backup" in str(told.value)
    assert epochs(store) == before, "no region has decided anything"
    # A backup of the whole store is what helps.
    put_back(tmp_path / "backup", store, "main", "east", "west", "final")
    ledger(given).check(store=str(store), execution="local")
    run(ledger(given), str(store))
    assert arrived(str(store)) == expected(given)


def test_a_reader_that_was_put_back_alone_reads_again(tmp_path: Path) -> None:
    store, given = tmp_path / "s", transfers(40)
    run(ledger(given), str(store), max_rows_per_epoch=5)
    shutil.copytree(store, tmp_path / "backup")
    given += transfers(80)[40:]
    run(ledger(given), str(store), max_rows_per_epoch=5)
    put_back(tmp_path / "backup", store, "final")

    run(ledger(given), str(store))

    assert arrived(str(store)) == expected(given)


def test_a_newest_epoch_that_is_gone_is_told_by_its_reader(tmp_path: Path) -> None:
    store, given = tmp_path / "s", transfers(40)
    run(ledger(given), str(store), max_rows_per_epoch=5)
    main = Catalog(open_storage(str(store)))
    main.storage.delete(main.paths.manifest(main.epochs()[-1]))

    with pytest.raises(SourceError, match="has no such epoch"):
        run(ledger(given), str(store))


class Writer:
    """A region that decides epochs, each by the run of some token."""

    def __init__(self, path: Path) -> None:
        self.catalog = Catalog(LocalStorage(path))
        self.history: tuple[tuple[int, str], ...] = ()
        self.next = 0

    def decide(self, count: int, token: str) -> None:
        import msgspec

        self.history = (*self.history, (self.next, token))
        for epoch in range(self.next, self.next + count):
            made = msgspec.structs.replace(manifest(epoch), history=self.history)
            assert self.catalog.decide(made)
        self.next += count

    def forget(self, first: int) -> None:
        for epoch in range(first, self.next):
            self.catalog.storage.delete(self.catalog.paths.manifest(epoch))
        self.next = first
        self.history = tuple((e, t) for e, t in self.history if e < first)

    def reader(self) -> ChannelReader:
        source = ChannelSource(name="x", writer="main")
        return ChannelReader(source, "x-read", self.catalog.storage)


def position(epoch: int, token: str) -> dict[str, Any]:
    return {"region": "main", "channel": "x", "epoch": epoch, "token": token}


def test_epochs_that_were_decided_a_second_time_are_not_those_that_were_read(
    tmp_path: Path,
) -> None:
    writer = Writer(tmp_path)
    writer.decide(4, "one")
    writer.decide(2, "two")
    here = position(6, "two")
    assert writer.reader().latest(here) == here

    writer.forget(4)
    with pytest.raises(SourceError, match="has no such epoch"):
        writer.reader().latest(here)
    writer.decide(1, "three")
    with pytest.raises(SourceError, match="has no such epoch"):
        writer.reader().latest(here)
    writer.decide(3, "four")
    for read in (writer.reader().latest, writer.reader().check_place):
        with pytest.raises(SourceError, match="another epoch of that number"):
            read(here)
    # What was read before is the same.
    assert writer.reader().latest(position(4, "one")) == position(4, "one")


def test_a_position_is_told_though_what_led_there_was_deleted(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    writer.decide(3, "one")
    writer.decide(3, "two")
    for epoch in range(3):
        writer.catalog.storage.delete(writer.catalog.paths.manifest(epoch))
    here = position(3, "one")

    reader = writer.reader()

    assert reader.latest(here) == here
    assert reader.until(here, 3) == here
    assert reader.advance(here, here, 10) == here
    with pytest.raises(SourceError, match="another epoch of that number"):
        writer.reader().latest(position(3, "other"))


def test_a_name_is_that_of_the_epochs_it_was_given_to(tmp_path: Path) -> None:
    """Regions are put back from a backup, and what names them is not."""
    store, given = tmp_path / "s", transfers(20)
    run(ledger(given), str(store), max_rows_per_epoch=5)
    shutil.copytree(store, tmp_path / "backup")
    handle = ledger(given).start(str(store), execution="local", max_rows_per_epoch=5)
    given += transfers(40)[20:]
    handle.savepoint("then")
    handle.stop()
    put_back(tmp_path / "backup", store, "main", "east", "west", "final")
    given += transfers(80)[40:]
    run(ledger(given), str(store), max_rows_per_epoch=2)

    assert arrived(str(store)) == expected(given)
    for look in (
        lambda: rl.open(str(store)).at("then"),
        lambda: rl.stores.restore_all(f"{store}@then"),
    ):
        with pytest.raises(SnapshotNotFoundError, match="another epoch of that number"):
            look()


def test_a_name_of_one_region_too(tmp_path: Path) -> None:
    from tests.unit.snapshot.small_flow import SmallFlow

    rows = [(f"k{n % 3}", n) for n in range(30)]
    flow = SmallFlow(tmp_path / "s", rows, tmp_path / "out")
    flow.run(2)
    shutil.copytree(flow.store / "regions", tmp_path / "regions")
    flow.run(3)
    rl.stores.savepoint(f"{flow.store}@4", "then")
    assert rl.open(str(flow.store)).at("then").epoch == 4
    shutil.rmtree(flow.store / "regions")
    shutil.copytree(tmp_path / "regions", flow.store / "regions")
    flow.run(4, epoch_rows=7)

    with pytest.raises(SnapshotNotFoundError, match="another epoch of that number"):
        rl.open(str(flow.store)).at("then")
    with pytest.raises(SnapshotNotFoundError, match="another epoch of that number"):
        rl.stores.restore(f"{flow.store}@then")


def chain(given: list[Any], region: str | None, *retired: str) -> rl.Flow:
    """Return a flow whose second operator is in a region, or in that of the first."""

    class Counted(rl.Process):
        output = "target string, n long"
        n = rl.Value("long", default=0)

        def on_event(self, transfer: Any, ctx: rl.Context) -> Any:
            self.n += 1
            yield transfer.target, self.n

    flow = rl.Flow("chain", key_groups=8)
    columns = "source string, target string, amount long"
    first = flow.read(rows(columns, given), uid="in").key_by("target")
    stream = first.process(Counted(), uid="first")
    if region is not None:
        stream = (
            stream.region(region, uid="x")
            .key_by("target")
            .process(Counted(), uid="second")
        )
    stream.write(rl.sinks.memory(), uid="out")
    return flow.retired(*retired)


@pytest.mark.parametrize("region", [None, "another"])
def test_code_without_a_region_that_has_state_is_refused(
    tmp_path: Path, region: str | None
) -> None:
    store, given = tmp_path / "s", transfers(20)
    run(chain(given, "here"), str(store))
    before = epochs(store)

    new = chain(given, region)
    acts: list[Callable[[], object]] = [
        lambda: new.check(store=str(store), execution="local"),
        lambda: run(new, str(store)),
        lambda: run(new, str(store)),
    ]
    for act in acts:
        with pytest.raises(StateSchemaError, match="no region 'here'") as told:
            act()
        assert told.value.operator == "second"
        assert "flow.retired('second')" in told.value.hint
        assert epochs(store) == before

    given += transfers(30)[20:]
    run(chain(given, region, "second"), str(store))
    run(chain(given, region), str(store))
