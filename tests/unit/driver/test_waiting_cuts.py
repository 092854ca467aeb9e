"""Snapshots that were asked for, and nobody runs: what the next run makes of them."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest
from tests.unit.driver.ledger_flow import balance, ledger, transfers
from tests.unit.driver.test_regions_run import (
    PROTOCOLS,
    Protocol,
    arrived,
    expected,
    run,
)

import riverlock as rl
from riverlock.core.clock import SystemClock
from riverlock.core.errors import InvalidConfigError
from riverlock.snapshot.catalog import Catalog
from riverlock.snapshot.format.cut_log import CutLog
from riverlock.storage.open import open_storage


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_snapshot_that_was_asked_for_ends_no_run_before_its_input(
    tmp_path: Path, protocol: Protocol
) -> None:
    """Sources wait for it: that they have nothing to give meanwhile is not the end."""
    store, given = str(tmp_path / "s"), transfers(30)
    run(ledger(given), store, max_rows_per_epoch=5)
    CutLog(open_storage(store)).propose(
        "v",
        protocol=protocol,
        asked_us=SystemClock().now_us(),
        timeout_us=600_000_000,
        note="",
    )
    given += transfers(60)[30:]

    run(ledger(given), store, max_rows_per_epoch=5)

    assert arrived(store) == expected(given)
    (named,) = Catalog(open_storage(store)).snapshots()
    debited, accounted = balance(store, named)
    assert debited == accounted


def test_a_snapshot_that_nobody_completes_is_given_up_and_the_input_read(
    tmp_path: Path,
) -> None:
    store, given = str(tmp_path / "s"), transfers(30)
    run(ledger(given), store, max_rows_per_epoch=5)
    log = CutLog(open_storage(store))
    for name in ("one", "two"):
        log.propose(
            name,
            protocol="drain",
            asked_us=SystemClock().now_us() - 500_000_000,
            timeout_us=1,
            note="",
        )
    given += transfers(60)[30:]

    run(ledger(given), store, max_rows_per_epoch=5)

    assert arrived(store) == expected(given)


def asked(store: str, name: str, protocol: Protocol) -> None:
    """Ask for a snapshot as one who dies before it has an answer."""
    CutLog(open_storage(store)).propose(
        name,
        protocol=protocol,
        asked_us=SystemClock().now_us(),
        timeout_us=600_000_000,
        note="",
    )


def test_who_asks_again_for_a_snapshot_gets_the_one_that_is_being_taken(
    tmp_path: Path,
) -> None:
    store = str(tmp_path / "s")
    run(ledger(transfers(10)), store)
    asked(store, "v", "unaligned")
    handle = ledger(transfers(20)).start(store, execution="local")

    with suppress(InvalidConfigError):  # it was complete before we asked
        handle.savepoint("v", protocol="unaligned")

    handle.stop()
    (named,) = Catalog(open_storage(store)).snapshots()
    assert named.cut == 1
    assert not list(CutLog(open_storage(store)).abandoned())


def test_a_snapshot_is_not_taken_by_two_protocols(tmp_path: Path) -> None:
    store = str(tmp_path / "s")
    run(ledger(transfers(10)), store)
    asked(store, "v", "drain")

    with pytest.raises(InvalidConfigError, match="being taken, 'drain'"):
        rl.stores.savepoint(store, "v", protocol="aligned")
