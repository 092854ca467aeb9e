"""Snapshots of all regions by each protocol, while the flow runs and is killed.

    make ledger     or     python -m examples.ledger [--engine local] [--keep DIR]

Transfers move money between accounts that begin with nothing. In every snapshot, money
in state plus money in flight must be zero; in the end, every account must have what
plain Python says. Each protocol takes some snapshots one after the other, and more of
them while the flow's processes are killed at a random moment.
"""

import argparse
import random
import shutil
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Literal, get_args

from rich.console import Console
from rich.table import Table

import riverlock as rl
from examples.ledger.money import Money, differences, money_in
from examples.ledger.running import Ledger
from riverlock.core.errors import RiverlockError
from riverlock.snapshot.format.records import Named

Protocol = Literal["aligned", "unaligned", "drain", "epochs"]
# A snapshot that was asked for is followed by a kill within so many seconds.
SOON = 1.0
# Wide enough for the table where there is no terminal.
console = Console(highlight=False, soft_wrap=True, width=max(Console().width, 120))


@dataclass(frozen=True, kw_only=True)
class Taken:
    """A snapshot.

    Attributes:
        seconds: From the request to the decision.
        aligned: From the first region's epoch of it to the last one's.
        was_killed: Whether the flow was killed meanwhile.
    """

    money: Money
    seconds: float
    aligned: float
    was_killed: bool


@dataclass
class Outcome:
    """What a protocol's snapshots were like."""

    protocol: Protocol
    taken: list[Taken] = field(default_factory=list)
    abandoned: list[str] = field(default_factory=list)
    without: float = 0.0
    beside: float = 0.0


@dataclass
class Demo:
    ledger: Ledger
    snapshots: int
    kills: int
    quiet: float
    chance: random.Random
    began: float = field(default_factory=time.monotonic)
    numbers: int = 0

    def say(self, text: str) -> None:
        console.print(f"[dim]{time.monotonic() - self.began:6.1f} s[/]  {text}")

    def run(self, protocols: list[Protocol]) -> bool:
        """Do all of it; return whether nothing was wrong."""
        self.ledger.start()
        self.say(f"[green]the flow runs[/] ({self.ledger.engine})")
        outcomes = [self._protocol(protocol) for protocol in protocols]
        count = self.ledger.finish()
        self.say(f"{count:,} transfers have arrived; comparing with plain Python")
        wrong = differences(self.ledger.store, self.ledger.out, count)
        console.print(_table(outcomes))
        sums = [t.money.total for o in outcomes for t in o.taken]
        wrong += [f"a snapshot has {total}, not 0" for total in sums if total]
        for what in (*wrong, *(why for o in outcomes for why in o.abandoned)):
            console.print(f"[bold red]✘[/] {what}")
        is_right = not wrong and not any(o.abandoned for o in outcomes)
        colour, mark = ("green", "✔") if is_right else ("red", "✘")
        console.print(
            f"[bold {colour}]{mark} {len(sums)} snapshots, {self.ledger.kills} kills:"
            f" {sum(map(bool, sums))} wrong sums, {len(wrong)} differences[/]"
        )
        return is_right

    def _protocol(self, protocol: Protocol) -> Outcome:
        found = Outcome(protocol)
        self.ledger.settle()
        since = time.time()
        time.sleep(self.quiet)
        found.without = self.ledger.rows_between(since, time.time())
        since = time.time()
        for _ in range(self.snapshots):
            next_at = time.monotonic() + 1
            self._take(found, was_killed=False)
            time.sleep(max(0.0, next_at - time.monotonic()))
        found.beside = self.ledger.rows_between(since, time.time())
        for _ in range(self.kills):
            taking = threading.Thread(
                target=self._take, args=(found,), kwargs={"was_killed": True}
            )
            taking.start()
            time.sleep(self.chance.uniform(0, SOON))
            self.ledger.kill()
            self.ledger.start()
            taking.join()
        taken = len(found.taken)
        self.say(f"[bold]{protocol}[/]: {taken} snapshots, {self.kills} kills")
        return found

    def _take(self, outcome: Outcome, *, was_killed: bool) -> None:
        self.numbers += 1
        name = f"{outcome.protocol}-{self.numbers}"
        try:
            named = rl.stores.savepoint(
                self.ledger.store, name, protocol=outcome.protocol
            )
            outcome.taken.append(self._looked_at(named, was_killed=was_killed))
        except RiverlockError as error:
            outcome.abandoned.append(str(error))

    def _looked_at(self, named: Named, *, was_killed: bool) -> Taken:
        decided = [self.ledger.decided_us(r, e) for r, e in named.regions.items()]
        asked = named.created_us if named.asked_us is None else named.asked_us
        return Taken(
            money=money_in(self.ledger.store, named),
            seconds=(named.created_us - asked) / 1e6,
            aligned=(max(decided) - min(decided)) / 1e6,
            was_killed=was_killed,
        )


def _table(outcomes: list[Outcome]) -> Table:
    table = Table(title="Snapshots of three regions, by protocol")
    table.add_column("protocol")
    for name in (
        *("snapshots", "under kills", "sums", "takes", "alignment"),
        *("in flight", "transfers/s", "beside snapshots"),
    ):
        table.add_column(name, justify="right")
    for found in outcomes:
        calm = [t for t in found.taken if not t.was_killed] or found.taken
        sums = sorted({t.money.total for t in found.taken})
        rows = max((t.money.rows for t in found.taken), default=0)
        size = max((t.money.bytes for t in found.taken), default=0)
        table.add_row(
            found.protocol,
            str(len(found.taken)),
            str(sum(t.was_killed for t in found.taken)),
            ", ".join(map(str, sums)),
            _seconds([t.seconds for t in calm]),
            _seconds([t.aligned for t in calm]),
            f"{rows:,} rows, {size:,} B",
            f"{found.without:,.0f}",
            f"{found.beside:,.0f}",
        )
    return table


def _seconds(values: list[float]) -> str:
    return f"{median(values):.2f} s" if values else ""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    known = get_args(Protocol)
    parser.add_argument("--engine", choices=("jobs", "local"), default="jobs")
    parser.add_argument("--protocols", nargs="+", choices=known, default=known)
    parser.add_argument("--snapshots", type=int, default=5, help="of each, in peace")
    parser.add_argument("--kills", type=int, default=1, help="a snapshot during each")
    parser.add_argument("--pace", type=float, default=2_000, help="transfers a second")
    parser.add_argument("--quiet", type=float, default=4, help="seconds in between")
    parser.add_argument("--seed", type=int, default=14, help="of the kills")
    parser.add_argument("--keep", metavar="DIR", help="keep store and output here")
    chosen = parser.parse_args()
    root = Path(chosen.keep or tempfile.mkdtemp(prefix="riverlock-ledger-")).absolute()
    root.mkdir(parents=True, exist_ok=True)
    ledger = Ledger(root, chosen.engine, chosen.pace)
    demo = Demo(
        ledger,
        chosen.snapshots,
        chosen.kills,
        chosen.quiet,
        random.Random(chosen.seed),
    )
    try:
        is_right = demo.run(list(chosen.protocols))
    finally:
        ledger.close()
        if chosen.keep is None:
            shutil.rmtree(root, ignore_errors=True)
    raise SystemExit(0 if is_right else 1)


if __name__ == "__main__":
    main()
