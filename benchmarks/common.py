"""What all benchmarks share: epochs that are measured, tables, JSON."""

from __future__ import annotations

import json
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Sequence

    import riverlock as rl

RESULTS = Path(__file__).parent / "results"


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
