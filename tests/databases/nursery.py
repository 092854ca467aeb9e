"""Starts the flow of numbers again and again, and kills it.

A process of its own, so that it can fork without threads: a child costs no start of
Python. Each child is killed by SIGKILL a moment after a step drawn by lot; the last
one runs to the end. Run as ``python -m tests.databases.nursery STORE URL SCHEMA KILLS
SEED``; prints what became of the children.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import threading
from pathlib import Path

from tests.databases import numbers

from riverlock.core import faults
from riverlock.snapshot.catalog import Catalog
from riverlock.storage import LocalStorage

_MOST_STEPS = 40
_FAR = 1_000_000


def _arm(chance: random.Random) -> None:
    """Let this process die after some steps, and up to 20 ms more."""
    left = chance.randrange(1, _MOST_STEPS)
    delay = chance.choice((0.0, chance.uniform(0, 0.02)))

    def die() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def hit(point: str) -> None:
        nonlocal left
        left -= 1
        if left == 0 and delay:
            threading.Timer(delay, die).start()
        elif left == 0:
            die()

    setattr(faults, "hit", hit)  # noqa: B010 - mypy knows it is a function


def _child(store: Path, url: str, schema: str, limit: int) -> None:
    sinks = numbers.sinks_of(url, None if schema == "-" else schema)
    numbers.run(store, sinks, limit=limit)


def _run_child(store: Path, url: str, schema: str, limit: int, seed: int | None) -> int:
    child = os.fork()
    if child == 0:
        status = 1
        try:
            if seed is not None:
                _arm(random.Random(seed))
            _child(store, url, schema, limit)
            status = 0
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _end_of(store: Path) -> int:
    newest = Catalog(LocalStorage(store)).newest()
    return 0 if newest is None else int(newest.inputs["in"].end)


def main() -> None:
    place, url, schema, kills, seed = sys.argv[1:]
    store = Path(place)
    codes = [
        _run_child(store, url, schema, _FAR, int(seed) * 1000 + n)
        for n in range(int(kills))
    ]
    limit = _end_of(store) + 3 * numbers.EPOCH_ROWS
    last = _run_child(store, url, schema, limit, None)
    print(json.dumps({"codes": codes, "last": last, "limit": limit}))


if __name__ == "__main__":
    main()
