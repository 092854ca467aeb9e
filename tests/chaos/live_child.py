"""Runs a flow whose state is read meanwhile, in a process that tests kill.

Usage: python -m tests.chaos.live_child STORE COUNT PARALLELISM
"""

from __future__ import annotations

import sys

from tests.unit.query.live_flow import swapping, swaps
from tests.unsynced import without_sync


def main() -> None:
    """Run to the end of the input."""
    without_sync()  # a killed process loses nothing that the system has
    store, count, parallelism = sys.argv[1:]
    swapping(swaps(int(count))).run(
        store,
        execution="local",
        available_now=True,
        max_rows_per_epoch=10,
        parallelism=int(parallelism),
        retain_epochs=2,
        grace="0 seconds",
    )


if __name__ == "__main__":
    main()
