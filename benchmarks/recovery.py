"""From ``kill -9`` to the first new epoch: state that is warm, cold, or moved.

    python -m benchmarks.recovery [--keys 100000 10000000] [--rows 200000]

A flow is killed in the middle of an epoch, with its virtual machine and workers, and
another process takes over: with the working copies as they were (``warm``), without
them (``cold``), and with one task more (``moved``). That process was started before,
and has run the same flow over a store of its own: what is measured is recovery, from
the signal to the commit of the first new epoch, and not how long Python and Spark's
virtual machine take to start and to compile their code. With that, and warm copies, it
is shown too: from the start of a process.

Beside it: a steady epoch, and how long pandas takes to read the same state from its
Parquet files, nothing more.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from benchmarks import harness
from benchmarks.common import median, save, show
from benchmarks.keyed_state import filling
from benchmarks.processes import kill_with_descendants

if TYPE_CHECKING:
    from collections.abc import Callable

FILLED_PER_EPOCH = 1_000_000
# Epochs that are looked at to tell how long one takes.
STEADY = 8
SCRATCH_KEYS = 100_000
READY = "ready"
PEER = "pandas"
COLD = "cold, in readings by pandas"
COLUMNS = {
    "epoch": "an epoch",
    "warm": "warm",
    "moved": "moved",
    "cold": "cold",
    PEER: "pandas reads",
    "process": "with start of the process",
}
# What a number of keys may take at most: seven starts, and to fill the store.
STARTS_SECONDS, KEPT_PER_SECOND = 420.0, 20_000


class Commit(NamedTuple):
    """An epoch that was committed, and when; the clock is the machine's."""

    epoch: int
    at: float


