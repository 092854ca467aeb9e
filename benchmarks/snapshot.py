"""What snapshots cost: the same job with and without its change files.

    python -m benchmarks.snapshot [--keys 100000] [--rows 400000]

Without them nothing could be recovered, so that this is no option of Riverlock: the
workers of this benchmark are made not to write (``benchmarks.unwritten``). How large
the files are, ``benchmarks.change_files`` tells.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from benchmarks.common import Epoch, Window, epochs_of
from benchmarks.contest import contest
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


CONTENDERS: dict[str, Callable[[argparse.Namespace, Window], list[Epoch]]] = {
    "with change files": written,
    "without": unwritten,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--rows", type=int, default=400_000, help="records per epoch")
    title = "{keys:,} keys, {rows:,} records an epoch"
    contest("snapshot", title, CONTENDERS, parser)


if __name__ == "__main__":
    main()
