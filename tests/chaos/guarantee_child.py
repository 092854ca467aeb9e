"""Runs a flow with a loose region in a process that tests kill.

Usage: python -m tests.chaos.guarantee_child STORE OUTPUT COUNT GUARANTEE DIES_AT
[SNAPSHOT PROTOCOL]
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from tests.chaos.guarantee_flow import flow_of
from tests.unsynced import without_sync

from riverlock.core.errors import RiverlockError


def main() -> None:
    """Run to the end of the input; with a name, take a snapshot on the way."""
    without_sync()  # a killed process loses nothing that the system has
    store, out, count, guarantee, dies_at, *cut = sys.argv[1:]
    known: Any = guarantee
    flow = flow_of(int(count), Path(out), known, dies_at=int(dies_at))
    options: Any = {
        "execution": "local",
        "max_rows_per_epoch": 7,
        "retain_epochs": 10_000,
    }
    if cut:
        name, protocol = cut
        handle = flow.start(store, **options)
        try:
            handle.savepoint(name, protocol=protocol)  # type: ignore[arg-type]
        except RiverlockError as error:
            print(error)
        handle.stop()
    flow.run(store, available_now=True, **options)


if __name__ == "__main__":
    main()
