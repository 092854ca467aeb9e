"""Runs one region of the ledger in a process that tests kill.

Usage: python -m tests.chaos.region_child STORE OUTPUT COUNT REGION [until-the-end]
"""

from __future__ import annotations

import sys

from tests.unit.driver.ledger_flow import ledger, transfers
from tests.unsynced import without_sync

import riverlock as rl


def main() -> None:
    """Run until told to stop, or to the end of what there is."""
    without_sync()  # a killed process loses nothing that the system has
    store, output, count, region, *ends = sys.argv[1:]
    flow = ledger(transfers(int(count)), rl.sinks.files(output, format="json"))
    flow.run(
        store,
        execution="local",
        region=region,
        max_rows_per_epoch=10,
        available_now=bool(ends),
    )


if __name__ == "__main__":
    main()
