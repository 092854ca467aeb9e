"""Snapshots of flows with loops: rows that come round are in them, once."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any, Literal, get_args

import pytest
from tests.unit.driver.ledger_flow import (
    bouncing_balance,
    bouncing_ledger,
    in_flight,
    total,
    transfers,
)
from tests.unit.driver.test_loop_runs import expected, retrying, run, tries
from tests.unit.driver.test_regions_run import expected as owed

import riverlock as rl
from riverlock.snapshot.catalog import Catalog
from riverlock.storage.open import open_storage

Protocol = Literal["aligned", "unaligned", "drain", "epochs"]
PROTOCOLS: tuple[Protocol, ...] = get_args(Protocol)
# Where one of those that align is as good as another.
SOME = [
    "unaligned",
    "drain",
    pytest.param("aligned", marks=pytest.mark.slow),
    pytest.param("epochs", marks=pytest.mark.slow),
]


def received(store: str) -> Counter[str]:
    """Return what accounts have received in the end."""
    found = rl.open(store).state("receive").to_arrow().to_pylist()
    return Counter({row["target"]: row["received"] for row in found})


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_no_snapshot_of_a_loop_loses_or_makes_money(
    tmp_path: Path, protocol: Protocol
) -> None:
    store, given = str(tmp_path / "s"), transfers(60)
    handle = bouncing_ledger(given).start(
        store, execution="local", max_rows_per_epoch=15
    )
    found = []
    try:
        for number in range(3):
            given += transfers(len(given) + 30)[len(given) :]
            found.append(handle.savepoint(f"v{number}", protocol=protocol))
    finally:
        handle.stop()
    for named in found:
        assert set(named.regions) == {"main", "bank"}
        assert {span.channel for span in named.in_flight} == {
            "to-bank",
            "again",
            "soon",
        }
        paid, accounted = bouncing_balance(store, named)
        assert paid == accounted
        if protocol == "drain":
            assert not any(span.rows for span in named.in_flight)
    assert rl.stores.verify(store).is_whole


@pytest.mark.parametrize("protocol", SOME)
def test_going_back_gives_the_rows_in_a_loop_back(
    tmp_path: Path, protocol: Protocol
) -> None:
    store, given = str(tmp_path / "s"), transfers(50)
    handle = bouncing_ledger(given).start(
        store, execution="local", max_rows_per_epoch=10
    )
    named = handle.savepoint("then", protocol=protocol)
    handle.stop()
    given += transfers(80)[len(given) :]
    run(bouncing_ledger(given), store)
    assert received(store) == owed(given)
    plan = rl.stores.restore_all(f"{store}@then")
    assert {r: p.target.epoch for r, p in plan.parts.items()} == named.regions
    assert total(store, None, "pay", "sent") == bouncing_balance(store, named)[0]
    run(bouncing_ledger(given), store, parallelism=3)
    assert received(store) == owed(given)


def test_a_cut_that_forgets_what_comes_round_is_found_by_the_same_check(
    tmp_path: Path,
) -> None:
    store, given = str(tmp_path / "s"), transfers(60)
    handle = bouncing_ledger(given).start(
        store, execution="local", max_rows_per_epoch=10
    )
    for number in range(20):
        named = handle.savepoint(f"v{number}", protocol="unaligned")
        if in_flight(store, named, ("again", "soon")):
            break
        given += transfers(len(given) + 20)[len(given) :]
    handle.stop()
    carried = in_flight(store, named, ("again", "soon"))
    assert carried, "no snapshot had rows in a loop"
    paid, accounted = bouncing_balance(store, named)
    assert paid == accounted
    assert paid != accounted - carried


@pytest.mark.parametrize("protocol", SOME)
def test_a_flow_of_one_region_has_its_loop_in_the_snapshot(
    tmp_path: Path, protocol: Protocol
) -> None:
    store, given = str(tmp_path / "s"), [(f"u{n}", 9) for n in range(20)]
    handle = retrying(given, rl.sinks.memory()).start(
        store, execution="local", max_rows_per_epoch=5
    )
    named = handle.savepoint("then", protocol=protocol)
    handle.stop(savepoint="last")
    assert set(named.regions) == {"main"}
    (span,) = named.in_flight
    assert (span.channel, span.writer, span.reader) == ("again", "main", "main")
    # Each user's nine rounds are done, or wait in the loop with what is left.
    done = rl.open(store).at("then").state("tries").to_arrow().to_pylist()
    left = left_in(store, named)
    for row in done:
        assert row["tries"] + left.get(row["user"], 0) == 10
    run(retrying(given, rl.sinks.memory()), store)
    rl.stores.restore_all(f"{store}@then")
    run(retrying(given, rl.sinks.memory()), store)
    assert tries(store) == expected(given)
    names = {n.name for n in Catalog(open_storage(store)).snapshots()}
    assert names == {"then", "last"}


def left_in(store: str, named: Any) -> dict[str, int]:
    """Return how often rows in flight are still to be handled, by user."""
    import pyarrow.parquet as pq

    storage, found = open_storage(store), dict[str, int]()
    for span in named.in_flight:
        for epoch in range(span.first, span.end):
            manifest = Catalog(storage, span.writer).manifest(epoch)
            for token in manifest.outputs[span.channel].tokens:
                table = pq.read_table(storage.local_path(token["path"]))
                for row in table.to_pylist():
                    found[row["user"]] = row["left"] + 1
    return found
