"""Snapshots of all regions by each protocol, while the flow runs and is killed.

    make ledger     or     python -m examples.ledger [--engine local] [--keep DIR]

Transfers move money between accounts that begin with nothing. In every snapshot, money
in state plus money in flight must be zero; in the end, every account must have what
plain Python says. Each protocol takes some snapshots one after the other. Then come
lives of the flow that end by a kill, of all its processes, at a random moment while the
last of the life's snapshots is being taken. A hundred for each protocol:

    make ledger LEDGER_ARGS="--snapshots 5 --kills 10 --per-life 10 --pace 200"
"""

import argparse
import random
import shutil
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from itertools import count
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
# A kill comes within the time that a snapshot takes; within so many seconds, if that is
# not known.
SOON = 1.0
# Wide enough for the table where there is no terminal.
console = Console(highlight=False, soft_wrap=True, width=max(Console().width, 140))


@dataclass(frozen=True, kw_only=True)
class Taken:
    """A snapshot.

    Attributes:
        epochs: Of each region, which make the cut.
        seconds: From the request to the decision.
        aligned: From the first region's epoch of it to the last one's.
        was_killed: Whether the flow was killed meanwhile.
    """

    epochs: dict[str, int]
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
    per_life: int
    quiet: float
    chance: random.Random
    began: float = field(default_factory=time.monotonic)
    numbers: Iterator[int] = field(default_factory=lambda: count(1))

    def say(self, text: str) -> None:
        console.print(f"[dim]{time.monotonic() - self.began:6.1f} s[/]  {text}")

    def run(self, protocols: list[Protocol]) -> bool:
        """Do all of it; return whether nothing was wrong."""
        self.ledger.start()
        self.say(f"[green]the flow runs[/] ({self.ledger.engine})")
        outcomes = [self._protocol(protocol) for protocol in protocols]
        arrived = self.ledger.finish()
        self.say(f"{arrived:,} transfers have arrived; comparing with plain Python")
        wrong = differences(self.ledger.store, self.ledger.out, arrived)
        console.print(_table(outcomes))
        sums = [t.money.total for o in outcomes for t in o.taken]
        wrong += [f"a snapshot has {total}, not 0" for total in sums if total]
        for what in (*wrong, *(why for o in outcomes for why in o.abandoned)):
            console.print(f"[bold red]✘[/] {what}")
        is_right = not wrong and not any(o.abandoned for o in outcomes)
        colour, mark = ("green", "✔") if is_right else ("red", "✘")
        kills = len(self.ledger.killed)
        console.print(
            f"[bold {colour}]{mark} {len(sums)} snapshots, {kills} kills:"
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
            self._take(found)
            time.sleep(max(0.0, next_at - time.monotonic()))
        found.beside = self.ledger.rows_between(since, time.time())
        soon = median([t.seconds for t in found.taken] or [SOON])
        for _ in range(self.kills):
            self._life(found, soon)
        taken = len(found.taken)
        self.say(f"[bold]{protocol}[/]: {taken} snapshots, {self.kills} kills")
        return found

    def _life(self, outcome: Outcome, soon: float) -> None:
        """Take snapshots that overlap, and kill the flow after the last request."""
        with ThreadPoolExecutor(self.per_life) as beside:
            for _ in range(self.per_life):
                decided, asked = self.ledger.decided(), self.ledger.requests()
                taking = beside.submit(self._take, outcome)
                while self.ledger.requests() == asked and not taking.done():
                    wait([taking], 0.02)
                if self.per_life > 1:
                    # The next one is another cut.
                    self.ledger.wait_for_epoch(decided + 1)
            time.sleep(self.chance.uniform(0, soon))
            self.ledger.kill()
            self.ledger.start()
        kills, taken = len(self.ledger.killed), len(outcome.taken)
        self.say(f"{kills} kills; {taken} snapshots so far by {outcome.protocol}")

    def _take(self, outcome: Outcome) -> None:
        name = f"{outcome.protocol}-{next(self.numbers)}"
        try:
            named = rl.stores.savepoint(
                self.ledger.store, name, protocol=outcome.protocol
            )
            outcome.taken.append(self._looked_at(named))
        except RiverlockError as error:
            outcome.abandoned.append(str(error))

    def _looked_at(self, named: Named) -> Taken:
        decided = [self.ledger.decided_us(r, e) for r, e in named.regions.items()]
        asked = named.created_us if named.asked_us is None else named.asked_us
        return Taken(
            epochs=named.regions,
            money=money_in(self.ledger.store, named),
            seconds=(named.created_us - asked) / 1e6,
            aligned=(max(decided) - min(decided)) / 1e6,
            was_killed=any(asked < at < named.created_us for at in self.ledger.killed),
        )


def _table(outcomes: list[Outcome]) -> Table:
    table = Table(title="Snapshots of three regions and a loop, by protocol")
    table.add_column("protocol")
    for name in (
        *("snapshots", "cuts", "under kills", "sums", "takes", "alignment"),
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
            str(len({tuple(sorted(t.epochs.items())) for t in found.taken})),
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
    parser.add_argument("--kills", type=int, default=1, help="for each protocol")
    parser.add_argument("--per-life", type=int, default=1, help="snapshots before each")
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
        chosen.per_life,
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
