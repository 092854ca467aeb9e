"""Counts per key and window of event time, against Structured Streaming's.

    python -m benchmarks.windows [--keys 100000] [--rows 400000] [--panes 60]

A record has a random key and happens a fixed time after the one before, so that a
window ends every few epochs. ``sliding`` is the same with windows that overlap: of so
many panes each, a pane as long as the tumbling window.
"""

from __future__ import annotations

import argparse
from functools import partial
from typing import TYPE_CHECKING, Any

from benchmarks import streaming
from benchmarks.common import Epoch, Window, epochs_of
from benchmarks.contest import contest
from benchmarks.keyed_state import KEY

if TYPE_CHECKING:
    from collections.abc import Callable

# Event time: a million records a minute, which is also the length of a pane.
AT = "timestamp_micros(1767225600000000 + {n} * 60)"
PANE, DELAY = "60 seconds", "10 seconds"


def riverlock(kind: str, chosen: argparse.Namespace, window: Window) -> list[Epoch]:
    import riverlock as rl

    columns = {"k": KEY.format(n="id", keys=chosen.keys), "at": AT.format(n="id")}
    flow = rl.Flow("bench")
    stream = flow.read(rl.sources.generator(columns, rows=10**12), uid="in")
    keyed = stream.event_time("at", delay=DELAY).key_by("k")
    size = f"{60 * chosen.panes} seconds"
    windows = rl.tumbling(PANE) if kind == "tumbling" else rl.sliding(size, PANE)
    counts = keyed.window(windows).count(uid="counts")
    counts.write(rl.sinks.for_each_epoch(nothing), uid="out")
    return epochs_of(flow, window, epoch_target=None, max_rows_per_epoch=chosen.rows)


def nothing(frame: Any, epoch: int) -> None:
    """Take the rows as every sink does, and leave it at that."""


def structured(kind: str, chosen: argparse.Namespace, window: Window) -> list[Epoch]:
    from pyspark.sql import functions as F

    columns = [
        f"{KEY.format(n='n', keys=chosen.keys)} as k",
        f"{AT.format(n='n')} as at",
    ]
    size = PANE if kind == "tumbling" else f"{60 * chosen.panes} seconds"

    def start(records: Any) -> Any:
        late = records.withWatermark("at", DELAY)
        counts = late.groupBy("k", F.window("at", size, PANE)).count()
        return streaming.to_nowhere(counts, mode="append")

    return streaming.batches_of(columns, chosen.rows, window, start)


CONTENDERS: dict[str, Callable[[argparse.Namespace, Window], list[Epoch]]] = {
    "riverlock, tumbling": partial(riverlock, "tumbling"),
    "Structured Streaming, tumbling": partial(structured, "tumbling"),
    "riverlock, sliding": partial(riverlock, "sliding"),
    "Structured Streaming, sliding": partial(structured, "sliding"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--rows", type=int, default=400_000, help="records per epoch")
    parser.add_argument("--panes", type=int, default=60)
    title = "count by key and window, {keys:,} keys, {panes} panes"
    contest("windows", title, CONTENDERS, parser)


if __name__ == "__main__":
    main()
