"""``key_by().agg(count, sum)`` against Spark's own streaming aggregate.

    python -m benchmarks.declarative [--keys 100000]

Both get as many records per epoch as they do in about a second: what Spark's state
store costs per key is the same for few and for many records, and so is ours. So the
peer is run with several sizes, and the one whose batches come closest to a second
counts.
"""

from __future__ import annotations

import argparse
from functools import partial
from typing import TYPE_CHECKING

from benchmarks import streaming
from benchmarks.common import Epoch, Window, epochs_of
from benchmarks.contest import contest
from benchmarks.keyed_state import numbers, structured

if TYPE_CHECKING:
    from collections.abc import Callable


def riverlock(chosen: argparse.Namespace, window: Window) -> list[Epoch]:
    import riverlock as rl

    flow = rl.Flow("bench")
    stream = flow.read(numbers(chosen.keys), uid="in")
    stream.key_by("k").agg(n="count(*)", total="sum(amount)", uid="totals")
    return epochs_of(flow, window, epoch_target="1 second")


def native(rows: int, chosen: argparse.Namespace, window: Window) -> list[Epoch]:
    sized = argparse.Namespace(keys=chosen.keys, rows=rows)
    return structured(streaming.native, sized, window)


SIZES = (200_000, 400_000, 800_000, 1_600_000)
CONTENDERS: dict[str, Callable[[argparse.Namespace, Window], list[Epoch]]] = {
    "riverlock, epochs of 1 s": riverlock,
    **{f"native, batches of {rows:,}": partial(native, rows) for rows in SIZES},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--keys", type=int, default=100_000)
    contest("declarative", "agg(count, sum), {keys:,} keys", CONTENDERS, parser)


if __name__ == "__main__":
    main()
