"""What was planned before the store changed must not delete what it has now."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from tests.unit.snapshot.builders import catalog, manifest, write
from tests.unit.snapshot.small_flow import SmallFlow, state_of

import riverlock as rl
from riverlock.core.times import from_micros
from riverlock.snapshot.catalog import Catalog
from riverlock.snapshot.retention.lease import leased
from riverlock.snapshot.retention.policy import Retention, sweep
from riverlock.snapshot.verbs.expire import Limits, expire, plan_expiry
from riverlock.snapshot.verbs.repair import plan_repair, quarantine
from riverlock.snapshot.verbs.verify import verify
from riverlock.storage import LocalStorage

EPOCHS = 6
NOW_US = int(time.time() * 1e6)
ALL = Limits(epochs=1, grace=timedelta(0))
TIGHT = Retention(epochs=1, grace=timedelta(0))


def age(store: Catalog) -> None:
    for file in Path(root(store)).rglob("*"):
        os.utime(file, (1, 1))


def root(store: Catalog) -> str:
    return store.storage.uri.removeprefix("file://")


@pytest.fixture
def store(tmp_path: Path) -> Catalog:
    """Epochs 1 to 6, each with a file that no other has: all were merged away."""
    made = catalog(LocalStorage(tmp_path / "store"))
    for epoch in range(1, EPOCHS + 1):
        file = write(LocalStorage(tmp_path / "store"), epoch, {"a": epoch})
        assert made.decide(manifest(epoch, (file,)))
    age(made)
    return made


def check_whole(store: Catalog) -> None:
    assert [r.problems for r in verify(store) if not r.is_whole] == []


def test_an_expiry_spares_what_was_gone_back_to_since_it_was_planned(
    store: Catalog,
) -> None:
    plan = plan_expiry(store, ALL, now_us=NOW_US)
    assert plan.epochs == (1, 2, 3, 4, 5)

    rl.stores.restore(f"{root(store)}@3")
    expire(store, plan)

    assert store.epochs()[-1] == EPOCHS + 1
    check_whole(store)


def test_an_expiry_applies_its_limits_to_a_backup_that_was_put_back(
    store: Catalog, tmp_path: Path
) -> None:
    shutil.copytree(root(store), tmp_path / "backup")
    for epoch in range(EPOCHS + 1, EPOCHS + 4):
        file = write(LocalStorage(Path(root(store))), epoch, {"a": epoch})
        store.decide(manifest(epoch, (file,)))
    plan = plan_expiry(store, ALL, now_us=NOW_US + 10**9)
    assert EPOCHS in plan.epochs

    shutil.rmtree(root(store))
    shutil.copytree(tmp_path / "backup", root(store))
    expire(store, plan)

    assert store.epochs() == [EPOCHS]
    check_whole(store)


class Paused(LocalStorage):
    """Storage of a process that is paused before it does something, once."""

    def pause(
        self, is_there: Callable[[str, str], bool], then: Callable[[], None]
    ) -> None:
        object.__setattr__(self, "_pauses", [(is_there, then)])

    def _meet(self, verb: str, path: str) -> None:
        pauses = getattr(self, "_pauses", [])
        if pauses and pauses[0][0](verb, path):
            pauses.pop()[1]()

    def put(self, path: str, data: bytes) -> None:
        self._meet("put", path)
        super().put(path, data)

    def delete(self, path: str) -> None:
        self._meet("delete", path)
        super().delete(path)


@pytest.mark.parametrize(
    ("verb", "part"), [("put", "/expiring/"), ("delete", "/epochs/")]
)
def test_a_sweep_that_is_paused_spares_what_was_gone_back_to_meanwhile(
    store: Catalog, verb: str, part: str
) -> None:
    slow = Paused(Path(root(store)))
    # With the second announcement it says which epochs will go.
    count = 0

    def is_there(did: str, path: str) -> bool:
        nonlocal count
        count += did == verb and part in path
        return count == (2 if verb == "put" else 1)

    def restore() -> None:
        for file in Path(root(store), "regions/main/expiring").glob("*"):
            os.utime(file, (1, 1))  # paused for long: it is taken to be dead
        rl.stores.restore(f"{root(store)}@3")

    slow.pause(is_there, restore)
    sweep(Catalog(slow), TIGHT)

    assert store.epochs()[-1] == EPOCHS + 1
    check_whole(store)


def test_a_restore_that_is_paused_for_long_still_holds_its_epoch(
    store: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    decide = Catalog.decide

    def paused(self: Catalog, made: object) -> bool:
        # Longer than a lease lasts, and than an announcement counts.
        sweep(store, TIGHT, now=from_micros(NOW_US + 3 * 86_400 * 10**6))
        return decide(self, made)  # type: ignore[arg-type]

    monkeypatch.setattr(Catalog, "decide", paused)
    rl.stores.restore(f"{root(store)}@3")

    assert store.epochs()[-1] == EPOCHS + 1
    check_whole(store)


def test_a_repair_leaves_alone_what_was_mended_since_it_was_planned(
    tmp_path: Path,
) -> None:
    rows = [(f"k{n * 7 % 5}", n % 11) for n in range(15)]
    flow = SmallFlow(tmp_path / "store", rows, tmp_path / "out")
    flow.run()
    (flow.store / "notes.txt").write_text("of a colleague")
    newest = flow.store / flow.catalog.resolve(None).operators["op"].files[-1].path
    whole = newest.read_bytes()
    newest.write_bytes(b"damaged")
    plan = plan_repair(flow.catalog)
    assert plan.lost

    newest.write_bytes(whole)  # put back from a backup, while the prompt waits
    folder = quarantine(flow.catalog, plan, now_us=NOW_US)

    check_whole(flow.catalog)
    assert flow.state() == state_of(rows)
    assert [p.name for p in (flow.store / folder).rglob("*") if p.is_file()] == [
        "notes.txt"
    ]


def test_a_clock_that_jumps_ahead_does_not_age_the_epoch_under_way(
    store: Catalog,
) -> None:
    store.storage.put(store.paths.run(1), b"a claim")
    under_way = write(LocalStorage(Path(root(store))), EPOCHS + 1, {"a": 7})
    listed = f"{store.paths.sources}in/{1:012d}-x.json"
    store.storage.put(listed, b"[]")

    sweep(store, TIGHT, now=from_micros(NOW_US + 315_360_000 * 10**6))

    assert store.storage.exists(under_way.path)
    assert store.storage.exists(listed)


def test_an_expiry_by_a_clock_years_ahead_spares_what_is_read_and_what_is_young(
    store: Catalog, tmp_path: Path
) -> None:
    young = EPOCHS + 1
    for epoch in (young, young + 1):
        file = write(LocalStorage(tmp_path / "store"), epoch, {"a": epoch})
        assert store.decide(manifest(epoch, (file,)))
    years = NOW_US + 315_360_000 * 10**6
    limits = Limits(epochs=1, grace=timedelta(minutes=10))

    with leased(store, 2):
        plan = plan_expiry(store, limits, now_us=years)
        assert {2, young} <= set(plan.epochs)
        expire(store, plan)

    assert store.epochs() == [2, young, young + 1]
    check_whole(store)


def test_an_epoch_that_a_slow_clock_decided_is_not_old(
    store: Catalog, tmp_path: Path
) -> None:
    for epoch in (EPOCHS + 1, EPOCHS + 2):
        file = write(LocalStorage(tmp_path / "store"), epoch, {"a": epoch})
        assert store.decide(manifest(epoch, (file,)))  # in 1970, as its clock says
    limits = Limits(age=timedelta(days=1), grace=timedelta(0))

    expire(store, plan_expiry(store, limits, now_us=NOW_US + 3_600 * 10**6))

    assert store.epochs() == [EPOCHS + 1, EPOCHS + 2]


class Woken(LocalStorage):
    """Storage of a process that is paused before and after it deletes a manifest."""

    def sleep(self, before: Callable[[], None], after: Callable[[], None]) -> None:
        object.__setattr__(self, "_sleeps", [before, after])

    def put(self, path: str, data: bytes) -> None:
        sleeps = getattr(self, "_sleeps", [])
        if "/epochs/" not in path or not sleeps:
            super().put(path, data)
            return
        sleeps.pop(0)()
        super().put(path, data)
        sleeps.pop(0)()


def test_what_a_round_that_sleeps_will_put_back_keeps_its_files(
    store: Catalog,
) -> None:
    """It was named in spite of an announcement that had grown too old."""
    slow = Woken(Path(root(store)))

    def name() -> None:
        for file in Path(root(store), "regions/main/expiring").glob("*"):
            os.utime(file, (time.time() - 3_600,) * 2)
        rl.stores.savepoint(f"{root(store)}@1", "v1")

    def others() -> None:
        sweep(store, TIGHT)
        sweep(store, TIGHT)

    slow.sleep(name, others)
    sweep(Catalog(slow), TIGHT)

    assert store.resolve("v1").epoch == 1
    check_whole(store)


class Slow(LocalStorage):
    """Storage whose every read takes longer than a look is good for."""

    def get(self, path: str) -> bytes:
        passed = getattr(self, "passed", 0) + 10
        assert passed < 10_000, "it looks again and again"
        object.__setattr__(self, "passed", passed)
        return super().get(path)

    def seconds(self) -> float:
        return float(getattr(self, "passed", 0))


@pytest.mark.parametrize("verb", ["sweep", "expire"])
def test_deletion_ends_however_long_manifests_take_to_read(
    store: Catalog, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    slow = Slow(Path(root(store)))
    monkeypatch.setattr("riverlock.snapshot.retention.inventory.seconds", slow.seconds)

    if verb == "sweep":
        sweep(Catalog(slow), TIGHT)
    else:
        limits = Limits(age=timedelta(0), grace=timedelta(0))
        expire(Catalog(slow), plan_expiry(store, limits, now_us=NOW_US))

    assert store.epochs() == [EPOCHS]
    state = [e.path for e in store.storage.list("regions/main/state")]
    assert len(state) == 1
    check_whole(store)
