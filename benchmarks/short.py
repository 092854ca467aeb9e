"""Five benchmarks, briefly: what ``make bench`` runs.

    python -m benchmarks.short

Each is run with shorter warm-ups, smaller epochs and fewer peers than it has by
default, so that all take about nine minutes on two cores that do nothing else, and
twelve at most: what takes longer is stopped. That is enough to see whether something
has become worse. Figures to be quoted take the defaults, and are better: Spark's
virtual machine has compiled its code by then.
``recovery`` and ``latency`` take minutes each, and are run alone.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from benchmarks.common import RESULTS, save, show

if TYPE_CHECKING:
    from collections.abc import Callable

# What one contender takes: six seconds to start, a warm-up, what is measured; a third
# more, and it is stopped.
OPTIONS = {
    "keyed_state": (
        *("--within", "210", "--rows", "200000"),
        *("--warm-up", "26", "--seconds", "7", "--peers"),
        *("transformWithState", "native aggregate (JVM)", "limit (CPython)"),
    ),
    # Epochs of a second grow to millions of records: that takes a while.
    "declarative": (
        *("--within", "140", "--warm-up", "38", "--seconds", "7", "--peers"),
        "native, batches of 800,000",
    ),
    "floor": ("--within", "140", "--warm-up", "24", "--seconds", "5"),
    "growth": (
        *("keys", "--within", "140"),
        *("--sizes", "10000", "1000000", "--epochs", "24"),
    ),
    "snapshot": ("--within", "90", "--warm-up", "22", "--seconds", "7"),
}


class Target(NamedTuple):
    """What a figure should be, and where it is in the results."""

    benchmark: str
    what: str
    wanted: float
    is_most: bool
    found: Callable[[Any], float]

    def row(self) -> list[str]:
        path = RESULTS / f"{self.benchmark}.json"
        bound = "at most" if self.is_most else "at least"
        wanted = f"{bound} {self.wanted:g}"
        try:
            found = self.found(json.loads(path.read_text()))
        except (KeyError, ValueError, FileNotFoundError):
            return [self.what, "not measured", wanted, "no"]
        is_reached = found <= self.wanted if self.is_most else found >= self.wanted
        return [self.what, f"{found:.2f}", wanted, "yes" if is_reached else "no"]


def _ratio(peer: str) -> Callable[[Any], float]:
    return lambda result: float(result["ratios"][peer])


def _of_the_peer(result: Any) -> float:
    mine = dict(result["seconds"])
    peer = mine.pop("Structured Streaming, foreachBatch")
    return float(max(mine.values()) / peer)


TARGETS = (
    Target(
        *("keyed_state", "a Process against transformWithState", 60, False),
        _ratio("transformWithState"),
    ),
    Target(
        *("keyed_state", "against Spark's native aggregate", 2, False),
        _ratio("native aggregate (JVM)"),
    ),
    Target(
        *("keyed_state", "against a bare loop in CPython", 0.35, False),
        _ratio("limit (CPython)"),
    ),
    Target(
        *("declarative", "agg against Spark's native aggregate", 6, False),
        _ratio("native, batches of 800,000"),
    ),
    Target(
        *("floor", "an epoch, in micro-batches of Structured Streaming", 0.8, True),
        _of_the_peer,
    ),
    Target(
        *("growth_keys", "an epoch over 100 times the keys", 1.5, True),
        lambda result: float(result["ratio"]),
    ),
    Target(
        *("snapshot", "with change files against without", 0.85, False),
        _ratio("without"),
    ),
)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--peers",
        choices=("all", "none"),
        default="all",
        help="beside ours; without them, ratios are not measured",
    )
    has_peers = parser.parse_args().peers == "all"
    began = time.monotonic()
    most = sum(int(o[o.index("--within") + 1]) for o in OPTIONS.values())
    print(f"about nine minutes, at most {most / 60:.0f}\n", flush=True)
    for target in TARGETS:  # what is not measured now is not shown
        (RESULTS / f"{target.benchmark}.json").unlink(missing_ok=True)
    for name, options in OPTIONS.items():
        start = time.monotonic()
        command = [sys.executable, "-m", f"benchmarks.{name}", *options]
        if not has_peers:
            command += ["--peers", "none"]  # the last one counts
        subprocess.run(command, check=False)
        print(f"{name}: {time.monotonic() - start:.0f} s\n", flush=True)
    rows = [target.row() for target in TARGETS]
    show("ratios and their targets", ["", "found", "target", "reached"], rows)
    save("short", rows)
    print(f"{(time.monotonic() - began) / 60:.1f} minutes")


if __name__ == "__main__":
    main()
