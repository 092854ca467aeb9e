"""What naming and forking a snapshot cost beside an epoch and a copy.

    python -m benchmarks.verbs [--keys 10000000]

Names are given to a flow that runs, whose epochs are as short as they can be. Forks and
copies are those of a store with so many keys, made durable both.
"""

from __future__ import annotations

import argparse
import tempfile
import threading
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import riverlock as rl
from benchmarks.common import median, save, show
from benchmarks.keyed_state import running
from benchmarks.lookup import make

if TYPE_CHECKING:
    from collections.abc import Callable

WARM_UP, NAMES, TIMES = 30, 50, 5


def seconds_of(act: Callable[[], Any]) -> float:
    began = time.perf_counter()
    act()
    return time.perf_counter() - began


def naming(rows: int) -> tuple[float, float]:
    """Return the seconds of an epoch and of a savepoint of the flow that runs."""
    epochs: list[float] = []
    committed = threading.Event()
    last = time.perf_counter()

    def see(status: Any) -> None:
        nonlocal last
        now = time.perf_counter()
        epochs.append(now - last)
        last = now
        committed.set()

    names: list[float] = []
    with tempfile.TemporaryDirectory() as store:
        handle = running(100_000).start(
            store, on_status=see, epoch_target=None, max_rows_per_epoch=rows
        )
        while len(names) < NAMES:
            committed.wait()
            committed.clear()
            if len(epochs) > WARM_UP:
                name = f"n{len(names)}"
                names.append(seconds_of(partial(handle.savepoint, name)))
        handle.stop()
    return median(epochs[WARM_UP:]), median(names)


def forking(keys: int, note: int) -> tuple[int, float, float]:
    """Return the bytes of a store, the seconds of a fork, and those of a copy."""
    with tempfile.TemporaryDirectory() as root:
        store = Path(root) / "store"
        catalog = make(store, keys, 2, note=note)
        state = catalog.manifest(3).operators["op"]

        def forked(number: int, *, copy: bool) -> float:
            new = f"{root}/{'copy' if copy else 'fork'}-{number}"
            return seconds_of(lambda: rl.stores.fork(f"{store}@3", new, copy=copy))

        forks = [forked(n, copy=False) for n in range(TIMES)]
        copies = [forked(n, copy=True) for n in range(TIMES)]
    return sum(f.bytes for f in state.files), median(forks), median(copies)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--keys", type=int, default=10_000_000)
    parser.add_argument("--rows", type=int, default=1_000, help="of an epoch")
    chosen = parser.parse_args()
    rows, found = [], {}
    for note in (0, 100):
        size, fork, copy = forking(chosen.keys, note)
        what = f"fork of {chosen.keys:,} keys, {size / 1e6:,.0f} MB"
        rows.append((what, fork, "its copy", copy))
        found[f"fork, {note} more bytes per key"] = [fork, copy]
    epoch, name = naming(chosen.rows)
    rows.append(("savepoint", name, f"an epoch of {chosen.rows:,} records", epoch))
    found["savepoint"] = [name, epoch]
    show(
        "what a verb costs",
        ["", "ms", "of", "ms", "share"],
        [
            [what, f"{mine * 1e3:.1f}", other, f"{its * 1e3:,.0f}", f"{mine / its:.2%}"]
            for what, mine, other, its in rows
        ],
    )
    save("verbs", {"seconds": found, **vars(chosen)})


if __name__ == "__main__":
    main()
