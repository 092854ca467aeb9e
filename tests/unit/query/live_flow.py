"""Money that is moved within an epoch, so that each epoch's sum is nothing.

The state also says how many rows it is made of: as many as its epoch has read.
"""

from __future__ import annotations

from typing import Any

import riverlock as rl
from riverlock.core.errors import SnapshotNotFoundError
from riverlock.testing import rows


class Balance(rl.Process):
    """What an account has, and how often that has changed."""

    amount = rl.Value("long", default=0)
    changes = rl.Value("long", default=0)

    def on_event(self, change: Any, ctx: rl.Context) -> Any:
        self.amount += change.amount
        self.changes += 1


def both(swap: Any) -> list[tuple[str, int]]:
    """Return what a swap means for its two accounts."""
    return [(swap.source, -swap.amount), (swap.target, swap.amount)]


def swapping(given: list[Any]) -> rl.Flow:
    """Return the flow over these swaps, which may become more while it runs."""
    flow = rl.Flow("swaps", key_groups=8)
    read = flow.read(rows("source string, target string, amount long", given), uid="in")
    changes = read.flat_map(both, "account string, amount long", uid="both")
    changes.key_by("account").process(Balance(), uid="balance")
    return flow


def swaps(count: int, accounts: int = 50) -> list[tuple[str, str, int]]:
    """Return swaps between accounts, the same each time."""
    return [
        (f"a{n % accounts}", f"a{n * 31 % (accounts - 3)}", 1 + n % 5)
        for n in range(count)
    ]


def read_live(store: str) -> int | None:
    """Read the newest epoch and check that it is whole; None: it must be read again.

    Returns its number.
    """
    try:
        snapshot = rl.open(store).at()
        found = snapshot.state("balance").to_arrow().to_pylist()
    except SnapshotNotFoundError:
        return None  # there is none yet, or it was deleted while we read
    rows_read = snapshot.manifest.inputs["in"].end
    assert sum(row["amount"] for row in found) == 0
    assert sum(row["changes"] for row in found) == 2 * row_number(rows_read)
    return snapshot.epoch


def row_number(offset: Any) -> int:
    """Return how many rows of a list come before an offset."""
    return int(offset["row"] if isinstance(offset, dict) else offset)
