"""What an epoch costs before it does anything: a thousand records through one stage.

    python -m benchmarks.floor [--rows 1000]

The peer is a micro-batch that does the same: ``foreachBatch`` with an exchange and
``mapInArrow``, and a checkpoint. Ours is measured twice: over a backlog, which is read
ahead, and with records that are only just there.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from benchmarks import streaming
from benchmarks.common import Epoch, Window, epochs_of
from benchmarks.contest import contest
from benchmarks.keyed_state import KEY, running

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import pyarrow as pa


def backlog(chosen: argparse.Namespace, window: Window) -> list[Epoch]:
    flow = running(chosen.keys)
    return epochs_of(flow, window, epoch_target=None, max_rows_per_epoch=chosen.rows)


def live(chosen: argparse.Namespace, window: Window) -> list[Epoch]:
    """Let records come as fast as epochs of so many take them."""
    import riverlock as rl

    columns = {"k": KEY.format(n="id", keys=chosen.keys), "amount": "1.0D"}
    pace = chosen.rows * 4
    flow = running(chosen.keys, rl.sources.generator(columns, rows_per_second=pace))
    return epochs_of(flow, window, waits=True)


def micro_batch(chosen: argparse.Namespace, window: Window) -> list[Epoch]:
    def count(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        rows = sum(b.num_rows for b in batches)
        yield pa.RecordBatch.from_pydict({"rows": [rows]})

    def each(frame: Any, number: int) -> None:
        frame.repartition("k").mapInArrow(count, "rows bigint").collect()

    def start(records: Any) -> Any:
        return records.writeStream.foreachBatch(each)

    columns = [f"{KEY.format(n='n', keys=chosen.keys)} as k", "1.0D as amount"]
    return streaming.batches_of(columns, chosen.rows, window, start)


CONTENDERS: dict[str, Callable[[argparse.Namespace, Window], list[Epoch]]] = {
    "riverlock, over a backlog": backlog,
    "riverlock, live": live,
    "Structured Streaming, foreachBatch": micro_batch,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000)
    parser.add_argument("--keys", type=int, default=100_000)
    title = "an epoch of {rows:,} records"
    contest("floor", title, CONTENDERS, parser)


if __name__ == "__main__":
    main()