class Driver:
    """A process that runs the flow over the store, at once or when it is told."""

    def __init__(self, store: str, chosen: list[str], *, waits: bool) -> None:
        command = [sys.executable, "-m", "benchmarks.recovery", "--drive", store]
        self.started = time.monotonic()
        self._process = subprocess.Popen(
            [*command, *chosen, *(["--waits"] if waits else [])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def wait_until_ready(self) -> None:
        line = self._line()
        assert line == READY, line

    def go(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def commit(self) -> Commit:
        return Commit(*json.loads(self._line()))

    def first(self, is_it: Callable[[Commit], bool]) -> Commit:
        """Return the first commit of a kind; those before it are passed over."""
        while not is_it(found := self.commit()):
            pass
        return found

    def kill(self) -> None:
        kill_with_descendants(self._process.pid)
        with self._process:
            pass

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline().strip()
        assert line, "the process has ended"
        return line


def drive(chosen: argparse.Namespace) -> None:
    """Fill the store if it is new, then go on; tells of each commit."""
    from riverlock.spark.session import local_session

    local_session().range(1).collect()
    store, (keys,) = chosen.drive, chosen.keys
    options: dict[str, Any] = {"epoch_target": None, "parallelism": chosen.parallelism}
    if not Path(store, "flow.json").exists():
        filling(keys, keys).run(
            store, available_now=True, max_rows_per_epoch=FILLED_PER_EPOCH, **options
        )
    options["max_rows_per_epoch"] = chosen.rows
    if chosen.waits:
        with tempfile.TemporaryDirectory() as scratch:
            flow = filling(SCRATCH_KEYS, 10**12)
            flow.run(scratch, max_epochs=chosen.warm_up, **options)
        print(READY, flush=True)
        if not sys.stdin.readline():
            return  # nobody is there any more

    def tell(status: Any) -> None:
        if status.state == "running":
            print(json.dumps([status.epoch, time.monotonic()]), flush=True)

    filling(keys, 10**12).run(store, on_status=tell, **options)


def newest_of(store: str) -> Any:
    """Return the newest manifest; None if there is none."""
    from riverlock.snapshot.catalog import Catalog
    from riverlock.storage.open import open_storage

    return Catalog(open_storage(store)).newest()


def read_with_pandas(store: str) -> float:
    """Return how long pandas reads the files of the newest snapshot."""
    import pandas as pd

    files = newest_of(store).operators["running"].files
    began = time.monotonic()
    for file in files:
        pd.read_parquet(Path(store, file.path))
    return time.monotonic() - began


def pandas_seconds(store: str) -> float:
    """Return how long a new process takes, in which nothing is cached."""
    command = [sys.executable, "-m", "benchmarks.recovery", "--pandas", store]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    return float(done.stdout)


class Relay:
    """Drivers of one store, of which each takes over from the one before."""

    def __init__(self, store: str, keys: int, chosen: argparse.Namespace) -> None:
        self._store = store
        self._options = ["--keys", str(keys), "--rows", str(chosen.rows)]
        self._options += ["--warm-up", str(chosen.warm_up)]
        # The last one drives, or will as soon as it is ready.
        self._drivers: list[Driver] = []

    def _start(self, parallelism: int, *, waits: bool) -> Driver:
        options = [*self._options, "--parallelism", str(parallelism)]
        self._drivers.append(Driver(self._store, options, waits=waits))
        return self._drivers[-1]

    def begin(self, parallelism: int) -> float:
        """Start a driver; returns seconds until its first new commit."""
        before = self._newest()
        driver = self._start(parallelism, waits=False)
        return driver.first(lambda c: c.epoch > before).at - driver.started

    def restart(self, parallelism: int) -> float:
        """Kill the driver and start another; returns seconds until its first commit."""
        self.end()
        return self.begin(parallelism)

    def hand_over(
        self, parallelism: int, between: Callable[[], None] | None = None
    ) -> float:
        """Kill the driver within an epoch; returns seconds until the next one's commit.

        Args:
            parallelism: Of the next driver.
            between: What to do before it is told to go, outside the measured time.
        """
        (driver,) = self._drivers
        successor = self._start(parallelism, waits=True)
        successor.wait_until_ready()
        ready = time.monotonic()
        # From here on nothing disturbs the epochs that are killed.
        last = driver.first(lambda c: c.at > ready).at
        time.sleep((driver.commit().at - last) / 2)
        began = time.monotonic()
        driver.kill()
        self._drivers.remove(driver)
        if between is not None:
            between()
            began = time.monotonic()
        before = self._newest()
        successor.go()
        return successor.first(lambda c: c.epoch > before).at - began

    def steady(self) -> float:
        """Return what an epoch of the driver usually takes."""
        (driver,) = self._drivers
        times = [driver.commit().at for _ in range(STEADY + 1)]
        return median([b - a for a, b in pairwise(times)])

    def end(self) -> None:
        """Kill whoever runs."""
        while self._drivers:
            self._drivers.pop().kill()

    def _newest(self) -> int:
        newest = newest_of(self._store)
        return -1 if newest is None else int(newest.epoch)


class Seconds(dict[str, float]):
    """What was measured; tells of each at once, beside the result."""

    def __setitem__(self, name: str, seconds: float) -> None:
        super().__setitem__(name, seconds)
        print(f"  {COLUMNS[name]}: {seconds:.2f} s", file=sys.stderr, flush=True)


def measure(keys: int, chosen: argparse.Namespace) -> dict[str, float]:
    """Return seconds of every kind of recovery."""
    found = Seconds()
    cores = chosen.parallelism
    with tempfile.TemporaryDirectory() as folder:
        store = str(Path(folder, "store"))

        def lose_copies() -> None:
            if harness.is_wanted(chosen, PEER):
                found[PEER] = pandas_seconds(store)
            shutil.rmtree(Path(store, ".working"))

        relay = Relay(store, keys, chosen)
        try:
            relay.begin(cores)
            relay.steady()
            found["warm"] = relay.hand_over(cores)
            found["epoch"] = relay.steady()
            found["cold"] = relay.hand_over(cores, lose_copies)
            relay.steady()
            found["process"] = relay.restart(cores)
            found["moved"] = relay.hand_over(cores + 1)
        finally:
            relay.end()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--keys", type=int, nargs="+", default=[100_000, 10_000_000])
    parser.add_argument("--rows", type=int, default=200_000, help="records per epoch")
    parser.add_argument(
        "--warm-up", type=int, default=15, help="epochs of whoever is to take over"
    )
    parser.add_argument("--parallelism", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--drive", help=argparse.SUPPRESS)
    parser.add_argument("--waits", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--pandas", help=argparse.SUPPRESS)
    parser.add_argument("--only", type=int, help=argparse.SUPPRESS)
    harness.add_options(parser, [PEER])
    chosen = parser.parse_args()
    if chosen.drive:
        drive(chosen)
        return
    if chosen.pandas:
        print(json.dumps(read_with_pandas(chosen.pandas)), flush=True)
        return
    if chosen.only:
        print(json.dumps(measure(chosen.only, chosen)))
        return
    contenders = [
        harness.Contender(
            f"{keys:,} keys",
            [*sys.argv[1:], "--only", str(keys)],
            STARTS_SECONDS + keys / KEPT_PER_SECOND,
        )
        for keys in chosen.keys
    ]
    measured = harness.measure("benchmarks.recovery", contenders, _line, chosen)
    names = {f"{keys:,} keys": keys for keys in chosen.keys}
    compare({names[name]: found for name, (found,) in measured.items()}, chosen)


def _line(seconds: dict[str, float]) -> str:
    return f"warm {seconds['warm']:.2f} s, cold {seconds['cold']:.2f} s"


def compare(found: dict[int, dict[str, float]], chosen: argparse.Namespace) -> None:
    """Show and keep what was measured."""
    has_peer = harness.is_wanted(chosen, PEER)
    columns = {n: text for n, text in COLUMNS.items() if n != PEER or has_peer}
    show(
        f"seconds until the first new epoch, of {chosen.rows:,} records",
        ["keys", *columns.values()],
        [
            [f"{keys:,}", *(f"{seconds[name]:.2f}" for name in columns)]
            for keys, seconds in found.items()
        ],
    )
    ratios = {
        keys: {
            "warm, in epochs": seconds["warm"] / seconds["epoch"],
            **({COLD: seconds["cold"] / seconds[PEER]} if has_peer else {}),
        }
        for keys, seconds in found.items()
    }
    show(
        "ratios",
        ["keys", "warm, in epochs", *([COLD] if has_peer else [])],
        [
            [f"{keys:,}", *(f"{ratio:.2f}" for ratio in each.values())]
            for keys, each in ratios.items()
        ],
    )
    save("recovery", {"seconds": found, "ratios": ratios, **vars(chosen)})


if __name__ == "__main__":
    main()
