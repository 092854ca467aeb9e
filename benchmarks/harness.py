"""Runs the contenders of a benchmark one after the other, and ends in time.

Each has a process of its own: no virtual machine, cache or heap is shared. Its line is
printed as soon as it is measured. What is announced at the start holds: a contender
that takes longer than its share is stopped with all that it started, and the others
go on.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from benchmarks.processes import kill_with_descendants

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterable, Sequence


class Contender(NamedTuple):
    """Who is measured, by one call of the benchmark.

    Attributes:
        name: What its line begins with.
        arguments: Of the call, which prints its result as JSON in its last line.
        seconds: The most it may take.
        peer: The engine that it shows beside ours; None if it is ours.
    """

    name: str
    arguments: Sequence[str]
    seconds: float
    peer: str | None = None


def add_options(parser: argparse.ArgumentParser, peers: Iterable[str] = ()) -> None:
    """Let a benchmark take what all take.

    Args:
        parser: Of the benchmark.
        peers: The engines that it can show beside ours.
    """
    parser.add_argument(
        "--peers",
        nargs="+",
        default=["all"],
        choices=("all", "none", *peers),
        help="beside ours",
    )
    parser.add_argument(
        "--within",
        type=float,
        help="seconds that all may take together, in equal shares",
    )


def is_wanted(chosen: argparse.Namespace, peer: str | None) -> bool:
    """Whether a peer is to be run; ours always are."""
    return peer is None or "all" in chosen.peers or peer in chosen.peers


def measure(
    module: str,
    contenders: Iterable[Contender],
    line: Callable[[Any], str],
    chosen: argparse.Namespace,
    *,
    rounds: int = 1,
) -> dict[str, list[Any]]:
    """Run those that are wanted, in turns, and tell of each at once.

    Args:
        module: What each is an instance of: ``python -m module arguments``.
        contenders: All of them.
        line: Says a result in a few words.
        chosen: The options.
        rounds: How often each is run: machines are not equally fast all the time.

    Returns:
        By name, what each round of it found; without those that were stopped or failed.
    """
    wanted = [each for each in contenders if is_wanted(chosen, each.peer)]
    runs = [each for _ in range(rounds) for each in wanted]
    if chosen.within is not None:
        runs = [each._replace(seconds=chosen.within / len(runs)) for each in runs]
    most = sum(each.seconds for each in runs)
    print(f"{module}: at most {_shown(most)}, runs: {len(runs)}", flush=True)
    found: dict[str, list[Any]] = {}
    for each in runs:
        began = time.monotonic()
        result, words = _run(module, each)
        if words is None:
            found.setdefault(each.name, []).append(result)
            words = line(result)
        took = time.monotonic() - began
        print(f"{each.name}: {words} ({took:.0f} s)", flush=True)
    return found


def _run(module: str, contender: Contender) -> tuple[Any, str | None]:
    """Return the result, or why there is none."""
    command = [sys.executable, "-m", module, *contender.arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            out, _ = process.communicate(timeout=contender.seconds)
        except subprocess.TimeoutExpired:
            return None, "stopped, it took too long"
        finally:
            if process.poll() is None:
                kill_with_descendants(process.pid)
    if process.returncode != 0:
        return None, f"failed with {process.returncode}"
    return json.loads(out.strip().splitlines()[-1]), None


def _shown(seconds: float) -> str:
    return f"{seconds:.0f} seconds" if seconds < 120 else f"{seconds / 60:.0f} minutes"
