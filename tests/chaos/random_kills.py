"""Kill a flow at random moments, many times; then compare with what is right.

    python -m tests.chaos.random_kills --flow fraud --kills 300 --seed 1

Flows: ``worker`` (compaction and retention run all the while, with hardly any grace),
``fraud`` (the example), ``windows`` (windows, sessions and joins into SQLite; with
``--postgres`` into a server of the tests). What sinks and state hold at the end must be
what a run without a single crash would have left: exits 1 if not.

Most of a life is the start of a virtual machine: set ``SPARK_SUBMIT_OPTS`` to what
``tools/java_archive.py`` prints, as ``make test`` does.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.chaos.killing import Killer, Summary, Victim
from tests.chaos.victims import FraudVictim, WindowsVictim, WorkerVictim

VICTIMS: dict[str, Callable[[Path, int], Victim]] = {
    "worker": WorkerVictim,
    "fraud": FraudVictim,
    "windows": WindowsVictim,
}


def run(
    victim: Victim, kills: int, seed: int, tell: Callable[[str], None] = lambda _: None
) -> Summary:
    """Kill, restart, and so on; then let it come to its end, and compare."""
    return Killer(victim, random.Random(seed), tell).run(kills)


@contextlib.contextmanager
def _postgres() -> Iterator[str]:
    """Run a server for a while; gives its address."""
    from tests.servers.postgres import Postgres

    server = Postgres()
    try:
        server.start()
        yield server.url()
    finally:
        server.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--flow", choices=VICTIMS, default="worker")
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--root", type=Path, default=None)
    parser.add_argument("--postgres", action="store_true")
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    root = chosen.root or Path(tempfile.mkdtemp(prefix="random-kills-"))

    def tell(line: str) -> None:
        print(line, file=sys.stderr if chosen.json else sys.stdout, flush=True)

    tell(f"{chosen.flow}, seed {chosen.seed}, in {root}")
    with contextlib.ExitStack() as stack:
        if chosen.postgres:
            url = stack.enter_context(_postgres())
            victim: Victim = WindowsVictim(root, chosen.kills, url)
        else:
            victim = VICTIMS[chosen.flow](root, chosen.kills)
        summary = run(victim, chosen.kills, chosen.seed, tell)
    for line in summary.verdict.details:
        tell(line)
    print(json.dumps(summary.to_json()) if chosen.json else summary, flush=True)
    return 0 if summary.is_exact else 1


if __name__ == "__main__":
    sys.exit(main())
