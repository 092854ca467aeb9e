"""Runs one of the flows that are joined in a process that tests kill.

Usage: python -m tests.chaos.joined_child NAME ROOT COUNT
"""

from __future__ import annotations

import sys

from tests.unit.driver.joined_flow import flow_of
from tests.unit.driver.ledger_flow import transfers
from tests.unsynced import without_sync


def main() -> None:
    """Run until the process is asked to stop."""
    without_sync()  # a killed process loses nothing that the system has
    name, root, count = sys.argv[1:]
    flow = flow_of(name, root, transfers(int(count)))
    flow.run(f"{root}/{name}", execution="local", max_rows_per_epoch=10)


if __name__ == "__main__":
    main()
