"""One consistent snapshot over several flows that are joined by channels."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.unit.driver.joined_flow import (
    FLOWS,
    balance,
    flow_of,
    second_balance,
)
from tests.unit.driver.ledger_flow import transfers
from tests.unit.driver.test_regions_run import PROTOCOLS, Protocol

import riverlock as rl
from riverlock.core.errors import InvalidConfigError, SnapshotAbandonedError
from riverlock.snapshot.catalog import Catalog
from riverlock.snapshot.format.records import Named
from riverlock.snapshot.joint.joint_cut import take_joint_cut
from riverlock.storage.open import open_storage


def stores(root: str) -> list[str]:
    return [f"{root}/{name}" for name in FLOWS]


@contextmanager
def running(root: str, given: list[Any], names: Any = FLOWS) -> Iterator[None]:
    """Run flows, whose stores are there, side by side."""
    if not Path(root, "west").exists():
        run_all(root, given[:5])
    with ExitStack() as stack:
        for name in names:
            options: Any = {"execution": "local", "max_rows_per_epoch": 20}
            handle = flow_of(name, root, given).start(f"{root}/{name}", **options)
            stack.callback(handle.stop)
        yield


def run_all(root: str, given: list[Any]) -> None:
    for name in FLOWS:
        flow = flow_of(name, root, given)
        flow.run(f"{root}/{name}", execution="local", available_now=True)


def by_flow(found: tuple[Named, ...]) -> dict[str, Named]:
    return dict(zip(FLOWS, found, strict=True))


def check(root: str, found: dict[str, Named]) -> None:
    for debited, accounted in (balance(root, found), second_balance(root, found)):
        assert debited == accounted


SLOW = ("aligned", "epochs")  # as over regions


@pytest.mark.parametrize(
    "protocol",
    [pytest.param(p, marks=pytest.mark.slow if p in SLOW else ()) for p in PROTOCOLS],
)
def test_no_snapshot_over_flows_loses_or_makes_money(
    tmp_path: Path, protocol: Protocol
) -> None:
    root, given, found = str(tmp_path), transfers(200), []
    with running(root, given):
        for number in range(3):
            given += transfers(len(given) + 40)[len(given) :]
            taken = rl.stores.savepoint_all(
                stores(root), f"v{number}", protocol=protocol
            )
            found.append(by_flow(taken))
    for parts in found:
        assert set(parts["west"].regions) == {"main", "count"}
        check(root, parts)
        if protocol != "unaligned":
            flying = [s.rows for named in parts.values() for s in named.in_flight]
            assert not any(flying)
    for store in stores(root):
        assert rl.stores.verify(store).is_whole
        assert rl.stores.verify(store).foreign == ()
        assert not list(open_storage(store).list("leases/"))


def test_epochs_that_were_named_store_by_store_are_found_by_the_same_check(
    tmp_path: Path,
) -> None:
    root, given = str(tmp_path), transfers(200)
    with running(root, given):
        good = by_flow(rl.stores.savepoint_all(stores(root), "good"))
        given += transfers(260)[200:]
        later = by_flow(rl.stores.savepoint_all(stores(root), "later"))
    check(root, good)
    storage = open_storage(f"{root}/debits")
    storage.delete("snapshots/good.json")
    Catalog(storage).pin("good", epoch=later["debits"].regions["main"], now_us=0)
    debited, accounted = balance(root, good)
    assert debited != accounted


@pytest.mark.parametrize(
    "protocol", [pytest.param("aligned", marks=pytest.mark.slow), "unaligned"]
)
def test_going_back_store_by_store_ends_as_a_perfect_run(
    tmp_path: Path, protocol: Protocol
) -> None:
    root, given = str(tmp_path), transfers(120)
    with running(root, given):
        then = rl.stores.savepoint_all(stores(root), "then", protocol=protocol)
        given += transfers(200)[120:]
        later = rl.stores.savepoint_all(stores(root), "later")
    run_all(root, given)
    check(root, by_flow(rl_named(root, given)))
    rl.stores.restore(f"{root}/debits@then")
    rl.stores.restore(f"{root}/east@then")
    rl.stores.restore_all(f"{root}/west@then")
    assert then[0].regions != later[0].regions
    run_all(root, given)
    found = by_flow(rl_named(root, given))
    check(root, found)
    sent = sum(amount for _, _, amount in given)
    assert balance(root, found) == (sent, sent)


def rl_named(root: str, given: list[Any]) -> tuple[Named, ...]:
    """Return a snapshot of what there is now, when all was read."""
    with running(root, given):
        name = f"now-{len(Catalog(open_storage(f'{root}/debits')).snapshots())}"
        return rl.stores.savepoint_all(stores(root), name, protocol="drain")


def test_a_flow_that_does_not_run_has_the_snapshot_abandoned_everywhere(
    tmp_path: Path,
) -> None:
    root, given = str(tmp_path), transfers(60)
    run_all(root, given)
    catalogs = [Catalog(open_storage(store)) for store in stores(root)]
    from riverlock.core.clock import SystemClock

    with (
        running(root, given, ("debits", "east")),
        pytest.raises(SnapshotAbandonedError, match="west"),
    ):
        take_joint_cut(
            catalogs, "never", now_us=SystemClock().now_us(), timeout_us=2_000_000
        )
    for catalog in catalogs:
        assert catalog.snapshots() == []
    with running(root, given):
        found = by_flow(rl.stores.savepoint_all(stores(root), "after"))
    check(root, found)


def test_what_cannot_be_one_snapshot_is_refused(tmp_path: Path) -> None:
    root = str(tmp_path)
    run_all(root, transfers(10))
    alone = rl.Flow("alone")
    alone.read(rl.testing.rows("k string", [("a",)]), uid="in").write(
        rl.sinks.memory(), uid="out"
    )
    alone.run(f"{root}/alone", execution="local", available_now=True)
    with pytest.raises(InvalidConfigError, match="share channels"):
        rl.stores.savepoint_all([f"{root}/debits", f"{root}/alone"], "v")
    with pytest.raises(InvalidConfigError, match="at least two"):
        rl.stores.savepoint_all([f"{root}/debits"], "v")
    with pytest.raises(InvalidConfigError, match="at least two"):
        rl.stores.savepoint_all([f"{root}/debits", f"{root}/debits"], "v")
    rl.stores.savepoint(f"{root}/east", "taken")
    with pytest.raises(InvalidConfigError, match="taken"):
        rl.stores.savepoint_all(stores(root), "taken")


def test_a_flow_among_others_takes_snapshots_of_itself(tmp_path: Path) -> None:
    root, given = str(tmp_path), transfers(60)
    with running(root, given):
        rl.stores.savepoint_all(stores(root), "all")
        for protocol in PROTOCOLS:
            named = rl.stores.savepoint(
                f"{root}/west", f"own-{protocol}", protocol=protocol
            )
            assert set(named.regions) == {"main", "count"}
            assert named.joint is None
