"""Pause one region for minutes; its bound holds, and memory and disk stay flat.

    python -m tests.chaos.region_pause --bound 5000 --seconds 120 [--engine jobs]

Each region is a process; one gets SIGSTOP. With ``--bound 0`` there is no bound: then
the others go on, and the channel grows by what was not read. Told over time: epochs,
rows that wait, bytes of the store, memory of the processes of the other regions. In the
end all that was written is compared with plain Python. Exits 1 if a row is missing or
too many, or a bound did not hold.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from tests.chaos.paced_regions import EPOCH_ROWS, OTHERS, REGIONS, VICTIM, Paced
from tests.chaos.processes import descendants

_SAMPLES = 12


def memory(pid: int) -> int:
    """Return the resident memory of a process and those below it, in MB."""
    found = 0
    for each in (pid, *descendants(pid)):
        with suppress(OSError, StopIteration):
            lines = Path(f"/proc/{each}/status").read_text().splitlines()
            found += int(next(x for x in lines if x.startswith("VmRSS")).split()[1])
    return found // 1024


def size(root: Path) -> int:
    """Return the bytes of all files below a directory, in KB."""
    found = 0
    for file in root.rglob("*"):
        with suppress(OSError):  # retention works meanwhile
            found += file.stat().st_blocks * 512 if file.is_file() else 0
    return found // 1024


def show(paced: Paced, began: float, what: str) -> int:
    """Print how things are; return how many rows wait."""
    waiting = paced.waiting()
    epochs = " ".join(f"{r} {paced.epoch(r):5}" for r in REGIONS)
    rss = " ".join(f"{r} {memory(paced.children[r].pid)}" for r in OTHERS)
    print(
        f"{time.monotonic() - began:6.1f} s {what:7} epochs: {epochs}"
        f"  waiting rows: {waiting:7}  store: {size(Path(paced.store)):7} KB"
        f"  memory in MB: {rss}",
        flush=True,
    )
    return waiting


def run(paced: Paced, seconds: float) -> bool:
    """Do all of it; return whether the bound held and results are exact."""
    began = time.monotonic()
    for region in REGIONS:
        paced.start(region)
    for region in REGIONS:
        paced.wait_for(region, 30)
    show(paced, began, "runs")
    paced.send(VICTIM, signal.SIGSTOP)
    most = 0
    for _ in range(_SAMPLES):
        time.sleep(seconds / _SAMPLES)
        most = max(most, show(paced, began, "paused"))
    paced.send(VICTIM, signal.SIGCONT)
    paced.wait_for(VICTIM, paced.epoch(VICTIM) + 1)
    while paced.waiting() > paced.pace:
        time.sleep(0.5)
    for region in REGIONS:
        paced.wait_for(region, paced.epoch(region) + 30)
    show(paced, began, "runs")
    # The rows of an epoch are not known before it is decided.
    holds = not paced.bound or most <= paced.bound + EPOCH_ROWS
    print(f"at most {most} rows waited; bound: {paced.bound or 'none'}", flush=True)

    count = paced.finish()
    found = paced.differences(count)
    for region, (lost, duplicated) in found.items():
        print(f"{region}: {count} rows compared, lost {lost}, duplicated {duplicated}")
    return holds and not any(sum(each) for each in found.values())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--bound", type=int, default=5_000, help="in rows")
    parser.add_argument("--engine", choices=("local", "jobs"), default="local")
    parser.add_argument("--pace", type=float, default=500, help="transfers a second")
    chosen = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="region-pause-"))
    print(f"{chosen.engine}, bound {chosen.bound or 'none'}, in {root}", flush=True)
    paced = Paced(root, chosen.engine, chosen.pace, chosen.bound)
    try:
        return 0 if run(paced, chosen.seconds) else 1
    finally:
        paced.close()


if __name__ == "__main__":
    sys.exit(main())
