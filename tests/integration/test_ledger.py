"""The ledger of examples: sums of snapshots, and what finds one that is torn."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest
from examples.ledger.flow import Transfers, build
from examples.ledger.money import differences, money_in

import riverlock as rl
from riverlock.snapshot.catalog import Catalog
from riverlock.snapshot.format.records import Named
from riverlock.snapshot.format.sealed import seal
from riverlock.snapshot.format.store_layout import snapshot_path
from riverlock.storage.open import open_storage

PACE = 2_000


def snapshots(store: str, out: str) -> list[Named]:
    """Run the flow for a while, and take two snapshots of it."""
    flow = build(Transfers(began=time.time() - 1, pace=PACE), out)
    handle = flow.start(store, execution="local", max_rows_per_epoch=300)
    found = [handle.savepoint("v1", protocol="unaligned")]
    first = handle.status().epoch or 0
    while handle.is_active and (handle.status().epoch or 0) < first + 3:
        handle.wait(0.05)
    found.append(handle.savepoint("v2", protocol="aligned"))
    handle.stop()
    return found


def test_money_is_constant_and_a_torn_cut_is_found(tmp_path: Path) -> None:
    store, out = str(tmp_path / "store"), str(tmp_path / "out")
    first, second = snapshots(store, out)

    for named in (first, second):
        money = money_in(store, named)
        assert money.total == 0
        assert money.held["debit"] < 0 < money.held["credit"]
    assert second.regions["main"] > first.regions["main"]

    # As if regions were saved one after the other, and nobody aligned them.
    torn = msgspec.structs.replace(
        second,
        name="torn",
        regions={**second.regions, "main": first.regions["main"]},
        in_flight=(),
    )
    open_storage(store).put(snapshot_path("torn"), seal(torn))
    assert money_in(store, torn).total > 0


def test_what_arrives_is_what_plain_python_says(tmp_path: Path) -> None:
    store, out, count = str(tmp_path / "store"), str(tmp_path / "out"), 4_000
    flow = build(Transfers(0, PACE, limit=count), out)
    flow.run(store, execution="local", available_now=True, max_rows_per_epoch=700)

    assert differences(store, out, count) == []
    assert differences(store, out, count - 1) != []
    assert set(rl.open(store).at().operators) == {"debit", "clearing", "credit"}
    assert Catalog(open_storage(store)).regions() == ["clearing", "credit", "main"]


@pytest.mark.slow
def test_the_ledger_under_kills(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "examples.ledger", "--engine", "local"]
    command += ["--snapshots", "3", "--kills", "2", "--keep", str(tmp_path)]
    ended = subprocess.run(
        command, capture_output=True, text=True, timeout=900, check=False
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "20 snapshots, 8 kills: 0 wrong sums, 0 differences" in ended.stdout
