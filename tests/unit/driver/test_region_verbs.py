"""What can be done with the store of a flow of several regions, as a whole."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.unit.driver.ledger_flow import (
    CARRYING,
    balance,
    debited,
    in_flight,
    ledger,
    snapshot_of_a_backlog,
    total,
    transfers,
    until,
)
from tests.unit.driver.test_regions_run import PROTOCOLS, arrived, expected, run

import riverlock as rl
from riverlock.cli import main
from riverlock.core.clock import SystemClock
from riverlock.core.errors import InvalidConfigError, SnapshotNotFoundError
from riverlock.snapshot.catalog import Catalog
from riverlock.snapshot.format.records import Named
from riverlock.snapshot.retention.policy import Retention, sweep
from riverlock.snapshot.verbs.cut import take_cut
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


def test_verbs_over_a_snapshot_of_all_regions(tmp_path: Path) -> None:
    store, given = str(tmp_path / "s"), transfers(120)
    first = snapshot_of_a_backlog(store, given, "v1", protocol="unaligned")
    given += transfers(160)[120:]
    second = snapshot_of_a_backlog(store, given, "v2", protocol="aligned")
    assert set(second.alignment_us) == set(REGIONS)
    check_diff(store, first, second)
    check_tables(store, first, tmp_path)
    check_explain(store, first)
    check_expiry(store, first)
    rl.stores.restore_all(f"{store}@v1")
    run(ledger(given), store)
    assert arrived(store) == expected(given)


def check_diff(store: str, first: Named, second: Named) -> None:
    found = rl.stores.diff(f"{store}@v1", f"{store}@v2")
    moved = {
        operator: sum(
            (change.after or 0) - (change.before or 0)
            for change in found.changes
            if change.operator == operator
        )
        for operator in ("debit", "credit-east", "credit-west")
    }
    sent, accounted = (
        balance(store, second)[n] - balance(store, first)[n] for n in (0, 1)
    )
    assert moved["debit"] == sent == accounted
    credited = moved["credit-east"] + moved["credit-west"]
    assert credited == sent - in_flight(store, second) + in_flight(store, first)
    one = rl.stores.diff(f"{store}@v1", f"{store}@v2", operator="credit-east")
    assert {change.operator for change in one.changes} == {"credit-east"}


def check_tables(store: str, first: Named, place: Path) -> None:
    flying = {span.channel: span for span in first.in_flight}
    snapshot = rl.open(store).at("v1")
    assert set(snapshot.channels) == set(flying)
    amount = 0
    for name in CARRYING:
        rows = list(snapshot.in_flight(name))
        assert len(rows) == flying[name].rows > 0
        epochs = [row["writer_epoch"] for row in rows]
        assert epochs == sorted(epochs)
        assert flying[name].first <= epochs[0]
        assert epochs[-1] < flying[name].end
        amount += sum(row["amount"] for row in rows)
    assert amount == in_flight(store, first)
    with pytest.raises(SnapshotNotFoundError, match="to-east"):
        snapshot.in_flight("to-south")
    found = (
        rl.open(store)
        .sql(
            """
        SELECT (SELECT sum(sent) FROM debit) AS sent,
               (SELECT sum(received) FROM "credit-east")
               + (SELECT sum(received) FROM "credit-west")
               + (SELECT coalesce(sum(amount), 0) FROM channels."to-east")
               + (SELECT coalesce(sum(amount), 0) FROM channels."to-west") AS accounted,
               (SELECT sum(rows) FROM in_flight) AS flying,
               (SELECT count(DISTINCT region) FROM epochs) AS regions
        """,
            at="v1",
        )
        .to_pylist()[0]
    )
    assert (found["sent"], found["accounted"]) == balance(store, first)
    assert found["flying"] == sum(span.rows for span in first.in_flight)
    assert found["regions"] == len(REGIONS)
    tables = rl.open(store).export(place / "tables", at="v1")
    counts = {table.name: table.rows for table in tables}
    assert counts["channels.to-east"] == flying["to-east"].rows


def check_explain(store: str, first: Named) -> None:
    for region, epoch in first.regions.items():
        found = rl.stores.explain(f"{store}@v1", region=region)
        assert (found.manifest.region, found.manifest.epoch) == (region, epoch)
    with pytest.raises(InvalidConfigError, match="region="):
        rl.stores.explain(f"{store}@v1")
    # Which accounts had received something by then is a matter of speed.
    arrived = rl.open(store).state("arrived", at="v1").to_arrow()["target"].to_pylist()
    for target in arrived:
        touched = rl.stores.touches(f"{store}@v1", "arrived", target)
        assert touched
        assert touched[-1].last <= first.regions["final"]
    if "b1" not in arrived:
        assert rl.stores.touches(f"{store}@v1", "arrived", "b1") == []


def check_expiry(store: str, first: Named) -> None:
    with pytest.raises(InvalidConfigError, match="expire_all"):
        rl.stores.expire(store, epochs=1)
    limits: dict[str, Any] = {"epochs": 1, "grace": "0 seconds"}
    plan = rl.stores.expire_all(store, dry_run=True, **limits)
    assert list(plan)[-1] == "main"
    assert rl.stores.verify(store).is_whole
    gone = rl.stores.expire_all(store, **limits)
    assert any(expiry.epochs for expiry in gone.values())
    assert rl.stores.verify(store).is_whole
    assert len(set(balance(store, first))) == 1


def test_one_region_goes_back_alone_only_where_no_other_has_read_on(
    tmp_path: Path,
) -> None:
    store, given = str(tmp_path / "s"), transfers(120)
    named = snapshot_of_a_backlog(store, given, "v1", protocol="unaligned")
    given += transfers(160)[120:]
    run(ledger(given), store)
    # What the last region did nobody has read; its input is still there.
    rl.stores.restore(f"{store}@v1", region="final")
    run(ledger(given), store)
    assert arrived(store) == expected(given)
    for region in ("main", "east"):
        with pytest.raises(InvalidConfigError, match="has read epoch") as told:
            rl.stores.restore(f"{store}@v1", region=region)
        assert "to v1" in told.value.hint
        newest = Catalog(open_storage(store), region).resolve(None)
        assert newest.epoch > named.regions[region]
    with pytest.raises(SnapshotNotFoundError, match="south"):
        rl.stores.restore(f"{store}@v1", region="south")
    rl.stores.restore_all(f"{store}@v1")
    run(ledger(given), store)
    assert arrived(store) == expected(given)


def test_a_name_that_was_taken_away_does_not_come_back(tmp_path: Path) -> None:
    store, given = str(tmp_path / "s"), transfers(40)
    handle = ledger(given).start(store, execution="local")
    handle.savepoint("v1")
    handle.stop()
    rl.stores.drop_savepoint(store, "v1")
    given += transfers(60)[40:]
    handle = ledger(given).start(store, execution="local")
    handle.savepoint("v2", protocol="drain")
    handle.stop()
    assert [n.name for n in Catalog(open_storage(store)).snapshots()] == ["v2"]


def test_after_going_back_a_drain_does_not_wait_for_rows_that_were_undone(
    tmp_path: Path,
) -> None:
    # Sources have nothing more to read, so no new rows move readers on.
    store, given = str(tmp_path / "s"), transfers(60)
    handle = ledger(given).start(store, execution="local", max_rows_per_epoch=10)
    until(lambda: debited(store) == sum(amount for _, _, amount in given))
    handle.savepoint("v1", protocol="drain")
    given += transfers(80)[60:]
    until(lambda: debited(store) == sum(amount for _, _, amount in given))
    handle.stop()
    rl.stores.restore_all(f"{store}@v1")
    del given[60:]
    handle = ledger(given).start(store, execution="local")
    try:
        named = take_cut(
            Catalog(open_storage(store)),
            "v3",
            protocol="drain",
            now_us=SystemClock().now_us(),
            timeout_us=60_000_000,
        )
    finally:
        handle.stop()
    assert sum(span.rows for span in named.in_flight) == 0
    assert len(set(balance(store, named))) == 1


def test_snapshots_that_are_taken_by_themselves(tmp_path: Path) -> None:
    store, given = str(tmp_path / "s"), transfers(40)
    catalog = Catalog(open_storage(store))
    handle = ledger(given).start(
        store,
        execution="local",
        snapshots_every="50 milliseconds",
        snapshots_keep=2,
        protocol="unaligned",
    )

    def names() -> list[str]:
        return [named.name for named in catalog.snapshots()]

    try:
        until(lambda: "auto-000004" in names())
        mine = handle.savepoint("mine")
    finally:
        handle.stop()
    assert mine.protocol == "unaligned"
    assert {n for n in names() if n.startswith("auto-")} & {"auto-000001"} == set()
    assert 1 <= len([n for n in names() if n.startswith("auto-")]) <= 3
    for named in catalog.snapshots():
        assert len(set(balance(store, named))) == 1
    shown = CliRunner().invoke(main, ["snapshots", store, "--cuts", "--json"])
    found = json.loads(shown.output)
    assert {named["name"] for named in found["snapshots"]} == set(names())
    assert all(
        named["alignment_us"].keys() == set(REGIONS) for named in found["snapshots"]
    )
    assert CliRunner().invoke(main, ["snapshots", store]).exit_code == 0


def test_a_snapshot_copies_no_rows(tmp_path: Path) -> None:
    store, given = str(tmp_path / "s"), transfers(120)
    named = snapshot_of_a_backlog(store, given, "v1", protocol="unaligned")
    storage = open_storage(store)
    listed = {
        token["path"]: token["bytes"]
        for region in REGIONS
        for epoch in Catalog(storage, region).epochs()
        for output in Catalog(storage, region).manifest(epoch).outputs.values()
        if output.kind == "channel"
        for token in output.tokens
    }
    kept = {e.path: e.size for e in storage.list() if "/channels/" in e.path}
    assert kept == listed
    flying = sum(span.bytes for span in named.in_flight)
    assert 0 < flying < sum(listed.values())
    record = next(e for e in storage.list("snapshots/") if "v1" in e.path)
    assert record.size < flying


def test_epochs_of_each_region_are_replayed(tmp_path: Path) -> None:
    store, given = str(tmp_path / "s"), transfers(60)
    run(ledger(given), store, max_rows_per_epoch=20)
    flow = ledger(given)
    with pytest.raises(InvalidConfigError, match="east"):
        flow.replay(store, 0, execution="local")
    for region in REGIONS:
        last = Catalog(open_storage(store), region).resolve(None).epoch
        found = flow.replay(store, 0, last, region=region, execution="local")
        assert found.matches
        assert sum(epoch.rows for epoch in found.epochs) > 0
        assert any(epoch.states for epoch in found.epochs)


def test_a_fork_that_dies_half_way_is_completed_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, fork, given = str(tmp_path / "s"), str(tmp_path / "fork"), transfers(60)
    snapshot_of_a_backlog(store, given, "v1", protocol="unaligned")
    for point, times in (("V1", 1), ("V2", 3), ("V3", 1), ("V4", 1)):
        left = [times]

        def die(name: str, point: str = point, left: list[int] = left) -> None:
            left[0] -= name == point
            if name == point and left[0] == 0:
                raise KeyboardInterrupt

        monkeypatch.setattr("riverlock.core.faults.hit", die)
        with pytest.raises(KeyboardInterrupt):
            rl.stores.fork(f"{store}@v1", fork)
        monkeypatch.undo()
        if point == "V4":  # it was there, but for its last step
            break
    assert len(rl.stores.forks(store)) == 1
    run(ledger(given), fork)
    assert arrived(fork) == expected(given)


def test_commands_over_all_regions(tmp_path: Path) -> None:
    store, fork, given = str(tmp_path / "s"), str(tmp_path / "fork"), transfers(60)
    named = snapshot_of_a_backlog(store, given, "v1", protocol="unaligned")
    given += transfers(100)[60:]
    run(ledger(given), store)

    def told(*words: str, code: int = 0) -> str:
        ended = CliRunner().invoke(main, list(words))
        assert ended.exit_code == code, ended.output
        return ended.output

    refused = told("restore", f"{store}@v1", "--region", "main", "--yes", code=1)
    assert "has read epoch" in refused
    flying = sum(span.rows for span in named.in_flight)
    plan = json.loads(told("fork", f"{store}@v1", fork, "--yes", "--json"))["plan"]
    assert plan["regions"] == named.regions
    assert plan["rows_in_flight"] == flying
    assert "east" in told("forks", store)
    shown = json.loads(told("explain", f"{store}@v1", "--json"))["regions"]
    assert {each["region"]: each["epoch"] for each in shown} == named.regions
    plans = json.loads(
        told("expire", store, "--keep-epochs", "1", "--dry-run", "--json")
    )["plan"]
    assert plans.keys() == named.regions.keys()
    assert "debit" in told("diff", f"{store}@v1", store)
    told("restore", f"{store}@v1", "--yes")
    told("snapshot", store, "v1", "--drop")
    run(ledger(given), store)
    assert arrived(store) == expected(given)
    run(ledger(given), fork)
    assert arrived(fork) == expected(given)
