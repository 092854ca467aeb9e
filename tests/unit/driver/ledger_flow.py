"""Money that moves between accounts, over four regions: what is debited arrives once.

``debit`` is in the region *main*. Its rows go to *east* or *west* by the account that
gets them, and what these two emit is joined in *final*. So there is a fork, a join of
two regions, and ways of different length. In every consistent cut, what was debited is
what was credited plus what is in flight.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pyarrow.parquet as pq

import riverlock as rl
from riverlock.snapshot.catalog import Catalog
from riverlock.snapshot.format.records import Named
from riverlock.storage.open import open_storage
from riverlock.testing import rows

COLUMNS = "source string, target string, amount long"
HALVES = ("east", "west")
# The channels that money is in between debit and credit.
CARRYING = ("to-east", "to-west")


class Debit(rl.Process):
    """Takes money from an account."""

    output = COLUMNS
    sent = rl.Value("long", default=0)

    def on_event(self, transfer: Any, ctx: rl.Context) -> Any:
        self.sent += transfer.amount
        yield transfer.source, transfer.target, transfer.amount


class Credit(rl.Process):
    """Gives money to an account."""

    output = "target string, amount long"
    received = rl.Value("long", default=0)

    def on_event(self, transfer: Any, ctx: rl.Context) -> Any:
        self.received += transfer.amount
        yield transfer.target, transfer.amount


def held_up(gate: threading.Event) -> type[Credit]:
    """Return the same, for accounts that wait until a gate opens."""

    class HeldUp(Credit):
        def on_event(self, transfer: Any, ctx: rl.Context) -> Any:
            assert gate.wait(120)
            yield from super().on_event(transfer, ctx)

    return HeldUp


class Arrived(rl.Process):
    """Counts what has arrived in the end."""

    output = "target string, total long"
    total = rl.Value("long", default=0)

    def on_event(self, transfer: Any, ctx: rl.Context) -> Any:
        self.total += transfer.amount
        yield transfer.target, self.total


def is_for(half: str, transfer: Any) -> bool:
    """Tell whether the account that gets the money is in a region."""
    return HALVES[int(transfer.target[1:]) % 2] == half


def ledger(
    given: list[Any],
    sink: Any = None,
    *,
    bounded: bool = False,
    credit: type[Credit] = Credit,
) -> rl.Flow:
    """Return the flow over these transfers; they may become more while it runs."""
    flow = rl.Flow("ledger", key_groups=8)
    transfers = flow.read(rows(COLUMNS, given, bounded=bounded), uid="transfers")
    debited = transfers.key_by("source").process(Debit(), uid="debit")
    ends = []
    for half in HALVES:
        mine = debited.filter(partial(is_for, half), uid=f"is-{half}")
        credited = mine.region(half, uid=f"to-{half}").key_by("target")
        ends.append(
            credited.process(credit(), uid=f"credit-{half}").region(
                "final", uid=f"from-{half}"
            )
        )
    first, second = ends
    arrived = first.union(second).key_by("target").process(Arrived(), uid="arrived")
    if sink is not None:
        arrived.write(sink, uid="out")
    return flow


def transfers(count: int, accounts: int = 7) -> list[tuple[str, str, int]]:
    """Return transfers between accounts, the same each time."""
    return [
        (f"a{n % accounts}", f"b{n * 31 % (accounts + 2)}", 1 + n % 5)
        for n in range(count)
    ]


def total(store: str, at: str | None, operator: str, variable: str) -> int:
    """Return the sum of a variable over all accounts."""
    found = rl.open(store).at(at).state(operator).to_arrow().to_pylist()
    return sum(row[variable] for row in found)


def in_flight(store: str, named: Named, carrying: tuple[str, ...] = CARRYING) -> int:
    """Return the money in some channels in a snapshot: that of their files."""
    storage = open_storage(store)
    found = 0
    for span in named.in_flight:
        if span.channel not in carrying:
            continue
        for epoch in range(span.first, span.end):
            manifest = Catalog(storage, span.writer).manifest(epoch)
            for token in manifest.outputs[span.channel].tokens:
                path = storage.local_path(token["path"])
                found += sum(pq.read_table(path)["amount"].to_pylist())
    return found


def balance(store: str, named: Named) -> tuple[int, int]:
    """Return what was debited in a snapshot, and what was credited or is in flight."""
    credited = sum(
        total(store, named.name, f"credit-{half}", "received") for half in HALVES
    )
    sent = total(store, named.name, "debit", "sent")
    return sent, credited + in_flight(store, named)


# A ledger with loops: what bounces is tried again.

BOUNCING = f"{COLUMNS}, bounces int"
# Where money is in flight there.
ROUND = ("to-bank", "again", "soon")


class Pay(rl.Process):
    """Takes money from an account, and sends it on its way."""

    output = BOUNCING
    sent = rl.Value("long", default=0)

    def on_event(self, transfer: Any, ctx: rl.Context) -> Any:
        self.sent += transfer.amount
        yield transfer.source, transfer.target, transfer.amount, transfer.amount


class Receive(rl.Process):
    """Gives money to an account, if it has bounced as often as it must.

    It goes back to where it came from, or is tried again here, by turns.
    """

    output = "target string, amount long"
    received = rl.Value("long", default=0)
    again = rl.SideOutput(BOUNCING)
    soon = rl.SideOutput(BOUNCING)

    def on_event(self, transfer: Any, ctx: rl.Context) -> Any:
        left = transfer.bounces
        if left == 0:
            self.received += transfer.amount
            yield transfer.target, transfer.amount
            return
        row = (transfer.source, transfer.target, transfer.amount, left - 1)
        ctx.emit(self.again if left % 2 else self.soon, row)


def bouncing_ledger(
    given: list[Any], sink: Any = None, *, bounded: bool = False
) -> rl.Flow:
    """Return a flow of two regions and two loops: back to the first, and in itself."""
    flow = rl.Flow("bouncing", key_groups=8)
    new = flow.read(rows(COLUMNS, given, bounded=bounded), uid="transfers")
    again = flow.loop(BOUNCING, uid="again")
    soon = flow.loop(BOUNCING, uid="soon", region="bank")
    paid = new.key_by("source").process(Pay(), uid="pay")
    on_way = paid.union(again).region("bank", uid="to-bank").union(soon)
    received = on_way.key_by("target").process(Receive(), uid="receive")
    received.side("again").feed(again)
    received.side("soon").feed(soon)
    if sink is not None:
        received.write(sink, uid="out")
    return flow


def bouncing_balance(store: str, named: Named) -> tuple[int, int]:
    """Return what was paid in a snapshot, and what was received or is in flight."""
    received = total(store, named.name, "receive", "received")
    sent = total(store, named.name, "pay", "sent")
    return sent, received + in_flight(store, named, ROUND)


def until(is_so: Callable[[], bool]) -> None:
    """Wait for progress."""
    deadline = time.monotonic() + 120
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def snapshot_of_a_backlog(
    store: str, given: list[Any], name: str, sink: Any = None, *, protocol: Any
) -> Named:
    """Run the flow so that a snapshot finds many rows on their way; return it.

    The halves wait in their first epoch until all is debited and marked.
    """
    gate, named = threading.Event(), list[Named]()
    flow, main = ledger(given, sink, credit=held_up(gate)), Catalog(open_storage(store))
    handle = flow.start(store, execution="local", max_rows_per_epoch=10)
    asking = threading.Thread(
        target=lambda: named.append(handle.savepoint(name, protocol=protocol))
    )
    try:
        until(lambda: debited(store) == sum(amount for _, _, amount in given))
        asking.start()
        if protocol != "drain":
            until(lambda: bool(main.resolve(None).borne))
        gate.set()
        asking.join(120)
    finally:
        gate.set()
        handle.stop()
    return named[0]


def debited(store: str) -> int:
    """Return what was taken from accounts so far."""
    if Catalog(open_storage(store)).newest() is None:
        return 0
    return total(store, None, "debit", "sent")
