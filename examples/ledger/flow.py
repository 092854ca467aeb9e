"""Transfers between accounts, over three regions and a loop.

``debit`` takes the money from an account. Small transfers go straight to the region
*credit*; large ones pass the region *clearing*, which holds them back until those of an
account are worth passing on. So *credit* has two inputs, one of them slower. Some small
transfers are refused there once or twice: they come back to the first region, and are
sent again. So money is at any moment in the state of three regions or in a channel
between them. Every account begins with nothing and may owe: all of it together is
always zero.

    PYTHONPATH=. riverlock run examples/ledger/flow.py --store store/ledger
    make ledger        # snapshots by each protocol, and kills
"""

import argparse
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

import riverlock as rl

COLUMNS = "source string, target string, amount bigint"
# With how often the transfer was refused.
OFFERED = f"{COLUMNS}, refused int"
ACCOUNTS = 200
# What is larger is cleared, and passed on when an account has so much.
LARGE, WORTH_IT = 80, 250
# What was cleared is never refused.
CLEARED = 2


def transfer(number: int) -> tuple[str, str, int]:
    """Return a transfer: who pays, who is paid, how much."""
    target = (number * 31 + number // 7) % ACCOUNTS
    return f"a{number % ACCOUNTS:03d}", f"a{target:03d}", 1 + number * 17 % 100


def refusals(amount: int) -> int:
    """Return how often a transfer is refused: one in seven is, once or twice."""
    return 1 + amount % 2 if amount % 7 == 0 else 0


@dataclass(frozen=True)
class Some:
    """Some transfers, which a task makes from their numbers."""

    first: int
    end: int

    def rows(self) -> Iterator[tuple[str, str, int]]:
        return map(transfer, range(self.first, self.end))


@dataclass(frozen=True)
class Transfers:
    """Transfers that appear at a pace; an offset is a number of them.

    Attributes:
        began: When the first one appeared, in seconds since 1970: it is the same for
            every run of the flow.
        pace: How many appear in a second.
        limit: How many there are in all; None: no end.
    """

    began: float
    pace: float
    limit: int | None = None
    kind: str = "transfers"
    schema: str = COLUMNS

    def reader(self, uid: str) -> "TransfersReader":
        return TransfersReader(self)


@dataclass(frozen=True)
class TransfersReader:
    source: Transfers

    def initial(self) -> int:
        return 0

    def latest(self, start: int) -> int:
        if self.source.limit is not None:
            return max(start, self.source.limit)
        there = int((time.time() - self.source.began) * self.source.pace)
        return max(start, there)

    def advance(self, start: int, latest: int, max_rows: int) -> int:
        return min(latest, start + max_rows)

    def has_ended(self, start: int, latest: int) -> bool:
        return False

    def rows_between(self, start: int, end: int) -> int:
        return end - start

    def partitions(self, start: int, end: int) -> Sequence[Some]:
        return [Some(start, end)] if start < end else []

    def close(self) -> None:
        """Nothing is open."""


class Debit(rl.Process):
    """Takes the money from an account."""

    output = OFFERED
    balance = rl.Value("bigint", default=0)

    def on_event(self, transfer: Any, ctx: rl.Context) -> Iterator[Any]:
        self.balance -= transfer.amount
        yield transfer.source, transfer.target, transfer.amount, 0


class Clearing(rl.Process):
    """Holds large transfers to an account until they are worth passing on."""

    output = OFFERED
    held = rl.Value("bigint", default=0)

    def on_event(self, transfer: Any, ctx: rl.Context) -> Iterator[Any]:
        self.held += transfer.amount
        if self.held >= WORTH_IT:
            yield "clearing", transfer.target, self.held, CLEARED
            self.held = 0


class Credit(rl.Process):
    """Gives the money to an account, or refuses the transfer for now."""

    output = "target string, amount bigint"
    balance = rl.Value("bigint", default=0)
    refused = rl.SideOutput(OFFERED)

    def on_event(self, transfer: Any, ctx: rl.Context) -> Iterator[Any]:
        if transfer.refused < refusals(transfer.amount):
            again = transfer.refused + 1
            row = (transfer.source, transfer.target, transfer.amount, again)
            ctx.emit(self.refused, row)
            return
        self.balance += transfer.amount
        yield transfer.target, transfer.amount


def is_large(transfer: Any) -> bool:
    """Tell whether a transfer has to be cleared."""
    return bool(transfer.amount > LARGE)


def is_small(transfer: Any) -> bool:
    """Tell whether a transfer goes straight to its account."""
    return not is_large(transfer)


def build(source: Any, out: str) -> rl.Flow:
    """Return the flow; what arrives is written as JSON below ``out``."""
    flow = rl.Flow("ledger")
    transfers = flow.read(source, uid="transfers")
    debited = transfers.key_by("source").process(Debit(), uid="debit")
    refused = flow.loop(OFFERED, uid="refused")
    large = debited.filter(is_large, uid="is-large").region("clearing", uid="large")
    cleared = large.key_by("target").process(Clearing(), uid="clearing")
    offered = debited.filter(is_small, uid="is-small").union(refused)
    small = offered.region("credit", uid="small")
    arriving = small.union(cleared.region("credit", uid="cleared"))
    credited = arriving.key_by("target").process(Credit(), uid="credit")
    credited.side("refused").feed(refused)
    credited.write(rl.sinks.files(out, format="json"), uid="out")
    return flow


flow = build(
    Transfers(began=time.time(), pace=1_000), str(Path("out/ledger").absolute())
)


def main() -> None:
    """Run until the input of this process ends, or to the end of the transfers."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--engine", choices=("jobs", "local"), default="jobs")
    parser.add_argument("--began", type=float, default=time.time())
    parser.add_argument("--pace", type=float, default=1_000)
    parser.add_argument("--limit", type=int)
    chosen = parser.parse_args()
    source = Transfers(chosen.began, chosen.pace, chosen.limit)
    ledger = build(source, chosen.out)
    execution = cast("Literal['jobs', 'local']", chosen.engine)
    if chosen.limit is not None:
        ledger.run(chosen.store, execution=execution, parallelism=1, available_now=True)
        return
    handle = ledger.start(
        chosen.store, execution=execution, parallelism=1, epoch_target="500 ms"
    )
    threading.Thread(target=_stop_at_end, args=(handle,), daemon=True).start()
    handle.wait()


def _stop_at_end(handle: rl.Handle) -> None:
    sys.stdin.read()
    handle.stop()


if __name__ == "__main__":
    main()
