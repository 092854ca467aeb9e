"""Kills a flow of regions again and again, then compares it with plain Python.

python -m examples.regions [--payments N] [--keep DIR]
"""

import argparse
import json
import os
import sqlite3
import subprocess
import sys
import tempfile
from collections import Counter
from contextlib import closing, nullcontext
from pathlib import Path

import riverlock as rl
from examples.regions.flow import LARGE, payment

# Where the process dies in each life (riverlock.core.faults); the last one does not.
KILLS = ("P6=kill@3", "P8=kill@7", "P10=kill@6", "P3=kill@8", "")
SNAPSHOT = "v1"

Bills = dict[str, tuple[int, int]]

# What every payment is in, in a consistent snapshot: counted once, and billed or on its
# way. Of states at two moments it would not be the same sum.
BALANCE = """
    SELECT (SELECT sum(cents) FROM score) AS counted,
           (SELECT coalesce(sum(cents), 0) FROM bill) AS billed,
           (SELECT coalesce(sum(cents), 0) FROM channels."to-billing") AS in_flight
"""


def expected(payments: int) -> tuple[Bills, set[int]]:
    """Return the payments and cents of each account, and the large payments."""
    bills: Bills = {}
    for number in range(payments):
        _, account, cents = payment(number)
        count, owed = bills.get(account, (0, 0))
        bills[account] = count + 1, owed + cents
    return bills, {n for n in range(payments) if payment(n)[2] > LARGE}


def found(place: Path) -> tuple[Bills, Counter[int]]:
    """Return the table, and how often each alert was told."""
    with closing(sqlite3.connect(place / "out" / "bills.db")) as database:
        rows = database.execute("SELECT account, payments, cents FROM bills")
        bills = {account: (count, cents) for account, count, cents in rows}
    lines = (place / "out" / "alerts.jsonl").read_text().splitlines()
    return bills, Counter(json.loads(line)["payment"] for line in lines)


def live(place: Path, payments: int, faults: str) -> bool:
    """Run the flow in a process of its own; return whether it was killed."""
    command = [sys.executable, "-m", "examples.regions.flow"]
    command += ["--store", str(place / "store"), "--out", str(place / "out")]
    command += ["--payments", str(payments), "--snapshot", SNAPSHOT]
    ended = subprocess.run(
        command,
        cwd=Path(__file__).parents[2],
        env={**os.environ, "RIVERLOCK_FAULTS": faults},
        capture_output=True,
        text=True,
        check=False,
    )
    if not faults and ended.returncode:
        raise SystemExit(ended.stderr)
    return ended.returncode != 0


def is_balanced(store: str) -> bool:
    """Tell whether all that was counted at the snapshot was billed or on its way."""
    (row,) = rl.open(store).sql(BALANCE, at=SNAPSHOT).to_pylist()
    counted, billed, flying = row["counted"], row["billed"], row["in_flight"]
    print(
        f"snapshot {SNAPSHOT}: {counted:,} cents counted = {billed:,} billed"
        f" + {flying:,} in flight"
    )
    return bool(counted == billed + flying)


def bill(place: Path, payments: int) -> bool:
    """Run through all kills; return whether the results are those of a perfect run."""
    place = place.absolute()
    for life, faults in enumerate(KILLS, start=1):
        print(f"life {life}: {faults or 'to the end'}", flush=True)
        was_killed = live(place, payments, faults)
        print("  killed" if was_killed else "  ended", flush=True)
    (bills, told), (owed, large) = found(place), expected(payments)
    is_right = is_balanced(str(place / "store"))
    print(
        f"{payments:,} payments, {len(bills)} accounts billed; {len(told)} alerts told,"
        f" {told.total() - len(told)} of them again"
    )
    is_right &= bills == owed and told.keys() == large
    print("equal to plain Python" if is_right else "DIFFERENT from plain Python")
    return is_right


def main() -> None:
    """Run the demo in a folder of its own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--payments", type=int, default=5_000)
    parser.add_argument("--keep", help="a folder for store and output, which stays")
    given = parser.parse_args()
    folder = nullcontext(given.keep) if given.keep else tempfile.TemporaryDirectory()
    with folder as place:
        if not bill(Path(place), given.payments):
            sys.exit(1)


if __name__ == "__main__":
    main()
