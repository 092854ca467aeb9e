"""Where the money is in a snapshot, and what plain Python says where it should be."""

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq

import riverlock as rl
from examples.ledger.flow import transfer
from riverlock.snapshot.catalog import Catalog
from riverlock.snapshot.format.records import Named
from riverlock.storage.open import open_storage

# The state that holds money, by operator.
HOLDERS = {"debit": "balance", "clearing": "held", "credit": "balance"}


@dataclass(frozen=True, kw_only=True)
class Money:
    """The money of a snapshot.

    Attributes:
        held: In the state of each region, by operator.
        in_flight: In channels.
        rows: How many rows are in channels.
        bytes: The size of their files.
    """

    held: dict[str, int]
    in_flight: int
    rows: int
    bytes: int

    @property
    def total(self) -> int:
        """All of it: what was debited is negative, so the sum must be zero."""
        return sum(self.held.values()) + self.in_flight


def balances(store: str, operator: str, *, at: str | None = None) -> dict[str, int]:
    """Return what an operator has, by account."""
    snapshot = rl.open(store).at(at)
    if operator not in snapshot.operators:
        return {}
    account = "source" if operator == "debit" else "target"
    rows = snapshot.state(operator).to_arrow().to_pylist()
    return {row[account]: row[HOLDERS[operator]] for row in rows}


def money_in(store: str, named: Named) -> Money:
    """Return the money that a snapshot says there is, from its files alone."""
    held = {
        operator: sum(balances(store, operator, at=named.name).values())
        for operator in HOLDERS
    }
    storage, found, rows_there, size = open_storage(store), 0, 0, 0
    for span in named.in_flight:
        writer = Catalog(storage, span.writer)
        for epoch in range(span.first, span.end):
            for token in writer.stored(epoch).outputs[span.channel].tokens:
                path = storage.local_path(token["path"])
                found += sum(pq.read_table(path)["amount"].to_pylist())
                rows_there += token["rows"]
                size += token["bytes"]
    return Money(held=held, in_flight=found, rows=rows_there, bytes=size)


def differences(store: str, out: str, count: int) -> list[str]:
    """Return what is not as plain Python has it after so many transfers.

    In which order large transfers reach an account is not fixed, and so what of them is
    still held: what an account was given, and what is held for it, are compared as one.
    """
    paid, received = Counter[str](), Counter[str]()
    for source, target, amount in map(transfer, range(count)):
        paid[source] -= amount
        received[target] += amount
    credited = Counter(balances(store, "credit"))
    given = credited + Counter(balances(store, "clearing"))
    found = {
        "debits": (Counter(balances(store, "debit")), paid),
        "credits and what is held": (given, received),
        "rows that were written": (_written(out), credited),
    }
    return [
        f"{what}: {_first_difference(mine, truth)}"
        for what, (mine, truth) in found.items()
        if dict(mine) != dict(truth)
    ]


def _written(out: str) -> Counter[str]:
    """Return the sums of the rows that readers of the output see, by account."""
    found = Counter[str]()
    for file in Path(out).glob("epoch=*/*.json"):
        for line in file.read_text().splitlines():
            row = json.loads(line)
            found[row["target"]] += row["amount"]
    return found


def _first_difference(mine: Counter[str], truth: Counter[str]) -> str:
    account = min(a for a in mine.keys() | truth.keys() if mine[a] != truth[a])
    return f"account {account} has {mine[account]}, not {truth[account]}"
