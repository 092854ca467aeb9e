"""A region waits while the reader of its channel is behind by more than a bound."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from tests.unit.driver.ledger_flow import transfers
from tests.unit.driver.test_regions_apart import begin, eventually
from tests.unit.driver.test_regions_run import PROTOCOLS, Protocol, run

import riverlock as rl
from riverlock.snapshot.backlog import position_in, sent_since, unread
from riverlock.snapshot.catalog import Catalog
from riverlock.snapshot.owner import read_beat
from riverlock.storage.open import open_storage
from riverlock.testing import rows

COLUMNS = "source string, target string, amount long"
BOUND = rl.Bound(rows=20)


class Credit(rl.Process):
    """Adds up what an account gets."""

    output = "target string, total long"
    total = rl.Value("long", default=0)

    def on_event(self, transfer: Any, ctx: rl.Context) -> Any:
        self.total += transfer.amount
        yield transfer.target, self.total


def pair(
    given: list[Any], bound: rl.Bound | None, process: rl.Process | None = None
) -> rl.Flow:
    """Return a flow of two regions with a bounded channel between them."""
    flow = rl.Flow("pair", key_groups=8)
    read = flow.read(rows(COLUMNS, given), uid="in")
    behind = read.region("behind", uid="x", bound=bound, max_rows_per_epoch=5)
    behind.key_by("target").process(process or Credit(), uid="credit")
    free = read.region("free", uid="y")
    free.key_by("target").process(Credit(), uid="free")
    return flow


def waiting(store: str) -> int:
    """Return the rows in the channel."""
    storage = open_storage(store)
    main, reader = Catalog(storage), Catalog(storage, "behind")
    newest = main.newest()
    if newest is None:
        return 0
    position = position_in(reader.newest(), "main", "x")
    return unread(sent_since(main, newest, "x", position), position).rows


def total(given: list[Any]) -> int:
    return sum(amount for _, _, amount in given)


def test_a_writer_waits_for_a_reader_that_does_not_run(tmp_path: Path) -> None:
    store, given = str(tmp_path / "s"), transfers(200)
    writer = begin(pair(given, BOUND), store, region="main", max_rows_per_epoch=8)
    eventually(lambda: writer.status().state == "waiting", "that it is held back")
    said = writer.status().error
    assert said is not None
    assert "waiting for region 'behind' to read channel 'x'" in said
    assert "24 rows wait, at most 20 may" in said
    # By one epoch more than the bound, and no row after that.
    assert waiting(store) == 24
    reader = begin(pair(given, BOUND), store, region="behind")
    eventually(
        lambda: waiting(store) == 0 and added(store, "credit") == total(given), "all"
    )
    eventually(lambda: writer.status().state == "running", "that nothing holds it")
    assert writer.status().error is None
    writer.stop()
    reader.stop()


def test_a_run_that_takes_what_is_there_ends_if_nobody_reads(tmp_path: Path) -> None:
    store, given = str(tmp_path / "s"), transfers(100)
    while added(store, "credit") < total(given):
        before = added(store, "credit")
        for region in ("main", "behind"):
            run(pair(given, BOUND), store, region=region, max_rows_per_epoch=8)
            assert waiting(store) <= 24
        assert added(store, "credit") > before
    assert added(store, "credit") == total(given)


@pytest.mark.parametrize("bound", [BOUND, None])
def test_a_paused_region_holds_back_its_writer_if_it_has_a_bound(
    tmp_path: Path, bound: rl.Bound | None
) -> None:
    store, given, gate = str(tmp_path / "s"), transfers(150), threading.Event()

    class Gated(Credit):
        def on_event(self, transfer: Any, ctx: rl.Context) -> Any:
            gate.wait(60)
            self.total += transfer.amount
            yield transfer.target, self.total

    handle = begin(pair(given, bound, Gated()), store, max_rows_per_epoch=8)
    try:
        if bound is None:
            # The channel keeps all; the others are not concerned.
            eventually(lambda: added(store, "free") == total(given), "all rows")
            assert handle.status("main").state == "running"
        else:
            is_held = lambda: handle.status("main").state == "waiting"  # noqa: E731
            eventually(is_held, "that it is held back")
            before = files(store)
            beats = count_of_beats(store)
            eventually(lambda: count_of_beats(store) > beats + 2, "three beats")
            assert files(store) == before
            assert waiting(store) <= 30
        gate.set()
        eventually(lambda: added(store, "credit") == total(given), "all rows")
    finally:
        gate.set()
        handle.stop()


def added(store: str, operator: str) -> int:
    """Return what an operator has added up so far."""
    region = {"credit": "behind"}.get(operator, operator)
    if Catalog(open_storage(store), region).newest() is None:
        return 0
    return state_sum(store, None, operator, "total")


def files(store: str) -> list[str]:
    """Return the channels and manifests of the region that is held back."""
    listed = [e.path for e in open_storage(store).list("regions/main/")]
    return sorted(p for p in listed if "/channels/" in p or "/epochs/" in p)


def count_of_beats(store: str) -> int:
    beat = read_beat(Catalog(open_storage(store)))
    assert beat is not None
    return beat.count


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_snapshots_are_taken_while_a_bound_holds(
    tmp_path: Path, protocol: Protocol
) -> None:
    store, given = str(tmp_path / "s"), transfers(120)
    handle = begin(diamond(given), store, max_rows_per_epoch=10)
    named = [handle.savepoint(f"v{n}", protocol=protocol) for n in range(3)]
    eventually(lambda: arrived(store) == total(given), "all rows")
    handle.stop()
    for each in named:
        sent = state_sum(store, each.name, "sent", "n")
        got = state_sum(store, each.name, "got", "n")
        flying = {span.channel: span.rows for span in each.in_flight}
        assert sent == got + sum(flying.values())
    assert rl.stores.verify(store).is_whole


def diamond(given: list[Any]) -> rl.Flow:
    """Return a flow with two ways from head to end, each held to a few rows."""
    tight = rl.Bound(rows=1)
    flow = rl.Flow("diamond", key_groups=8)
    read = flow.read(rows(COLUMNS, given), uid="in").key_by("source")
    sent = read.process(Counted(), uid="sent")
    left = sent.region("left", uid="to-left", bound=tight, max_rows_per_epoch=3)
    right = sent.side("other").region("right", uid="to-right", bound=tight)
    ends = [
        left.map(same, COLUMNS).region("end", uid="from-left", bound=tight),
        right.map(same, COLUMNS).region("end", uid="from-right", bound=tight),
    ]
    ends[0].union(ends[1]).key_by("target").process(Got(), uid="got")
    return flow


def same(transfer: Any) -> Any:
    return tuple(transfer)


class Counted(rl.Process):
    """Sends each transfer one of two ways."""

    output = COLUMNS
    n = rl.Value("long", default=0)
    other = rl.SideOutput(COLUMNS)

    def on_event(self, transfer: Any, ctx: rl.Context) -> Any:
        self.n += 1
        row = (transfer.source, transfer.target, transfer.amount)
        if transfer.amount % 2:
            yield row
        else:
            ctx.emit(self.other, row)


class Got(rl.Process):
    """Counts what comes."""

    output = COLUMNS
    n = rl.Value("long", default=0)
    total = rl.Value("long", default=0)

    def on_event(self, transfer: Any, ctx: rl.Context) -> Any:
        self.n += 1
        self.total += transfer.amount


def arrived(store: str) -> int:
    try:
        return state_sum(store, None, "got", "total")
    except rl.RiverlockError:
        return 0


def state_sum(store: str, at: str | None, operator: str, variable: str) -> int:
    found = rl.open(store).at(at).state(operator).to_arrow().to_pylist()
    return sum(row[variable] for row in found)
