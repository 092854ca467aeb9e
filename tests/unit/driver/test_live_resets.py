"""All regions go back to a snapshot while they run; channels go on from the cut."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, get_args

import pytest
from tests.unit.driver.ledger_flow import (
    HALVES,
    balance,
    bouncing_balance,
    bouncing_ledger,
    held_up,
    ledger,
    snapshot_of_a_backlog,
    total,
    transfers,
)
from tests.unit.driver.test_regions_run import arrived, expected, run

import riverlock as rl
from riverlock.core.clock import SystemClock
from riverlock.core.errors import SnapshotAbandonedError
from riverlock.snapshot.catalog import Catalog
from riverlock.snapshot.format.cut_log import CutLog
from riverlock.storage.open import open_storage

REGIONS = ("main", *HALVES, "final")
Protocol = Literal["aligned", "unaligned", "drain", "epochs"]


@contextmanager
def going(flow: rl.Flow, store: str, **options: Any) -> Iterator[rl.Handle]:
    """Run a flow beside the block."""
    handle = flow.start(store, execution="local", **options)
    try:
        yield handle
    finally:
        handle.stop()
        handle.wait()


def until(is_so: Callable[[], bool]) -> None:
    """Wait for progress; to look at all state costs more than the flow does."""
    deadline = time.monotonic() + 240
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def newest(store: str, region: str) -> Any:
    return Catalog(open_storage(store), region).newest()


def resets(store: str) -> dict[str, int]:
    return {region: newest(store, region).reset for region in REGIONS}


def gains(place: Path) -> Counter[tuple[str, int]]:
    """Return what the output in sight says that accounts have gained."""
    totals: dict[str, list[int]] = {}
    for file in place.glob("epoch=*/*.json"):
        for row in map(json.loads, file.read_text().splitlines()):
            totals.setdefault(row["target"], [0]).append(row["total"])
    return Counter(
        (target, after - before)
        for target, found in totals.items()
        for before, after in pairwise(sorted(found))
    )


def wanted(given: list[Any]) -> Counter[tuple[str, int]]:
    return Counter((target, amount) for _, target, amount in given)


@pytest.mark.parametrize(
    "protocol",
    [
        "unaligned",
        *(
            pytest.param(p, marks=pytest.mark.slow)
            for p in get_args(Protocol)
            if p != "unaligned"
        ),
    ],
)
def test_all_regions_go_back_while_they_run(tmp_path: Path, protocol: Any) -> None:
    store, given = str(tmp_path / "s"), transfers(80)
    sink = rl.sinks.files(str(tmp_path / "out"), format="json")
    with going(ledger(given, sink), store, max_rows_per_epoch=10) as handle:
        named = handle.savepoint("then", protocol=protocol)
        given += transfers(150)[len(given) :]
        until(lambda: arrived(store) == expected(given))
        plan = handle.restore("then")
        assert plan.waiting == ()
        assert {r: p.target.epoch for r, p in plan.parts.items()} == named.regions
        until(lambda: arrived(store) == expected(given))
        given += transfers(180)[len(given) :]
        until(lambda: arrived(store) == expected(given))
        assert handle.is_active
    assert gains(tmp_path / "out") == wanted(given)
    assert set(resets(store).values()) == {1}
    assert rl.stores.verify(store).is_whole
    assert "resets" in Catalog(open_storage(store)).flow().features


def test_rows_in_flight_are_read_again(tmp_path: Path) -> None:
    store, given = str(tmp_path / "s"), transfers(120)
    sink = rl.sinks.files(str(tmp_path / "out"), format="json")
    named = snapshot_of_a_backlog(store, given, "v1", sink, protocol="unaligned")
    assert sum(span.rows for span in named.in_flight) > 60
    with going(ledger(given, sink), store, max_rows_per_epoch=10):
        until(lambda: arrived(store) == expected(given))
        for _ in range(2):
            rl.stores.restore_all(f"{store}@v1")
            until(lambda: arrived(store) == expected(given))
    assert gains(tmp_path / "out") == wanted(given)


def test_a_second_restore_before_the_first_is_taken_up(tmp_path: Path) -> None:
    store, given = str(tmp_path / "s"), transfers(60)
    with going(ledger(given), store, max_rows_per_epoch=10) as handle:
        handle.savepoint("first")
        given += transfers(100)[len(given) :]
        handle.savepoint("second", protocol="unaligned")
        given += transfers(140)[len(given) :]
        until(lambda: arrived(store) == expected(given))
        asking = [
            threading.Thread(target=rl.stores.restore_all, args=(f"{store}@{name}",))
            for name in ("first", "second", "first")
        ]
        for thread in asking:
            thread.start()
        for thread in asking:
            thread.join(120)
        until(lambda: arrived(store) == expected(given))
        until(lambda: len(set(resets(store).values())) == 1)
    run(ledger(given), store)
    assert arrived(store) == expected(given)
    # Forward again, to what the last one has undone.
    with going(ledger(given), store):
        rl.stores.restore_all(f"{store}@second")
        until(lambda: arrived(store) == expected(given))


def test_a_region_in_the_middle_of_an_epoch_takes_it_up_with_its_next(
    tmp_path: Path,
) -> None:
    store, given, gate = str(tmp_path / "s"), transfers(40), threading.Event()
    gate.set()
    with going(ledger(given, credit=held_up(gate)), store) as handle:
        handle.savepoint("then")
        gate.clear()
        given += transfers(80)[len(given) :]
        until(
            lambda: total(store, None, "debit", "sent") == sum(expected(given).values())
        )
        asking = threading.Thread(target=handle.restore, args=("then",))
        asking.start()
        # Those that are free have gone back, and gone on; the halves still wait.
        until(lambda: newest(store, "main").reset == 1)
        until(lambda: newest(store, "final").reset == 1)
        until(
            lambda: total(store, None, "debit", "sent") == sum(expected(given).values())
        )
        assert newest(store, "east").reset == newest(store, "west").reset == 0
        gate.set()
        asking.join(120)
        until(lambda: arrived(store) == expected(given))
    assert set(resets(store).values()) == {1}


def test_a_snapshot_that_is_being_taken_is_given_up(tmp_path: Path) -> None:
    store, given, gate = str(tmp_path / "s"), transfers(40), threading.Event()
    gate.set()
    with going(ledger(given, credit=held_up(gate)), store) as handle:
        handle.savepoint("then")
        gate.clear()
        given += transfers(80)[len(given) :]
        told: list[Exception] = []

        def ask() -> None:
            try:
                handle.savepoint("never")
            except SnapshotAbandonedError as error:
                told.append(error)

        asking = threading.Thread(target=ask)
        asking.start()
        until(lambda: 2 in newest(store, "main").borne)
        going_back = threading.Thread(target=handle.restore, args=("then",))
        going_back.start()
        asking.join(120)
        gate.set()
        going_back.join(120)
        until(lambda: arrived(store) == expected(given))
        assert "went back to 'then'" in str(told[0])
        named = handle.savepoint("after")
        assert len(set(balance(store, named))) == 1


def test_loops_go_back_while_they_turn(tmp_path: Path) -> None:
    store, given = str(tmp_path / "s"), transfers(50)

    def received() -> Counter[str]:
        found = rl.open(store).state("receive").to_arrow().to_pylist()
        return Counter({row["target"]: row["received"] for row in found})

    def owed() -> Counter[str]:
        return Counter({k: v for k, v in expected(given).items() if v})

    with going(bouncing_ledger(given), store, max_rows_per_epoch=10) as handle:
        named = handle.savepoint("then", protocol="unaligned")
        assert len(set(bouncing_balance(store, named))) == 1
        for size in (80, 110):
            given += transfers(size)[len(given) :]
            handle.restore("then")
            until(lambda: received() == owed())
        again = handle.savepoint("again", protocol="unaligned")
        assert len(set(bouncing_balance(store, again))) == 1
    run(bouncing_ledger(given), store)
    assert received() == owed()


def test_the_parallelism_stays_as_it_was_set(tmp_path: Path) -> None:
    store, given = str(tmp_path / "s"), transfers(40)
    with going(ledger(given), store, parallelism=1) as handle:
        handle.savepoint("then")
        handle.rescale(3)
        for size in (60, 80):
            given.extend(transfers(size)[len(given) :])
            until(lambda: arrived(store) == expected(given))
            assert newest(store, "final").parallelism == 3
            handle.restore("then")
        until(lambda: arrived(store) == expected(given))


def test_the_end_of_time_is_told_anew_after_going_back(tmp_path: Path) -> None:
    store, given = str(tmp_path / "s"), transfers(60)
    handle = ledger(given, bounded=True).start(
        store, execution="local", max_rows_per_epoch=10
    )
    handle.savepoint("then")
    until(lambda: arrived(store) == expected(given))
    handle.restore("then")
    until(lambda: arrived(store) == expected(given))
    handle.stop()
    handle.wait()


def test_regions_in_several_runs_some_of_which_are_over(tmp_path: Path) -> None:
    store, given = str(tmp_path / "s"), transfers(60)
    handle = ledger(given).start(store, execution="local", max_rows_per_epoch=10)
    handle.savepoint("then", protocol="unaligned")
    handle.stop()
    handle.wait()
    given += transfers(100)[len(given) :]
    run(ledger(given), store)
    with (
        going(ledger(given), store, region="east"),
        going(ledger(given), store, region="final"),
    ):
        plan = rl.stores.restore_all(f"{store}@then")
        assert plan.waiting == ()
        # Those that do not run went back by who asked; nobody reads on without them.
        with (
            going(ledger(given), store, region="main"),
            going(ledger(given), store, region="west"),
        ):
            until(lambda: arrived(store) == expected(given))
    assert rl.stores.verify(store).is_whole


@pytest.mark.parametrize("point", ["V2", "V3", "V8"])
def test_who_asks_may_die_at_any_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    store, given = str(tmp_path / "s"), transfers(60)
    with going(ledger(given), store, max_rows_per_epoch=10) as handle:
        handle.savepoint("then", protocol="unaligned")
        given += transfers(100)[len(given) :]
        until(lambda: arrived(store) == expected(given))
    if point != "V8":
        asker = threading.current_thread()

        def die(name: str) -> None:
            if name == point and threading.current_thread() is asker:
                raise KeyboardInterrupt

        with going(ledger(given), store):
            monkeypatch.setattr("riverlock.core.faults.hit", die)
            with pytest.raises(KeyboardInterrupt):
                rl.stores.restore_all(f"{store}@then")
            monkeypatch.undo()
            if point == "V3":
                until(lambda: set(resets(store).values()) == {1})
            until(lambda: arrived(store) == expected(given))
        return
    left = [2]

    def die_half_way(name: str) -> None:
        left[0] -= name == point
        if left[0] == 0:
            raise KeyboardInterrupt

    monkeypatch.setattr("riverlock.core.faults.hit", die_half_way)
    with pytest.raises(KeyboardInterrupt):
        rl.stores.restore_all(f"{store}@then")
    monkeypatch.undo()
    run(ledger(given), store)
    assert arrived(store) == expected(given)
    assert set(resets(store).values()) == {1}


def test_what_an_earlier_version_has_left_is_completed(tmp_path: Path) -> None:
    store, given = str(tmp_path / "s"), transfers(60)
    handle = ledger(given).start(store, execution="local", max_rows_per_epoch=10)
    named = handle.savepoint("then")
    handle.stop()
    handle.wait()
    given += transfers(100)[len(given) :]
    run(ledger(given), store)
    from riverlock.snapshot.format.cuts.cut_records import Restoring
    from riverlock.snapshot.format.sealed import seal

    left = Restoring(name="then", regions=named.regions, asked_us=7)
    open_storage(store).put("restoring.json", seal(left))
    run(ledger(given), store)
    assert arrived(store) == expected(given)
    assert not (tmp_path / "s" / "restoring.json").exists()
    assert set(resets(store).values()) == {1}


def test_a_snapshot_that_is_asked_for_after_all_went_back_is_taken(
    tmp_path: Path,
) -> None:
    """Also by regions that had nothing to undo, and say only now that they are back."""
    store, given = str(tmp_path / "s"), transfers(40)
    with going(ledger(given), store) as handle:
        handle.savepoint("then", protocol="drain")
    given += transfers(60)[40:]
    run(ledger(given), store, region="main")
    rl.stores.restore_all(f"{store}@then")
    assert sorted(resets(store).values()) == [0, 0, 0, 1]
    CutLog(open_storage(store)).propose(
        "after",
        protocol="aligned",
        asked_us=SystemClock().now_us(),
        timeout_us=600_000_000,
        note="",
    )

    run(ledger(given), store)

    assert not list(CutLog(open_storage(store)).abandoned())
    (after,) = (
        n for n in Catalog(open_storage(store)).snapshots() if n.name == "after"
    )
    assert len(set(balance(store, after))) == 1
    assert arrived(store) == expected(given)
