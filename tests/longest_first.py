"""The longest files start first, so that no worker is busy alone at the end.

``tests/durations.txt`` says which those are. A run prints the longest of its own: when
they differ much, its lines take the place of the old ones.

Files that need the same costly thing are run by the same worker, as far as that keeps
nobody waiting: a Kafka broker is started once instead of by each worker, and a virtual
machine of Spark warms up twice instead of three times.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadFileScheduling

ROOT = Path(__file__).parents[1]
RECORDED = Path(__file__).with_name("durations.txt")
SHOWN = 20
# How many workers start what is costly, and the texts of files that need it.
KAFKA, SPARK = "kafka", "spark"
MOST = {KAFKA: 1, SPARK: 2}
TEXTS = {
    KAFKA: re.compile("KafkaServer|topic: Topic"),
    SPARK: re.compile(r'SparkSession|mark\.spark|spark: Any|"spark"\)'),
}


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


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Hand out files."""
    if config.getvalue("dist") != "loadfile":
        return None
    return Sharing(config, log)


class Sharing(LoadFileScheduling):  # type: ignore[misc]  # no types there
    """Gives each worker the first file for which it starts nothing once more."""

    def __init__(self, config: pytest.Config, log: Any) -> None:
        super().__init__(config, log)
        self._started: dict[Any, frozenset[str]] = {}

    def _assign_work_unit(self, node: Any) -> None:
        mine = self._started.get(node, frozenset())
        path = next_file(self.workqueue, mine, self._started)
        self._started[node] = mine | needs(path)
        self.workqueue.move_to_end(path, last=False)
        super()._assign_work_unit(node)


def next_file(
    waiting: Iterable[str], mine: frozenset[str], of_all: Mapping[Any, frozenset[str]]
) -> str:
    """Return which file a worker that has started ``mine`` takes; else the first."""
    started = Counter(each for one in of_all.values() for each in one)
    full = {each for each, most in MOST.items() if started[each] >= most} - mine
    paths = list(waiting)
    return next((path for path in paths if not needs(path) & full), paths[0])


@cache
def needs(path: str) -> frozenset[str]:
    """Return the costly things that the tests of a file need.

    Some that need a broker need Spark, too: its worker has both.
    """
    text = (ROOT / path).read_text(encoding="utf-8")
    found = {each for each, pattern in TEXTS.items() if pattern.search(text)}
    return frozenset(found | {SPARK} if KAFKA in found else found)


def _file(nodeid: str) -> str:
    return nodeid.partition("::")[0]
