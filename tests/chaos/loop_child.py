"""Runs a flow with loops in a process that tests kill.

Usage: python -m tests.chaos.loop_child STORE OUTPUT COUNT [SNAPSHOT PROTOCOL]
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from tests.unit.driver.ledger_flow import bouncing_ledger, transfers
from tests.unsynced import without_sync

import riverlock as rl
from riverlock.core.errors import RiverlockError


def main() -> None:
    """Run to the end of the input; with a name, take a snapshot on the way."""
    without_sync()  # a killed process loses nothing that the system has
    store, output, count, *cut = sys.argv[1:]
    sink = rl.sinks.files(output, format="json")
    flow = bouncing_ledger(transfers(int(count)), sink)
    options: dict[str, Any] = {"execution": "local", "max_rows_per_epoch": 15}
    if cut:
        name, protocol = cut
        handle = flow.start(store, **options)
        if not Path(store, "snapshots", f"{name}.json").exists():
            try:
                handle.savepoint(name, protocol=protocol)  # type: ignore[arg-type]
            except RiverlockError as error:
                print(error)
        handle.stop()
    flow.run(store, available_now=True, **options)


if __name__ == "__main__":
    main()
