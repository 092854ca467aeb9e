"""What naming and forking a snapshot cost beside an epoch and a copy.

    python -m benchmarks.verbs [--keys 10000000]

Names are given to a flow that runs, whose epochs are as short as they can be. Forks and
copies are those of a store with so many keys, made durable both.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import threading
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import riverlock as rl
from benchmarks import harness
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


def forking(keys: int, note: int, *, copies: bool) -> dict[str, float]:
    """Return the bytes of a store, the seconds of a fork, and those of a copy."""
    with tempfile.TemporaryDirectory() as root:
        store = Path(root) / "store"
        catalog = make(store, keys, 2, note=note)
        state = catalog.manifest(3).operators["op"]

        def forked(number: int, *, copy: bool) -> float:
            new = f"{root}/{'copy' if copy else 'fork'}-{number}"
            return seconds_of(lambda: rl.stores.fork(f"{store}@3", new, copy=copy))

        found = {"MB": sum(f.bytes for f in state.files) / 1e6}
        found["mine"] = median([forked(n, copy=False) for n in range(TIMES)])
        if copies:
            found["its"] = median([forked(n, copy=True) for n in range(TIMES)])
    return found


NOTES = {"fork": 0, "fork, 100 more bytes per key": 100}
SAVEPOINT, PEER = "savepoint", "copy"
# What one verb may take at most, on a slow machine.
BESIDE_SECONDS, MADE_PER_SECOND = 120.0, 20_000


def measured(chosen: argparse.Namespace) -> dict[str, float]:
    """Measure one verb."""
    if chosen.only == SAVEPOINT:
        epoch, name = naming(chosen.rows)
        return {"mine": name, "its": epoch}
    copies = harness.is_wanted(chosen, PEER)
    return forking(chosen.keys, NOTES[chosen.only], copies=copies)


def _line(found: dict[str, float]) -> str:
    its = f", beside {found['its'] * 1e3:,.0f} ms" if "its" in found else ""
    return f"{found['mine'] * 1e3:.1f} ms{its}"


def _row(name: str, found: dict[str, float], chosen: argparse.Namespace) -> list[str]:
    what, other = name, f"an epoch of {chosen.rows:,} records"
    if name != SAVEPOINT:
        what, other = f"{name}: {chosen.keys:,} keys, {found['MB']:,.0f} MB", "its copy"
    if "its" not in found:
        return [what, f"{found['mine'] * 1e3:.1f}", "", "", ""]
    mine, its = found["mine"], found["its"]
    return [what, f"{mine * 1e3:.1f}", other, f"{its * 1e3:,.0f}", f"{mine / its:.2%}"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--keys", type=int, default=10_000_000)
    parser.add_argument("--rows", type=int, default=1_000, help="of an epoch")
    parser.add_argument("--only", help=argparse.SUPPRESS)
    harness.add_options(parser, [PEER])
    chosen = parser.parse_args()
    if chosen.only:
        print(json.dumps(measured(chosen)))
        return
    most = BESIDE_SECONDS + chosen.keys / MADE_PER_SECOND
    contenders = [
        harness.Contender(name, [*sys.argv[1:], "--only", name], most)
        for name in (*NOTES, SAVEPOINT)
    ]
    results = harness.measure("benchmarks.verbs", contenders, _line, chosen)
    found = {name: result for name, (result,) in results.items()}
    show(
        "what a verb costs",
        ["", "ms", "of", "ms", "share"],
        [_row(name, each, chosen) for name, each in found.items()],
    )
    save("verbs", {"seconds": found, **vars(chosen)})


if __name__ == "__main__":
    main()
