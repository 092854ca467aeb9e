"""Transfers at a pace, over three regions, each in a process of its own.

*main* takes money from accounts. All of it goes to *bills*, the region that is killed
or paused, and to *alerts*, which must not notice. Both count what each account gets
and write a line for each transfer. A line has the account's number of transfers, so
that a row that is lost, doubled or out of order is seen.

Usage: python -m tests.chaos.paced_regions ROOT REGION ENGINE PACE BEGAN BOUND [LIMIT]
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Any, Literal, cast

from examples.ledger.flow import Debit, Transfers, transfer
from tests.unsynced import without_sync

import riverlock as rl
from riverlock.core.errors import RiverlockError
from riverlock.snapshot.backlog import position_in, sent_since, unread
from riverlock.snapshot.catalog import Catalog
from riverlock.storage.open import open_storage

REGIONS = ("main", "bills", "alerts")
VICTIM, OTHERS = "bills", ("main", "alerts")
EPOCH_ROWS = 1_000  # at most
PATIENCE_SECONDS = 900.0
_LOOK_SECONDS = 0.05


class Count(rl.Process):
    """Counts what an account gets."""

    output = "target string, n bigint, total bigint"
    n = rl.Value("bigint", default=0)
    total = rl.Value("bigint", default=0)

    def on_event(self, sent: Any, ctx: rl.Context) -> Iterator[Any]:
        self.n += 1
        self.total += sent.amount
        yield sent.target, self.n, self.total


def flow_of(source: Transfers, out: Path, bound: int) -> rl.Flow:
    """Return the flow; ``bound``: how many rows *bills* may be behind, 0: any."""
    flow = rl.Flow("paced", key_groups=8)
    sent = flow.read(source, uid="transfers").key_by("source").process(Debit(), uid="d")
    for region in REGIONS[1:]:
        limit = rl.Bound(rows=bound) if bound and region == VICTIM else None
        behind = sent.region(region, uid=f"to-{region}", bound=limit)
        counted = behind.key_by("target").process(Count(), uid=f"count-{region}")
        sink = rl.sinks.files(str(out / region), format="json")
        counted.write(sink, uid=f"out-{region}")
    return flow


@dataclass
class Paced:
    """A store, what is written, and a process for each region."""

    root: Path
    engine: str
    pace: float
    bound: int = 0
    began: float = field(default_factory=time.time)
    children: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def store(self) -> str:
        return str(self.root / "store")

    def start(self, region: str, *limit: str) -> subprocess.Popen[bytes]:
        """Start a region; all that it starts is in its process group."""
        command = [sys.executable, "-m", "tests.chaos.paced_regions", str(self.root)]
        command += [region, self.engine, str(self.pace), str(self.began)]
        with (self.root / f"{region}.log").open("ab") as log:
            child = subprocess.Popen(
                [*command, str(self.bound), *limit],
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.children[region] = child
        return child

    def send(self, region: str, number: signal.Signals) -> None:
        """Send a signal to a region's process and all that it has started."""
        with suppress(ProcessLookupError):
            os.killpg(self.children[region].pid, number)

    def close(self) -> None:
        """Leave nothing running."""
        for region, child in self.children.items():
            self.send(region, signal.SIGKILL)
            child.wait()

    def catalog(self, region: str) -> Catalog:
        return Catalog(open_storage(self.store), region)

    def epoch(self, region: str) -> int:
        """Return the newest epoch of a region; -1: there is none."""
        with suppress(RiverlockError):  # retention works meanwhile
            return max(self.catalog(region).epochs(), default=-1)
        return -1

    def wait_for(self, region: str, epoch: int) -> None:
        """Wait until a region has decided an epoch."""
        limit = time.monotonic() + PATIENCE_SECONDS
        while self.epoch(region) < epoch:
            assert time.monotonic() < limit, f"{region} has not decided epoch {epoch}"
            code = self.children[region].poll()
            assert code is None, f"{region} ended with {code}: {self.log(region)}"
            time.sleep(_LOOK_SECONDS)

    def log(self, region: str) -> str:
        return (self.root / f"{region}.log").read_text(errors="replace")[-2_000:]

    def waiting(self) -> int:
        """Return how many rows wait for the victim."""
        main, reader = self.catalog("main"), self.catalog(VICTIM)
        with suppress(RiverlockError):
            newest, channel = main.newest(), f"to-{VICTIM}"
            if newest is not None:
                position = position_in(reader.newest(), "main", channel)
                return unread(
                    sent_since(main, newest, channel, position), position
                ).rows
        return 0

    def finish(self) -> int:
        """Stop all regions, let everything arrive, and return how much it was."""
        for region, child in self.children.items():
            child.terminate()
            assert child.wait(PATIENCE_SECONDS) == 0, self.log(region)
        newest = self.catalog("main").newest()
        assert newest is not None
        count = int(newest.inputs["transfers"].end)
        for region in REGIONS:
            last = self.start(region, str(count))
            assert last.wait(PATIENCE_SECONDS) == 0, self.log(region)
        return count

    def differences(self, count: int) -> dict[str, tuple[int, int]]:
        """Return how many rows of each output are missing, and how many too many."""
        by_account: dict[str, list[int]] = {}
        for _, target, amount in map(transfer, range(count)):
            by_account.setdefault(target, []).append(amount)
        found = {}
        for region in REGIONS[1:]:
            # In which order an account's transfers come is not fixed by the flow.
            numbers, totals = self._written(region)
            wanted = Counter(
                (a, n + 1) for a, mine in by_account.items() for n in range(len(mine))
            )
            found[region] = (
                (wanted - numbers).total(),
                (numbers - wanted).total(),
            )
            for account, mine in by_account.items():
                assert totals[account] == list(accumulate(mine))[-1], account
        return found

    def _written(self, region: str) -> tuple[Counter[tuple[str, int]], Counter[str]]:
        numbers, totals = Counter[tuple[str, int]](), Counter[str]()
        for file in (self.root / "out" / region).glob("epoch=*/*.json"):
            for line in file.read_text().splitlines():
                row = json.loads(line)
                numbers[row["target"], row["n"]] += 1
                totals[row["target"]] = max(totals[row["target"]], row["total"])
        return numbers, totals


def main() -> None:
    """Run a region until the process is asked to stop, or to the end of its input."""
    without_sync()  # a killed process loses nothing that the system has
    root, region, engine, pace, began, bound, *limit = sys.argv[1:]
    source = Transfers(float(began), float(pace), int(limit[0]) if limit else None)
    flow_of(source, Path(root) / "out", int(bound)).run(
        f"{root}/store",
        execution=cast("Literal['jobs', 'local']", engine),
        region=region,
        parallelism=1,
        epoch_target="500 ms",
        max_rows_per_epoch=EPOCH_ROWS,
        available_now=bool(limit),
    )


if __name__ == "__main__":
    main()
