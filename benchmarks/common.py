"""What all benchmarks share: child processes, tables, JSON."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Sequence

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

    def steady(self, values: list[float]) -> list[float]:
        """Return what was measured after the warm-up."""
        return values[self._skipped :]


def rates_of(flow: rl.Flow, rows: int, window: Window) -> list[float]:
    """Run a flow with epochs of so many rows; returns records/s of steady epochs."""
    seconds: list[float] = []
    over = threading.Event()
    began = time.monotonic()

    def see(status: Any) -> None:
        if status.state == "running":
            seconds.append(status.epoch_seconds)
            window.note(began, len(seconds))
            if window.is_over(began, len(seconds)):
                over.set()

    with tempfile.TemporaryDirectory() as store:
        handle = flow.start(
            store, epoch_target=None, max_rows_per_epoch=rows, on_status=see
        )
        while not over.wait(1) and handle.is_active:
            pass
        handle.stop()
    return [rows / s for s in window.steady(seconds)]
