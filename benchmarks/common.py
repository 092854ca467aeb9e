"""What all benchmarks share: child processes, tables, JSON."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import riverlock as rl

RESULTS = Path(__file__).parent / "results"


def in_child(module: str, *arguments: str) -> Any:
    """Run ``python -m module arguments`` alone and return the JSON it prints last.

    A process of its own per contender: no JVM, cache or heap is shared.
    """
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return json.loads(done.stdout.strip().splitlines()[-1])


def show(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table."""
    table = Table(title=title)
    for number, column in enumerate(columns):
        table.add_column(column, justify="left" if number == 0 else "right")
    for row in rows:
        table.add_row(*row)
    Console().print(table)


def save(name: str, result: Any) -> None:
    """Keep a result as JSON."""
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.json").write_text(json.dumps(result, indent=2) + "\n")


def median(values: Sequence[float]) -> float:
    """Return the middle value."""
    ordered = sorted(values)
    return ordered[len(ordered) // 2]


class Window:
    """Which epochs are measured: those after a warm-up, for some seconds.

    At least one epoch warms up and at least two are measured, however long they take.
    """

    def __init__(self, warm_up: float, seconds: float) -> None:
        self._warm_up, self._seconds = warm_up, seconds
        self._skipped: int | None = None

    def note(self, began: float, done: int) -> None:
        """Take note that so many epochs are done."""
        if self._skipped is None and time.monotonic() - began >= self._warm_up:
            self._skipped = done

    def is_over(self, began: float, done: int) -> bool:
        """Whether enough has been seen."""
        passed = time.monotonic() - began >= self._warm_up + self._seconds
        return passed and self._skipped is not None and done >= self._skipped + 2

    def steady(self, values: list[Epoch]) -> list[Epoch]:
        """Return what was measured after the warm-up."""
        return values[self._skipped :]


class Epoch(NamedTuple):
    """How long an epoch or batch took, and how many records it had."""

    seconds: float
    rows: int

    @property
    def rate(self) -> float:
        """Records per second."""
        return self.rows / self.seconds


def epochs_of(
    flow: rl.Flow, window: Window, *, waits: bool = False, **options: Any
) -> list[Epoch]:
    """Run a flow; returns its steady epochs.

    What counts is the time from commit to commit, since epochs overlap; or, if the flow
    waits for records in between, that from plan to decision.
    """
    found: list[Epoch] = []
    over = threading.Event()
    began = last = time.monotonic()

    def see(status: Any) -> None:
        nonlocal last
        if status.state == "running":
            now = time.monotonic()
            seconds = status.epoch_seconds if waits else now - last
            found.append(Epoch(seconds, status.rows))
            last = now
            window.note(began, len(found))
            if window.is_over(began, len(found)):
                over.set()

    with tempfile.TemporaryDirectory() as store:
        handle = flow.start(store, on_status=see, **options)
        while not over.wait(1) and handle.is_active:
            pass
        handle.stop()
    return window.steady(found)


def contest(
    name: str,
    title: str,
    contenders: Mapping[str, Callable[[argparse.Namespace, Window], list[Epoch]]],
    parser: argparse.ArgumentParser,
) -> argparse.Namespace | None:
    """Run contenders, each in a process of its own, and show records/s beside ours.

    They take turns, in several rounds: machines are not equally fast all the time.

    Args:
        name: The module, and the file of the results.
        title: Of the table; may refer to options.
        contenders: By name; ours is the first.
        parser: Takes the options of the benchmark.

    Returns:
        The options; None in a contender's process.
    """
    parser.add_argument("--peers", nargs="+", choices=("all", *contenders))
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--warm-up", type=float, default=40, help="seconds")
    parser.add_argument("--seconds", type=float, default=15, help="measured")
    parser.add_argument("--only", choices=contenders, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.only:
        window = Window(chosen.warm_up, chosen.seconds)
        epochs = contenders[chosen.only](chosen, window)
        print(json.dumps([(e.seconds, e.rate) for e in epochs]))
        return None
    mine, *others = contenders
    peers = others if chosen.peers in (None, ["all"]) else chosen.peers
    given = [a for a in sys.argv[1:] if a != "--peers" and a not in contenders]
    given = [a for a in given if a != "all"]
    found: dict[str, list[list[float]]] = {}
    for _ in range(chosen.rounds):
        for each in dict.fromkeys([mine, *peers]):
            epochs = in_child(f"benchmarks.{name}", *given, "--only", each)
            found.setdefault(each, []).extend(epochs)
    seconds = {n: median([e[0] for e in epochs]) for n, epochs in found.items()}
    rates = {n: median([e[1] for e in epochs]) for n, epochs in found.items()}
    # The median is that of an epoch like most; what a few do for all is in the mean.
    means = {
        n: sum(s * rate for s, rate in epochs) / sum(s for s, _ in epochs)
        for n, epochs in found.items()
    }
    ratios = {n: rates[mine] / rate for n, rate in rates.items()}
    show(
        title.format(**vars(chosen)),
        ["", "records/s", "mean", "s per epoch", "riverlock is"],
        [
            [
                *(n, f"{rates[n]:,.0f}", f"{means[n]:,.0f}"),
                *(f"{seconds[n]:.3f}", _ratio(ratios[n])),
            ]
            for n in rates
        ],
    )
    result = {"records_per_second": rates, "seconds": seconds, "ratios": ratios}
    # Options apart: there is one that is called seconds, too.
    options = vars(chosen)
    save(name, {**result, "mean_records_per_second": means, "options": options})
    return chosen


def _ratio(ratio: float) -> str:
    return f"{ratio:.1f} x" if ratio > 1 else f"{ratio:.0%} of"
