"""Runs a flow with a loose region in a process that tests kill.

Usage: python -m tests.chaos.guarantee_child STORE OUTPUT COUNT GUARANTEE DIES_AT
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from tests.chaos.guarantee_flow import flow_of
from tests.unsynced import without_sync


def main() -> None:
    """Run to the end of the input."""
    without_sync()  # a killed process loses nothing that the system has
    store, out, count, guarantee, dies_at = sys.argv[1:]
    known: Any = guarantee
    flow_of(int(count), Path(out), known, dies_at=int(dies_at)).run(
        store,
        execution="local",
        available_now=True,
        max_rows_per_epoch=7,
        retain_epochs=10_000,
    )


if __name__ == "__main__":
    main()
