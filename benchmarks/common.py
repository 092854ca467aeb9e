"""What all benchmarks share: child processes, tables, JSON."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Sequence

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
