"""Runs one region of a flow with loops in a process that tests kill.

Usage: python -m tests.chaos.loop_region_child STORE OUTPUT COUNT REGION
"""

from __future__ import annotations

import sys

from tests.unit.driver.ledger_flow import bouncing_ledger, transfers
from tests.unsynced import without_sync

import riverlock as rl


def main() -> None:
    """Run to the end of the input, and of what comes round."""
    without_sync()  # a killed process loses nothing that the system has
    store, output, count, region = sys.argv[1:]
    sink = rl.sinks.files(output, format="json")
    flow = bouncing_ledger(transfers(int(count)), sink)
    flow.run(
        store,
        execution="local",
        region=region,
        max_rows_per_epoch=15,
        available_now=True,
    )


if __name__ == "__main__":
    main()
