"""Flows that read channels of others: one publishes, the other follows its store."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.unit.driver.ledger_flow import Credit, Debit, transfers

import riverlock as rl
from riverlock.coordinator.restart import NoRestart
from riverlock.core.errors import SourceError, SourceUnavailableError
from riverlock.snapshot.catalog import Catalog
from riverlock.snapshot.retention.policy import Retention, sweep
from riverlock.storage.open import open_storage
from riverlock.testing import rows

COLUMNS = "source string, target string, amount long"
START = datetime(2026, 1, 1, tzinfo=UTC)
LATER = datetime.now(UTC) + timedelta(days=30)


def debits(given: list[Any], *, bounded: bool = False) -> rl.Flow:
    """Return the flow that takes money, and publishes what it took."""
    flow = rl.Flow("debits", key_groups=8)
    read = flow.read(rows(COLUMNS, given, bounded=bounded), uid="transfers")
    taken = read.key_by("source").process(Debit(), uid="debit")
    taken.publish("sent")
    return flow


def credits(store: str, sink: Any = None) -> rl.Flow:
    """Return the flow that gives the money of another one."""
    flow = rl.Flow("credits", key_groups=8)
    sent = flow.read(rl.sources.channel(store, "sent", timed=False), uid="sent-there")
    given = sent.key_by("target").process(Credit(), uid="credit")
    if sink is not None:
        given.write(sink, uid="out")
    return flow


def run(flow: rl.Flow, store: str, **options: Any) -> None:
    flow.run(store, execution="local", available_now=True, **options)


def received(store: str, at: str | None = None) -> Counter[str]:
    found = rl.open(store).at(at).state("credit").to_arrow().to_pylist()
    return Counter({row["target"]: row["received"] for row in found})


def expected(given: list[Any]) -> Counter[str]:
    found: Counter[str] = Counter()
    for _, target, amount in given:
        found[target] += amount
    return found


@pytest.fixture
def places(tmp_path: Path) -> tuple[str, str]:
    return str(tmp_path / "a"), str(tmp_path / "b")


def test_another_flow_reads_what_one_publishes_once(places: tuple[str, str]) -> None:
    a, b = places
    given: list[Any] = []
    for size in (50, 120, 121):
        given += transfers(size)[len(given) :]
        run(debits(given), a, max_rows_per_epoch=20)
        run(credits(a), b, max_rows_per_epoch=33)
        assert received(b) == expected(given)
    for store in places:
        assert Catalog(open_storage(store)).flow().features == ("joined",)
    assert rl.stores.verify(a).is_whole


def test_both_run_at_once(places: tuple[str, str]) -> None:
    a, b = places
    given, sink = transfers(60), rl.sinks.memory()
    reader = credits(a, sink).start(b, execution="local")  # waits for the store
    try:
        writer = debits(given).start(a, execution="local", max_rows_per_epoch=7)
        given += transfers(200)[60:]
        try:
            wait_for(lambda: len(sink.rows()) == 200)
        finally:
            writer.stop()
    finally:
        reader.stop()
    assert received(b) == expected(given)


def wait_for(condition: Any) -> None:
    import time

    limit = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < limit, "nothing came"
        time.sleep(0.02)


def test_a_channel_that_is_not_there_is_told(places: tuple[str, str]) -> None:
    a, b = places
    with pytest.raises(SourceUnavailableError, match="no store"):
        run(credits(a), b, restart=NoRestart())
    run(debits(transfers(5)), a)
    flow = rl.Flow("wrong")
    flow.read(rl.sources.channel(a, "send", timed=False)).write(rl.sinks.memory())
    with pytest.raises(SourceUnavailableError, match="channels: sent"):
        run(flow, b, restart=NoRestart())
    timed = rl.Flow("timed")
    timed.read(rl.sources.channel(a, "sent")).write(rl.sinks.memory())
    with pytest.raises(SourceError, match="no event times") as told:
        run(timed, b)
    assert "timed=False" in told.value.hint


def test_what_a_reader_has_not_read_is_kept_until_it_is_removed(
    places: tuple[str, str],
) -> None:
    a, b = places
    given = transfers(60)
    run(debits(given), a, max_rows_per_epoch=5)
    run(credits(a), b, max_rows_per_epoch=5, max_epochs=3)
    (reader,) = rl.stores.readers(a)
    assert (reader.name, reader.channel, reader.first) == ("credits", "sent", 0)
    keep = Retention(epochs=1, grace=timedelta(0))
    before = Catalog(open_storage(a)).epochs()
    sweep(Catalog(open_storage(a)), keep, now=LATER)
    assert Catalog(open_storage(a)).epochs() == before
    run(credits(a), b)
    assert received(b) == expected(given)
    rl.stores.forget_reader(a, "credits")
    assert rl.stores.readers(a) == []
    sweep(Catalog(open_storage(a)), keep, now=LATER)
    assert Catalog(open_storage(a)).epochs() == before[-1:]
    # It comes back, and what it has not read is there: nothing was lost.
    given += transfers(90)[60:]
    run(debits(given), a)
    run(credits(a), b)
    assert received(b) == expected(given)


def test_a_reader_lets_go_of_what_it_has_passed(places: tuple[str, str]) -> None:
    a, b = places
    given: list[Any] = []
    for size in range(20, 200, 20):
        given += transfers(size)[len(given) :]
        run(debits(given), a)
        run(credits(a), b, retain_epochs=2, grace="0 seconds")
    (reader,) = rl.stores.readers(a)
    assert reader.first > 0
    sweep(Catalog(open_storage(a)), Retention(epochs=1, grace=timedelta(0)), now=LATER)
    kept = Catalog(open_storage(a)).epochs()
    assert 1 < len(kept) < 9
    assert kept[0] == reader.first
    assert received(b) == expected(given)


def test_a_new_reader_begins_with_what_is_kept(places: tuple[str, str]) -> None:
    a, b = places
    given = transfers(60)
    run(debits(given), a, max_rows_per_epoch=5)
    sweep(Catalog(open_storage(a)), Retention(epochs=2, grace=timedelta(0)), now=LATER)
    kept = Catalog(open_storage(a)).epochs()
    run(credits(a), b)
    assert sum(received(b).values()) == sum(amount for _, _, amount in given[-10:])
    assert rl.stores.readers(a)[0].first == kept[0]


def test_rows_that_are_gone_are_told(places: tuple[str, str]) -> None:
    a, b = places
    given = transfers(60)
    run(debits(given), a, max_rows_per_epoch=5)
    run(credits(a), b, max_rows_per_epoch=5, max_epochs=3)
    rl.stores.forget_reader(a, "credits")
    sweep(Catalog(open_storage(a)), Retention(epochs=1, grace=timedelta(0)), now=LATER)
    with pytest.raises(SourceError, match="is gone"):
        run(credits(a), b)


def test_a_store_of_another_flow_in_its_place_is_told(places: tuple[str, str]) -> None:
    import shutil

    a, b = places
    run(debits(transfers(60)), a)
    run(credits(a), b)
    shutil.rmtree(a)
    run(debits(transfers(80)), a)
    with pytest.raises(SourceError, match="is the store of flow"):
        run(credits(a), b)


def test_a_writer_that_went_back_is_told(places: tuple[str, str]) -> None:
    a, b = places
    run(debits(transfers(60)), a, max_rows_per_epoch=10)
    run(credits(a), b, max_rows_per_epoch=10)
    rl.stores.restore(f"{a}@2")
    with pytest.raises(SourceError, match="restored without this one"):
        run(credits(a), b)
    rl.stores.restore(f"{b}@2")
    run(credits(a), b)
    run(debits(transfers(60)), a)
    run(credits(a), b)
    assert received(b) == expected(transfers(60))


def timed_writer(seconds: list[int]) -> rl.Flow:
    flow = rl.Flow("times", key_groups=8)
    given = [(f"k{n % 3}", START + timedelta(seconds=s)) for n, s in enumerate(seconds)]
    read = flow.read(rows("k string, at timestamp", given, bounded=True), uid="in")
    read.event_time("at", delay="10 seconds", uid="time").publish("timed")
    return flow


@pytest.mark.parametrize("rows_per_epoch", [1, 7, 1000])
def test_watermarks_cross_to_other_flows(
    places: tuple[str, str], rows_per_epoch: int
) -> None:
    a, b = places
    seconds = [*range(0, 300, 5), 290, 299, 303, 295]
    run(timed_writer(seconds), a, max_rows_per_epoch=rows_per_epoch, retain_epochs=99)
    flow, sink = rl.Flow("counts", key_groups=8), rl.sinks.memory()
    windows = (
        flow.read(rl.sources.channel(a, "timed"), uid="there")
        .key_by("k")
        .window(rl.tumbling("1 minute"))
    )
    windows.apply(
        lambda key, window, found: [(key, window.start, len(found))],
        "k string, minute timestamp, n long",
        uid="w",
    ).write(sink, uid="out")
    run(flow, b, max_rows_per_epoch=rows_per_epoch)
    wanted = Counter(
        (f"k{number % 3}", START + timedelta(seconds=second // 60 * 60))
        for number, second in enumerate(seconds)
    )
    assert Counter({(k, minute): n for k, minute, n in sink.rows()}) == wanted
