"""The longest files start first, so that no worker is busy alone at the end.

``tests/durations.txt`` says which those are. A run prints the longest of its own: when
they differ much, its lines take the place of the old ones.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest

RECORDED = Path(__file__).with_name("durations.txt")
SHOWN = 20


def recorded() -> dict[str, float]:
    """Return the seconds of files that take long."""
    lines = RECORDED.read_text(encoding="utf-8").splitlines()
    pairs = [line.split() for line in lines if not line.startswith("#")]
    return {path: float(seconds) for seconds, path in pairs}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort by file; tests of a file keep their order, and so do short files."""
    seconds = recorded()
    items.sort(key=lambda item: -seconds.get(_file(item.nodeid), 0.0))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print how long the longest files took, if durations are asked for."""
    if not terminalreporter.config.getoption("durations"):
        return
    total: dict[str, float] = defaultdict(float)
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                total[_file(report.nodeid)] += report.duration
    terminalreporter.section(f"slowest {SHOWN} files")
    for path, seconds in sorted(total.items(), key=lambda each: -each[1])[:SHOWN]:
        terminalreporter.write_line(f"{seconds:4.0f} {path}")


def _file(nodeid: str) -> str:
    return nodeid.partition("::")[0]
