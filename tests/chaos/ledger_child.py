"""Runs the ledger over four regions in a process that tests kill.

Usage: python -m tests.chaos.ledger_child STORE OUTPUT COUNT [SNAPSHOT PROTOCOL]
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from tests.unit.driver.ledger_flow import ledger, transfers
from tests.unsynced import without_sync

import riverlock as rl
from riverlock.core.errors import RiverlockError


def main() -> None:
    """Run to the end of the input; with a name, take a snapshot on the way."""
    without_sync()  # a killed process loses nothing that the system has
    store, output, count, *cut = sys.argv[1:]
    flow = ledger(transfers(int(count)), rl.sinks.files(output, format="json"))
    options: dict[str, Any] = {
        "execution": "local",
        "max_rows_per_epoch": 15,
        "parallelism": 3,  # tasks read their own rows of a channel
    }
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
