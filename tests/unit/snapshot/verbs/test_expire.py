from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path

import pytest
from tests.unit.snapshot.builders import as_dict, catalog, manifest, write
from tests.unit.snapshot.killing import killed_at

import riverlock as rl
from riverlock.core.clock import ManualClock
from riverlock.core.errors import InvalidConfigError, SnapshotNotFoundError
from riverlock.snapshot.catalog import Catalog
from riverlock.snapshot.retention.lease import leased
from riverlock.snapshot.retention.pins import pins
from riverlock.snapshot.retention.policy import Retention, sweep
from riverlock.snapshot.state_reader import read_entries
from riverlock.snapshot.verbs.verify import verify
from riverlock.storage import LocalStorage

EPOCHS = 6


def old(path: Path) -> None:
    """Let every file of a store be a day old."""
    for file in path.rglob("*"):
        os.utime(file, (1, 1))


@pytest.fixture
def store(tmp_path: Path) -> Catalog:
    """Epochs 1 to 6; each replaces the file of the one before."""
    made = catalog(LocalStorage(tmp_path / "store"))
    for epoch in range(1, EPOCHS + 1):
        entries: dict[str, int | None] = {"a": epoch, f"k{epoch}": epoch}
        assert made.decide(manifest(epoch, (write(made.storage, epoch, entries),)))  # type: ignore[arg-type]
    old(tmp_path)
    return made


def where(store: Catalog) -> str:
    return store.storage.uri


def files(store: Catalog) -> list[int]:
    found = [e.path for e in store.storage.list(store.paths.state)]
    return [int(p.rsplit("/")[-1][:12]) for p in found]


@pytest.mark.parametrize(
    ("limits", "kept"),
    [
        ({"epochs": 2}, [2, 5, 6]),
        ({"older_than": "1 second"}, [2, 6]),
        ({"max_bytes": 1}, [2, 6]),
        ({"max_bytes": 10**9}, [1, 2, 3, 4, 5, 6]),
        ({"older_than": "1 second", "epochs": 3}, [2, 6]),
    ],
)
def test_expire_spares_the_newest_and_what_has_a_name(
    store: Catalog, limits: dict[str, object], kept: list[int]
) -> None:
    store.pin("v1", epoch=2, now_us=0)

    shown = rl.stores.expire(where(store), **limits, dry_run=True)  # type: ignore[arg-type]

    assert store.epochs() == [1, 2, 3, 4, 5, 6]
    assert rl.stores.expire(where(store), **limits) == shown  # type: ignore[arg-type]
    assert store.epochs() == kept
    assert files(store) == kept
    assert all(report.is_whole for report in verify(store))


def test_max_bytes_keeps_as_many_of_the_newest_as_fit(store: Catalog) -> None:
    sizes = [store.manifest(e).operators["op"].files[0].bytes for e in store.epochs()]

    plan = rl.stores.expire(where(store), max_bytes=sum(sizes[-2:]))

    assert store.epochs() == [5, 6]
    assert plan.bytes == sum(sizes[:-2])
    assert plan.bytes_left == sum(sizes[-2:])


def test_expire_needs_a_limit(store: Catalog) -> None:
    with pytest.raises(InvalidConfigError, match="a limit"):
        rl.stores.expire(where(store))


def test_expire_spares_young_epochs(store: Catalog) -> None:
    os.utime(str(store.storage.local_path(store.paths.manifest(3))))

    plan = rl.stores.expire(where(store), epochs=1)

    assert store.epochs() == [3, 6]
    assert plan.spared == {3: ("decided within the grace period",)}


@pytest.mark.parametrize(
    ("point", "count", "epochs", "numbers"),
    [
        ("V7", 1, [1, 2, 3, 4, 5, 6], [1, 2, 3, 4, 5, 6]),
        ("V2", 1, [2, 3, 4, 5, 6], [1, 2, 3, 4, 5, 6]),
        ("V2", 3, [4, 5, 6], [1, 2, 3, 4, 5, 6]),
        ("V3", 1, [5, 6], [1, 2, 3, 4, 5, 6]),
        ("V4", 2, [5, 6], [3, 4, 5, 6]),
    ],
)
def test_an_expiry_that_is_killed_leaves_whole_epochs(
    store: Catalog, point: str, count: int, epochs: list[int], numbers: list[int]
) -> None:
    def expire() -> None:
        rl.stores.expire(where(store), epochs=2)

    assert killed_at(point, expire, count=count)

    assert store.epochs() == epochs
    assert files(store) == numbers
    assert all(report.is_whole for report in verify(store))
    expire()
    assert store.epochs() == [5, 6]
    assert all(report.is_whole for report in verify(store))
    sweep(store, Retention())
    assert files(store) == [5, 6]


def test_an_epoch_that_is_being_deleted_cannot_be_named(store: Catalog) -> None:
    def expire() -> None:
        rl.stores.expire(where(store), epochs=2)

    assert killed_at("V7", expire)

    # Whoever announced it may have looked for names before ours, and delete it now.
    with pytest.raises(SnapshotNotFoundError, match="until it is deleted"):
        store.pin("v1", epoch=2, now_us=0)
    assert store.snapshots() == []
    store.pin("v6", epoch=6, now_us=0)
    # After some minutes it is known to be dead.
    for entry in store.storage.list(store.paths.expiring):
        os.utime(str(store.storage.local_path(entry.path)), (1, 1))
    store.pin("v1", epoch=2, now_us=0)
    sweep(store, Retention(epochs=1))
    assert store.epochs() == [2, 6]
    assert list(store.storage.list(store.paths.expiring)) == []


def test_a_lease_keeps_what_is_read_until_it_runs_out(store: Catalog) -> None:
    with rl.stores.lease(f"{where(store)}@3"):
        sweep(store, Retention(epochs=1))
        state = store.manifest(3).operators["op"]
        found = read_entries(store.storage, state, now_us=0)

    assert store.epochs() == [3, 6]
    assert found is not None
    assert as_dict(found) == {"a": 3, "k3": 3}
    sweep(store, Retention(epochs=1))
    assert store.epochs() == [6]


def test_a_dead_readers_lease_ends_by_itself(store: Catalog) -> None:
    clock = ManualClock()
    with leased(store, 3, lasts=timedelta(minutes=1), clock=clock) as lease:
        held = pins(store, now_us=clock.now_us())
        clock.advance("2 minutes")
        over = pins(store, now_us=clock.now_us())
        lease.renew()
        renewed = pins(store, now_us=clock.now_us())

    assert [p.epoch for p in held] == [3]
    assert over == []
    assert [p.epoch for p in renewed] == [3]
    assert pins(store, now_us=clock.now_us()) == []


def test_a_lease_on_what_is_gone_is_refused_and_leaves_nothing(store: Catalog) -> None:
    path = store.manifest(3).operators["op"].files[0].path
    store.storage.delete(path)

    with pytest.raises(SnapshotNotFoundError, match="epoch 3"), leased(store, 3):
        pass

    assert list(store.storage.list("leases/")) == []


def test_a_name_can_be_taken_away(store: Catalog) -> None:
    named = rl.stores.savepoint(f"{where(store)}@2", "v1", note="why")

    assert store.resolve("v1").epoch == 2
    assert rl.stores.drop_savepoint(where(store), "v1") == named
    with pytest.raises(SnapshotNotFoundError, match="v1"):
        rl.stores.drop_savepoint(where(store), "v1")
    sweep(store, Retention(epochs=1))
    assert store.epochs() == [6]
