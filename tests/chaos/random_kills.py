"""Kill the driver of a running flow at random moments, many times; then compare.

    python -m tests.chaos.random_kills --kills 200 --seed 1

Compaction and retention run all the while, with hardly any grace. What the sinks and
the state hold at the end must be what a run without a single crash would have left.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path

from tests.chaos import oracle
from tests.chaos.children import Child, child
from tests.chaos.processes import wait_until
from tests.chaos.worker_flow import Options

# More than any run will read.
_ENDLESS = 10**9


@dataclass(frozen=True, kw_only=True)
class Summary:
    """What happened."""

    kills: int
    verdict: oracle.Verdict
    seconds: float
    slowest_orphan: float

    def __str__(self) -> str:
        found = self.verdict
        return (
            f"{self.kills} kills, {found.epochs} epochs, {found.rows} output rows,"
            f" lost {found.lost}, duplicated {found.duplicated}"
            f" ({self.seconds:.0f} s; the last process of a killed driver was gone"
            f" after {self.slowest_orphan:.1f} s)"
        )


def run(kills: int, seed: int, root: Path) -> Summary:
    """Kill, restart, and so on; then let it go on, stop it, and compare."""
    chance = random.Random(seed)
    options = Options(
        store=str(root / "store"),
        out=str(root / "out"),
        rows=_ENDLESS,
        epoch_rows=150,
        available_now=0,
        join=1,
        retain=5,
        grace="2 seconds",
    )
    began, slowest = time.monotonic(), 0.0
    for number in range(1, kills + 1):
        chosen = replace(options, parallelism=chance.choice((1, 2, 2, 3)))
        with child(chosen) as driver:
            what = _live_a_little(driver, chance)
            driver.kill()
            killed = time.monotonic()
            driver.wait_for_orphans()
            slowest = max(slowest, time.monotonic() - killed)
            print(
                f"kill {number}/{kills} {what}, {len(driver.epochs)} epochs", flush=True
            )
    with child(options) as driver:
        driver.wait_for_epochs(3)
        driver.process.terminate()
        assert driver.end() == 0, driver.tail()
    return Summary(
        kills=kills,
        verdict=oracle.check(options, complete=False, keep=5),
        seconds=time.monotonic() - began,
        slowest_orphan=slowest,
    )


def _live_a_little(driver: Child, chance: random.Random) -> str:
    """Wait for a random moment; at times before anything has begun."""
    if chance.random() < 0.2:
        delay = chance.uniform(0.5, 8)
        what = f"{delay:.2f} s after its start"
    else:
        epochs = chance.randint(0, 3)
        if epochs:
            driver.wait_for_epochs(epochs)
        else:
            driver.wait_for(lambda: "session" in driver.lines, "its session")
        delay = chance.uniform(0, 2.0)
        what = f"{delay:.2f} s after epoch {epochs}"
    moment = time.monotonic() + delay
    wait_until(lambda: time.monotonic() >= moment, "the moment", delay + 10)
    assert driver.process.poll() is None, driver.tail()
    return what


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--root", type=Path, default=None)
    chosen = parser.parse_args()
    print(f"seed {chosen.seed}", flush=True)
    root = chosen.root or Path(tempfile.mkdtemp(prefix="random-kills-"))
    print(run(chosen.kills, chosen.seed, root))
    return 0


if __name__ == "__main__":
    sys.exit(main())
