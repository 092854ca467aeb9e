"""What snapshots cost: the same job with and without its change files.

    python -m benchmarks.snapshot [--keys 100000] [--rows 400000]

Without them nothing could be recovered, so that this is no option of Riverlock: the
workers of this benchmark are made not to write (``benchmarks.unwritten``).
"""

from __future__ import annotations

import argparse
import tempfile
from typing import TYPE_CHECKING

from benchmarks.common import Epoch, Window, contest, epochs_of, show
from benchmarks.keyed_state import running

if TYPE_CHECKING:
    from collections.abc import Callable


def written(chosen: argparse.Namespace, window: Window) -> list[Epoch]:
    flow = running(chosen.keys)
    return epochs_of(flow, window, epoch_target=None, max_rows_per_epoch=chosen.rows)


def unwritten(chosen: argparse.Namespace, window: Window) -> list[Epoch]:
    from riverlock.spark.session import local_session

    local_session(conf={"spark.python.daemon.module": "benchmarks.unwritten"})
    return written(chosen, window)


def bytes_per_key(keys: int, rows: int) -> float:
    """Return how much an epoch writes for a key that it changed."""
    from riverlock.snapshot.catalog import Catalog
    from riverlock.storage.open import open_storage

    with tempfile.TemporaryDirectory() as store:
        running(keys).run(
            store, epoch_target=None, max_rows_per_epoch=rows, max_epochs=3
        )
        newest = Catalog(open_storage(store)).newest()
        assert newest is not None
        files = [
            f
            for f in newest.operators["running"].files
            if f.first_epoch == f.last_epoch == newest.epoch
        ]
    return sum(f.bytes for f in files) / sum(f.rows for f in files)


CONTENDERS: dict[str, Callable[[argparse.Namespace, Window], list[Epoch]]] = {
    "with change files": written,
    "without": unwritten,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--rows", type=int, default=400_000, help="records per epoch")
    title = "{keys:,} keys, {rows:,} records an epoch"
    chosen = contest("snapshot", title, CONTENDERS, parser)
    if chosen is not None:
        size = bytes_per_key(chosen.keys, chosen.rows)
        show("what an epoch writes", ["", "bytes"], [["a changed key", f"{size:.1f}"]])


if __name__ == "__main__":
    main()
