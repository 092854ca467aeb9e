"""What can be done with the store of a flow of several regions, as a whole."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from tests.unit.driver.ledger_flow import (
    CARRYING,
    balance,
    in_flight,
    ledger,
    snapshot_of_a_backlog,
    total,
    transfers,
)
from tests.unit.driver.test_regions_run import PROTOCOLS, arrived, expected, run

import riverlock as rl
from riverlock.core.errors import InvalidConfigError, SnapshotNotFoundError
from riverlock.snapshot.catalog import Catalog
from riverlock.snapshot.format.records import Named
from riverlock.snapshot.retention.policy import Retention, sweep
from riverlock.storage.open import open_storage

LATER = datetime(2100, 1, 1, tzinfo=UTC)
REGIONS = ("final", "east", "west", "main")


def gains(
    place: Path, *, since: Counter[str] | None = None, until: Counter[str] | None = None
) -> Counter[tuple[str, int]]:
    """Return what output says that accounts have gained, transfer by transfer.

    A row has the account's total so far. Which of two transfers of an epoch comes first
    is not fixed, so what each row adds is compared.
    """
    totals: dict[str, list[int]] = {}
    for file in place.glob("**/*.json"):
        if "_riverlock" not in file.parts:
            for row in map(json.loads, file.read_text().splitlines()):
                target, reached = row["target"], row["total"]
                if until is None or reached <= until[target]:
                    first = 0 if since is None else since[target]
                    totals.setdefault(target, [first]).append(reached)
    return Counter(
        (target, after - before)
        for target, found in totals.items()
        for before, after in pairwise(sorted(found))
    )


def wanted(given: list[Any]) -> Counter[tuple[str, int]]:
    """Return the same of a perfect run, computed in plain Python."""
    return Counter((target, amount) for _, target, amount in given)


def files_to(place: Path) -> Any:
    return rl.sinks.files(str(place), format="json")


def sweep_all(store: str) -> None:
    """Delete all that may be deleted, readers first."""
    for _ in range(3):
        for region in REGIONS:
            keep = Retention(epochs=1, grace=timedelta(0))
            sweep(Catalog(open_storage(store), region), keep, now=LATER)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_restores_of_a_backlog_end_as_a_perfect_run(
    tmp_path: Path, protocol: Any
) -> None:
    store, given, sink = str(tmp_path / "s"), transfers(120), files_to(tmp_path / "out")
    named = snapshot_of_a_backlog(store, given, "v1", sink, protocol=protocol)
    rows = sum(span.rows for span in named.in_flight)
    assert rows > 60 if protocol == "unaligned" else rows == 0
    assert len(set(balance(store, named))) == 1
    run(ledger(given, sink), store)
    for parallelism in (1, 3):
        rl.stores.restore_all(f"{store}@v1")
        assert total(store, None, "debit", "sent") == balance(store, named)[0]
        run(ledger(given, sink), store, parallelism=parallelism)
        assert arrived(store) == expected(given)
        assert gains(tmp_path / "out") == wanted(given)


@pytest.mark.parametrize("copy", [False, True], ids=["refers", "copy"])
@pytest.mark.parametrize(
    "protocol",
    [
        "unaligned",
        *(
            pytest.param(p, marks=pytest.mark.slow)
            for p in PROTOCOLS
            if p != "unaligned"
        ),
    ],
)
def test_a_fork_goes_on_from_all_regions_and_from_what_was_in_flight(
    tmp_path: Path, protocol: Any, *, copy: bool
) -> None:
    store, given, fork = str(tmp_path / "s"), transfers(120), str(tmp_path / "fork")
    snapshot_of_a_backlog(
        store, given, "v1", files_to(tmp_path / "out"), protocol=protocol
    )
    plan = rl.stores.fork(f"{store}@v1", fork, copy=copy)
    assert (plan.rows_in_flight > 60) == (protocol == "unaligned")
    assert rl.stores.verify(fork).is_whole
    before = arrived(fork)
    # The parent goes on, and forgets what only the fork still needs.
    run(ledger(given, files_to(tmp_path / "out")), store)
    rl.stores.drop_savepoint(store, "v1")
    sweep_all(store)
    assert rl.stores.verify(store).is_whole
    assert rl.stores.verify(fork).is_whole
    more = transfers(160)
    run(ledger(more, files_to(tmp_path / "more")), fork, parallelism=3)
    assert arrived(fork) == expected(more)
    assert arrived(store) == expected(given)
    mine, before_it = tmp_path / "more", gains(tmp_path / "out", until=before)
    assert gains(mine, since=before) + before_it == wanted(more)
    # When no epoch needs the parent's files any more, it is released.
    for number in range(4):
        more += transfers(len(more) + 40)[len(more) :]
        run(ledger(more), fork, max_rows_per_epoch=10 + number)
    assert arrived(fork) == expected(more)
