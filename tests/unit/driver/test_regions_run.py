"""Flows of several regions: channels between them, one consistent cut over all."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal, get_args

import pytest
from tests.unit.driver.ledger_flow import (
    HALVES,
    balance,
    ledger,
    total,
    transfers,
)

import riverlock as rl
from riverlock.core.errors import (
    InvalidConfigError,
    InvalidFlowError,
    SnapshotAbandonedError,
    SourceError,
    UserCodeError,
)
from riverlock.snapshot.catalog import Catalog
from riverlock.snapshot.retention.policy import Retention, sweep
from riverlock.storage.open import open_storage
from riverlock.testing import rows

START = datetime(2026, 1, 1, tzinfo=UTC)
Protocol = Literal["aligned", "unaligned", "drain", "epochs"]
PROTOCOLS: tuple[Protocol, ...] = get_args(Protocol)


def expected(given: list[Any]) -> Counter[str]:
    """Return what each account must have received, computed in plain Python."""
    found: Counter[str] = Counter()
    for _, target, amount in given:
        found[target] += amount
    return found


def arrived(store: str) -> Counter[str]:
    """Return what the last region says that accounts have received."""
    found = rl.open(store).state("arrived").to_arrow().to_pylist()
    return Counter({row["target"]: row["total"] for row in found})


def run(flow: rl.Flow, store: str, **options: Any) -> None:
    """Run a flow on the local engine until its input ends."""
    flow.run(store, execution="local", available_now=True, **options)


def test_rows_cross_regions_once_and_in_order(tmp_path: Path) -> None:
    store, given, sink = str(tmp_path / "s"), transfers(500), rl.sinks.memory()
    run(ledger(given, sink), store, max_rows_per_epoch=37)
    assert arrived(store) == expected(given)
    # A running total per account: each row once, and in order within its account.
    seen: dict[str, int] = {}
    for target, reached in sink.rows():
        assert reached > seen.get(target, 0)
        seen[target] = reached
    assert len(sink.rows()) == len(given)
    assert Catalog(open_storage(store)).flow().features == ("regions",)


def test_regions_continue_where_each_of_them_was(tmp_path: Path) -> None:
    store, given = str(tmp_path / "s"), transfers(100)
    for size in (100, 100, 260, 261):
        given += transfers(size)[len(given) :]
        run(ledger(given), store, max_rows_per_epoch=30)
        assert arrived(store) == expected(given)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_no_snapshot_loses_or_makes_money(tmp_path: Path, protocol: Protocol) -> None:
    store, given = str(tmp_path / "s"), transfers(200)
    handle = ledger(given).start(store, execution="local", max_rows_per_epoch=20)
    try:
        found = []
        for number in range(4):
            given += transfers(len(given) + 40)[len(given) :]
            found.append(handle.savepoint(f"v{number}", protocol=protocol))
    finally:
        handle.stop()
    for named in found:
        assert set(named.regions) == {"main", "final", *HALVES}
        assert named.protocol == protocol
        debited, accounted = balance(store, named)
        assert debited == accounted
        if protocol in ("aligned", "drain", "epochs"):
            assert not any(span.rows for span in named.in_flight)
    assert rl.stores.verify(store).is_whole


def test_a_cut_that_skips_alignment_is_found_by_the_same_check(tmp_path: Path) -> None:
    # Epochs that were named one by one, as if regions had not agreed.
    store, given = str(tmp_path / "s"), transfers(300)
    run(ledger(given), store, max_rows_per_epoch=20)
    handle = ledger(given).start(store, execution="local")
    good = handle.savepoint("good")
    handle.stop()
    assert len(set(balance(store, good))) == 1
    catalog = Catalog(open_storage(store))
    bad = rl_replace(good, name="bad", regions={**good.regions, "main": 2})
    catalog.pin_all(bad)
    debited, accounted = balance(store, bad)
    assert debited != accounted


def rl_replace(record: Any, **changes: Any) -> Any:
    import msgspec

    return msgspec.structs.replace(record, **changes)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_going_back_with_all_regions_ends_as_a_perfect_run(
    tmp_path: Path, protocol: Protocol
) -> None:
    store, given = str(tmp_path / "s"), transfers(120)
    handle = ledger(given).start(store, execution="local", max_rows_per_epoch=10)
    named = handle.savepoint("then", protocol=protocol)
    given += transfers(200)[len(given) :]
    handle.savepoint("later")
    handle.stop()
    run(ledger(given), store)
    assert arrived(store) == expected(given)
    plan = rl.stores.restore_all(f"{store}@then")
    assert {r: p.target.epoch for r, p in plan.parts.items()} == named.regions
    assert total(store, None, "debit", "sent") == balance(store, named)[0]
    # To another parallelism, and with what was in flight.
    run(ledger(given), store, parallelism=3, max_rows_per_epoch=50)
    assert arrived(store) == expected(given)
    assert rl.stores.restore_all(f"{store}@then").is_done is False
    run(ledger(given), store)
    assert arrived(store) == expected(given)


def test_a_restore_that_dies_half_way_is_completed_by_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, given = str(tmp_path / "s"), transfers(100)
    handle = ledger(given).start(store, execution="local", max_rows_per_epoch=10)
    handle.savepoint("then")
    handle.stop()
    run(ledger(given), store)
    gone_back = []

    def die(name: str) -> None:
        if name == "V8":
            gone_back.append(name)
            if len(gone_back) == 2:
                raise KeyboardInterrupt

    monkeypatch.setattr("riverlock.core.faults.hit", die)
    with pytest.raises(KeyboardInterrupt):
        rl.stores.restore_all(f"{store}@then")
    monkeypatch.undo()
    run(ledger(given), store)
    assert arrived(store) == expected(given)
    assert not (tmp_path / "s" / "restoring.json").exists()


def test_a_region_that_fails_ends_alone_and_catches_up_later(tmp_path: Path) -> None:
    store, given = str(tmp_path / "s"), transfers(60)

    class Broken(rl.Process):
        output = "target string, amount long"
        received = rl.Value("long", default=0)

        def on_event(self, transfer: Any, ctx: rl.Context) -> Any:
            message = "broken"
            raise ValueError(message)

    def flow_with(east: rl.Process) -> rl.Flow:
        flow = rl.Flow("pair", key_groups=8)
        columns = "source string, target string, amount long"
        read = flow.read(rows(columns, given), uid="transfers")
        for name, process in (("east", east), ("west", Counted())):
            stream = read.region(name, uid=f"to-{name}")
            stream.key_by("target").process(process, uid=f"credit-{name}")
        return flow

    class Counted(rl.Process):
        output = "target string, amount long"
        received = rl.Value("long", default=0)

        def on_event(self, transfer: Any, ctx: rl.Context) -> Any:
            self.received += transfer.amount

    with pytest.raises(UserCodeError, match="credit-east"):
        run(flow_with(Broken()), store, max_rows_per_epoch=10)
    amount = sum(expected(given).values())
    assert total(store, None, "credit-west", "received") == amount
    assert Catalog(open_storage(store), "east").newest() is None
    run(flow_with(Counted()), store)
    assert total(store, None, "credit-east", "received") == amount


def test_what_a_reader_has_not_read_is_kept(tmp_path: Path) -> None:
    store, given = str(tmp_path / "s"), transfers(50)
    run(ledger(given), store, max_rows_per_epoch=5)
    writer = Catalog(open_storage(store))
    reader = Catalog(writer.storage, "east")
    # As if that region had died long ago, and only just began again.
    for epoch in reader.epochs():
        reader.storage.delete(reader.paths.manifest(epoch))
    later = datetime.now(UTC) + timedelta(days=30)
    before = writer.epochs()
    sweep(writer, Retention(epochs=1, grace=timedelta(0)), now=later)
    assert writer.epochs() == before
    files = [e.path for e in writer.storage.list(f"{writer.paths.channels}to-east/")]
    assert files
    # A reader that has read everything keeps nothing but the last position.
    west, final = (Catalog(writer.storage, name) for name in ("west", "final"))
    for region in (final, west):  # kept epochs of a reader keep what they have read
        sweep(region, Retention(epochs=1, grace=timedelta(0)), now=later)
    assert len(west.epochs()) < len(before)


def test_what_all_have_read_is_deleted(tmp_path: Path) -> None:
    store, given = str(tmp_path / "s"), transfers(80)
    run(ledger(given), store, max_rows_per_epoch=5)
    catalog = Catalog(open_storage(store))
    later = datetime.now(UTC) + timedelta(days=30)
    keep = Retention(epochs=2, grace=timedelta(0))
    for _ in range(3):  # readers first, then what they no longer need
        for region in ("final", "east", "west", "main"):
            sweep(Catalog(catalog.storage, region), keep, now=later)
    assert len(catalog.epochs()) < 6
    assert rl.stores.verify(store).is_whole
    given += transfers(120)[80:]
    run(ledger(given), store)
    assert arrived(store) == expected(given)


def test_rows_that_are_gone_are_told(tmp_path: Path) -> None:
    store, given = str(tmp_path / "s"), transfers(40)
    run(ledger(given), store, max_rows_per_epoch=5)
    storage = open_storage(store)
    east = Catalog(storage, "east")
    for epoch in east.epochs()[2:]:
        storage.delete(east.paths.manifest(epoch))
    main = Catalog(storage)
    storage.delete(main.paths.manifest(4))
    with pytest.raises(SourceError, match="epoch 4 of region 'main'"):
        run(ledger(given), store)


def test_a_damaged_file_of_a_channel_is_told(tmp_path: Path) -> None:
    store, given = str(tmp_path / "s"), transfers(40)
    run(ledger(given), store)
    storage = open_storage(store)
    for region in ("east", "final"):  # who reads it begins again, and who reads that
        catalog = Catalog(storage, region)
        for epoch in catalog.epochs():
            storage.delete(catalog.paths.manifest(epoch))
    entry = next(iter(storage.list("regions/main/channels/to-east/")))
    data = bytearray(storage.get(entry.path))
    data[len(data) // 2] ^= 1
    storage.put(entry.path, bytes(data))
    assert [d.path for d in rl.stores.verify(store).damages] == [entry.path]
    with pytest.raises(SourceError, match="is damaged"):
        run(ledger(given), store)


def test_a_writer_that_went_back_alone_is_told(tmp_path: Path) -> None:
    from riverlock.snapshot.verbs.restore import plan_restore, restore

    store, given = str(tmp_path / "s"), transfers(40)
    run(ledger(given), store, max_rows_per_epoch=5)
    main = Catalog(open_storage(store))
    restore(main, plan_restore(main, main.manifest(3)), now_us=0)
    with pytest.raises(SourceError, match="restored without this one"):
        run(ledger(given), store)


def windowed(seconds: list[int], sink: Any, *, bounded: bool) -> rl.Flow:
    """Return a flow whose windows are behind a channel, and behind an operator."""
    flow = rl.Flow("timed", key_groups=8)
    given = [(f"k{n % 3}", START + timedelta(seconds=s)) for n, s in enumerate(seconds)]
    read = flow.read(rows("k string, at timestamp", given, bounded=bounded), uid="in")
    timed = read.event_time("at", delay="10 seconds", uid="time")
    late = timed.region("later", uid="x")
    windows = late.key_by("k").window(rl.tumbling("1 minute"))
    counted = windows.apply(
        lambda key, window, found: [(key, window.start, len(found))],
        "k string, minute timestamp, n long",
        uid="w",
    )
    counted.write(sink, uid="out")
    return flow


@pytest.mark.parametrize("rows_per_epoch", [1, 7, 1000])
def test_watermarks_cross_channels(tmp_path: Path, rows_per_epoch: int) -> None:
    seconds = [*range(0, 300, 5), 290, 299, 303, 295]
    sink = rl.sinks.memory()
    run(
        windowed(seconds, sink, bounded=True),
        str(tmp_path / "s"),
        max_rows_per_epoch=rows_per_epoch,
    )
    wanted = Counter(
        (f"k{number % 3}", START + timedelta(seconds=second // 60 * 60))
        for number, second in enumerate(seconds)
    )
    assert Counter({(k, minute): n for k, minute, n in sink.rows()}) == wanted


def test_without_an_end_windows_wait_for_the_writer(tmp_path: Path) -> None:
    sink = rl.sinks.memory()
    run(windowed([0, 30, 59, 71], sink, bounded=False), str(tmp_path / "s"))
    assert {minute for _, minute, _ in sink.rows()} == {START}
    other = rl.sinks.memory()
    run(windowed([0, 30, 59, 69], other, bounded=False), str(tmp_path / "t"))
    assert other.rows() == []


def test_streams_of_different_regions_do_not_meet() -> None:
    flow = rl.Flow("mixed")
    read = flow.read(rows("k string", []), uid="in")
    other = read.region("other", uid="to-other")
    read.union(other).write(rl.sinks.memory(), uid="out")
    with pytest.raises(InvalidFlowError, match="streams of different regions") as told:
        flow.check(execution="local")
    assert ".region('main')" in told.value.hint


def test_a_stream_does_not_enter_its_own_region() -> None:
    read = rl.Flow("same").read(rows("k string", []), uid="in")
    with pytest.raises(InvalidFlowError, match="another region"):
        read.region("main")


def test_regions_that_read_each_other_are_refused() -> None:
    flow = rl.Flow("round")
    read = flow.read(rows("k string", []), uid="in")
    back = read.region("other", uid="there").region("main", uid="back")
    back.write(rl.sinks.memory(), uid="out")
    with pytest.raises(InvalidFlowError, match="main -> other -> main"):
        flow.check(execution="local")


@pytest.mark.parametrize("verb", ["fork", "repair", "restore", "number", "name"])
def test_what_is_not_there_for_several_regions_is_refused(
    tmp_path: Path, verb: str
) -> None:
    store = str(tmp_path / "s")
    run(ledger(transfers(10)), store)
    verbs: dict[str, Callable[[], object]] = {
        "fork": lambda: rl.stores.fork(f"{store}@0", str(tmp_path / "new")),
        "repair": lambda: rl.stores.repair(store),
        "restore": lambda: rl.stores.restore(f"{store}@0"),
        "number": lambda: rl.open(store).at(0),
        "name": lambda: rl.stores.savepoint(f"{store}@0", "v"),
    }
    with pytest.raises(InvalidConfigError, match="region"):
        verbs[verb]()


def test_a_snapshot_that_a_region_does_not_take_part_in_is_abandoned(
    tmp_path: Path,
) -> None:
    from riverlock.core.clock import SystemClock
    from riverlock.snapshot.verbs.cut import take_cut

    store, given, entered = str(tmp_path / "s"), transfers(20), threading.Event()
    leave = threading.Event()

    class Slow(rl.Process):
        output = "target string, amount long"
        n = rl.Value("long", default=0)

        def on_event(self, transfer: Any, ctx: rl.Context) -> Any:
            self.n += 1
            entered.set()
            leave.wait(60)

    flow = rl.Flow("slow", key_groups=8)
    columns = "source string, target string, amount long"
    read = flow.read(rows(columns, given), uid="transfers")
    read.region("slow", uid="x").key_by("target").process(Slow(), uid="slow")
    handle = flow.start(store, execution="local")
    try:
        assert entered.wait(60)
        with pytest.raises(SnapshotAbandonedError, match="'slow'"):
            take_cut(
                Catalog(open_storage(store)),
                "never",
                now_us=SystemClock().now_us(),
                timeout_us=3_000_000,
            )
    finally:
        leave.set()
    named = handle.savepoint("after")
    handle.stop()
    assert set(named.regions) == {"main", "slow"}
    assert [n.name for n in Catalog(open_storage(store)).snapshots()] == ["after"]


def test_a_stop_with_a_savepoint_names_a_cut_of_all_regions(tmp_path: Path) -> None:
    store, given = str(tmp_path / "s"), transfers(50)
    handle = ledger(given).start(store, execution="local", max_rows_per_epoch=10)
    handle.stop(savepoint="last")
    (named,) = Catalog(open_storage(store)).snapshots()
    assert named.name == "last"
    assert len(set(balance(store, named))) == 1


def test_manifests_say_what_the_rows_of_a_channel_look_like(tmp_path: Path) -> None:
    store = str(tmp_path / "s")
    run(windowed([0, 30], rl.sinks.memory(), bounded=True), store)
    newest = Catalog(open_storage(store)).newest()
    assert newest is not None
    columns = newest.outputs["x"].columns
    assert columns is not None
    assert columns.ddl == "k string, at timestamp"
    assert columns.has_time
    run(ledger(transfers(5)), str(tmp_path / "t"))
    for manifest in Catalog(open_storage(str(tmp_path / "t"))).resolve_all(None):
        for uid, output in manifest.outputs.items():
            known = output.columns
            assert known is not None, uid
            assert not known.has_time
