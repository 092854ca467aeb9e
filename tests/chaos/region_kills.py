"""Kill one region again and again; the others' epochs go on, and results are exact.

    python -m tests.chaos.region_kills --kills 100 [--engine jobs] [--seed 1]

Each region is a process. One is killed at a random moment, half of the times while it
starts, and begins again at once. Meanwhile the others must decide epochs: told is how
long the longest of them took to come, beside the longest before the first kill. In the
end all that was written is compared with plain Python. Exits 1 if a row is missing or
too many.
"""

from __future__ import annotations

import argparse
import random
import signal
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from tests.chaos.paced_regions import OTHERS, REGIONS, VICTIM, Paced

# After the first epoch of a life.
_MORE_SECONDS = 1.0
_LOOK_SECONDS = 0.05
_CALM_EPOCHS = 20


@dataclass
class Watch:
    """Follows a region's epochs in a thread: how many, and the longest wait for one."""

    paced: Paced
    region: str
    longest: float = 0.0
    first: int = 0
    last: int = 0
    _over: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.first = self.last = self.paced.epoch(self.region)
        self._since = time.monotonic()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def _work(self) -> None:
        while not self._over.wait(_LOOK_SECONDS):
            epoch = self.paced.epoch(self.region)
            if epoch > self.last:
                self.last, now = epoch, time.monotonic()
                self.longest, self._since = max(self.longest, now - self._since), now

    def stop(self) -> str:
        self._over.set()
        self._thread.join()
        longest = max(self.longest, time.monotonic() - self._since)
        return (
            f"{self.region}: {self.last - self.first} epochs,"
            f" the longest wait for one {longest:.2f} s"
        )


def run(paced: Paced, kills: int, chance: random.Random) -> bool:
    """Do all of it; return whether results are exact."""
    since = time.monotonic()
    for region in REGIONS:
        paced.start(region)
    for region in REGIONS:
        paced.wait_for(region, 0)
    start = time.monotonic() - since
    watches = [Watch(paced, region) for region in OTHERS]
    for region in OTHERS:
        paced.wait_for(region, paced.epoch(region) + _CALM_EPOCHS)
    print("before:", "; ".join(watch.stop() for watch in watches), flush=True)

    watches = [Watch(paced, region) for region in OTHERS]
    began, fruitless = time.monotonic(), 0
    for number in range(1, kills + 1):
        before = paced.epoch(VICTIM)
        if chance.random() < 0.5:
            time.sleep(chance.uniform(0, start))  # mostly before it has an epoch
        else:
            paced.wait_for(VICTIM, before + 1)
            time.sleep(chance.uniform(0, _MORE_SECONDS))
        paced.send(VICTIM, signal.SIGKILL)
        paced.children[VICTIM].wait()
        fruitless += paced.epoch(VICTIM) == before
        for region in OTHERS:  # nobody waits for it
            paced.wait_for(region, paced.epoch(region) + 1)
        paced.start(VICTIM)
        if number % 10 == 0 or number == kills:
            epochs = ", ".join(f"{r} {paced.epoch(r)}" for r in REGIONS)
            spent = time.monotonic() - began
            print(f"{number} kills in {spent:.0f} s; epochs: {epochs}", flush=True)
    print("under kills:", "; ".join(watch.stop() for watch in watches), flush=True)
    print(f"{fruitless} lives were killed before they decided an epoch", flush=True)
    paced.wait_for(VICTIM, paced.epoch(VICTIM) + 1)

    count = paced.finish()
    found = paced.differences(count)
    for region, (lost, duplicated) in found.items():
        print(f"{region}: {count} rows compared, lost {lost}, duplicated {duplicated}")
    return not any(sum(each) for each in found.values())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--engine", choices=("local", "jobs"), default="local")
    parser.add_argument("--pace", type=float, default=200, help="transfers a second")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    chosen = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="region-kills-"))
    print(f"{chosen.engine}, seed {chosen.seed}, in {root}", flush=True)
    paced = Paced(root, chosen.engine, chosen.pace)
    try:
        return 0 if run(paced, chosen.kills, random.Random(chosen.seed)) else 1
    finally:
        paced.close()


if __name__ == "__main__":
    sys.exit(main())
