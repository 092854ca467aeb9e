"""From ``kill -9`` to the first new epoch: state that is warm, cold, or moved.

    python -m benchmarks.recovery [--keys 100000 10000000]

A flow is killed in the middle of an epoch and started again: with its working copies
as they were (warm), without them (cold), and with another parallelism. Starting Python
and Spark's virtual machine takes the same for all, and is not counted. Beside it: how
long pandas takes to read the same state from its Parquet files, nothing more.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.common import in_child, median, save, show
from benchmarks.keyed_state import filling

TOUCHED = 20_000


def drive(store: str, keys: int, parallelism: int, epochs: int | None) -> None:
    """Fill the store if it is new, then go on; prints a line per epoch."""
    from riverlock.spark.session import local_session

    spark = local_session()
    spark.range(1).collect()
    options: dict[str, Any] = {"epoch_target": None, "parallelism": parallelism}
    if not Path(store, "flow.json").exists():
        filling(keys, keys).run(
            store, available_now=True, max_rows_per_epoch=500_000, **options
        )
    began = time.monotonic()

    def tell(status: Any) -> None:
        nonlocal began
        if status.state == "running":
            now = time.monotonic()
            print(json.dumps(now - began), flush=True)
            began = now

    options |= {"max_rows_per_epoch": TOUCHED, "max_epochs": epochs, "on_status": tell}
    filling(keys, 10**12).run(store, **options)


def killed(store: str, keys: int, parallelism: int) -> list[float]:
    """Run until 12 epochs are through, then kill in the next one; returns seconds."""
    command = _command("--drive", store, keys, parallelism)
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as child:
        assert child.stdout is not None
        seconds = [float(next(child.stdout)) for _ in range(12)]
        time.sleep(seconds[-1] / 2)
        os.killpg(child.pid, signal.SIGKILL)
    # Workers have a group of their own, and end when they notice.
    time.sleep(10)
    return seconds


def _command(what: str, store: str, keys: int, parallelism: int) -> list[str]:
    options = [what, store, "--keys", str(keys), "--parallelism", str(parallelism)]
    return [sys.executable, "-m", "benchmarks.recovery", *options]


def read_with_pandas(store: str) -> float:
    """Return how long pandas reads the files of the newest snapshot."""
    import pandas as pd

    from riverlock.snapshot.catalog import Catalog
    from riverlock.storage.open import open_storage

    newest = Catalog(open_storage(store)).newest()
    assert newest is not None
    began = time.monotonic()
    for file in newest.operators["running"].files:
        pd.read_parquet(Path(store, file.path))
    return time.monotonic() - began


def recover(store: str, keys: int, parallelism: int) -> float:
    """Start again; returns the seconds until the first new epoch."""
    done = subprocess.run(
        [*_command("--drive", store, keys, parallelism), "--epochs", "1"],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    # The first line is of the epoch that was there, as soon as it is found complete.
    return sum(map(float, done.stdout.split()))


def measure(keys: int, cores: int) -> dict[str, Any]:
    """Return seconds of every kind of recovery."""
    with tempfile.TemporaryDirectory() as folder:
        store = str(Path(folder, "store"))
        epoch = median(killed(store, keys, cores)[4:])
        found = {"epoch": epoch, "warm": recover(store, keys, cores)}
        killed(store, keys, cores)
        shutil.rmtree(Path(store, ".working"))
        found["cold"] = recover(store, keys, cores)
        killed(store, keys, cores)
        found["moved"] = recover(store, keys, cores + 1)
        pandas = in_child("benchmarks.recovery", "--pandas", store)
        return {**found, "pandas": pandas}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--keys", type=int, nargs="+", default=[100_000, 10_000_000])
    parser.add_argument("--parallelism", type=int, default=2)
    parser.add_argument("--drive", help=argparse.SUPPRESS)
    parser.add_argument("--pandas", help=argparse.SUPPRESS)
    parser.add_argument("--epochs", type=int, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.drive:
        drive(chosen.drive, chosen.keys[0], chosen.parallelism, chosen.epochs)
        return
    if chosen.pandas:
        print(json.dumps(read_with_pandas(chosen.pandas)))
        return
    found = {keys: measure(keys, chosen.parallelism) for keys in chosen.keys}
    show(
        "seconds from the start of the run to its first new epoch",
        ["keys", "an epoch", "warm", "cold", "other parallelism", "pandas reads"],
        [
            [f"{keys:,}", *(f"{s:.2f}" for s in seconds.values())]
            for keys, seconds in found.items()
        ],
    )
    save("recovery", found)


if __name__ == "__main__":
    main()
