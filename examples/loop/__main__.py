"""Kills the retries flow again and again, then compares it with plain Python.

python -m examples.loop [--payments N] [--keep DIR]
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import riverlock as rl
from examples.loop.flow import MOST_ATTEMPTS, delay, is_declined, payment

# Where the process dies in each life (riverlock.core.faults); the last one does not.
KILLS = ("P6=kill@3", "P8=kill@4", "P2=kill@9", "P10=kill@3", "P3=kill@6", "")

Settled = dict[tuple[str, int], int]


def expected(payments: int) -> tuple[Settled, Counter[str]]:
    """Return how each payment ends, with its last attempt, and attempts by account."""
    ends: Settled = {}
    attempts: Counter[str] = Counter()
    for number in range(payments):
        _, account, _, attempt, at = payment(number)
        attempts[account] += 1
        while is_declined(number, attempt) and attempt < MOST_ATTEMPTS:
            at, attempt = at + delay(attempt), attempt + 1
            attempts[account] += 1
        how = "given-up" if is_declined(number, attempt) else "paid"
        ends[(f"{how} {at:%d %H:%M:%S}", number)] = attempt
    return ends, attempts


def found(place: Path) -> tuple[Settled, Counter[str]]:
    """Return the same of what the flow has written, and of its state."""
    ends: Settled = {}
    for how in ("paid", "given-up"):
        for file in sorted((place / "out" / how).glob("epoch=*/*.json")):
            for row in map(json.loads, file.read_text().splitlines()):
                end = (f"{how} {_time(row['at'])}", row["payment"])
                if end in ends:
                    raise SystemExit(f"payment {row['payment']} was settled twice")
                ends[end] = row["attempt"]
    state = rl.open(str(place / "store")).state("charge").to_arrow().to_pylist()
    return ends, Counter({row["account"]: row["attempts"] for row in state})


def _time(text: str) -> str:
    """Return day and time of an instant in JSON."""
    date, _, time = text.partition("T")
    return f"{date[-2:]} {time[:8]}"


def live(place: Path, payments: int, faults: str) -> bool:
    """Run the flow in a process of its own; return whether it was killed."""
    command: list[Any] = [sys.executable, "-m", "examples.loop.flow"]
    command += ["--store", place / "store", "--out", place / "out"]
    environment = {**os.environ, "RIVERLOCK_FAULTS": faults}
    ended = subprocess.run(
        [*map(str, command), "--payments", str(payments)],
        cwd=Path(__file__).parents[2],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if not faults and ended.returncode:
        raise SystemExit(ended.stderr)
    return ended.returncode != 0


def settle(place: Path, payments: int) -> bool:
    """Run through all kills; return whether nobody can tell."""
    place = place.absolute()
    for life, faults in enumerate(KILLS, start=1):
        print(f"life {life}: {faults or 'to the end'}", flush=True)
        was_killed = live(place, payments, faults)
        print("  killed" if was_killed else "  ended", flush=True)
    (ends, attempts), wanted = found(place), expected(payments)
    how = Counter(end.partition(" ")[0] for end, _ in ends)
    print(
        f"{payments:,} payments, {attempts.total():,} attempts: {how['paid']:,} paid,"
        f" {how['given-up']:,} given up"
    )
    is_same = (ends, attempts) == wanted
    print("equal to plain Python" if is_same else "DIFFERENT from plain Python")
    return is_same


def main() -> None:
    """Run the demo in a folder of its own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--payments", type=int, default=2_000)
    parser.add_argument("--keep", help="a folder for store and output, which stays")
    given = parser.parse_args()
    folder = nullcontext(given.keep) if given.keep else tempfile.TemporaryDirectory()
    with folder as place:
        if not settle(Path(place), given.payments):
            sys.exit(1)


if __name__ == "__main__":
    main()
