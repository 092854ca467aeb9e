"""Another number of tasks while the flow runs."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession
from tests.integration.test_lifecycle import catalog, wait_for

import riverlock as rl
from riverlock.cli import main
from riverlock.core.errors import InvalidConfigError
from riverlock.snapshot.verbs.verify import verify

pytestmark = pytest.mark.spark


# Read by the first epoch of each number of tasks: their workers have just read state.
DEADLY = frozenset(220 * epoch + 5 for epoch in (2, 4, 6, 8))


class Kept(rl.Process):
    """Gives all that it keeps, so that a lost or doubled entry is seen."""

    output = "k bigint, n bigint, total bigint, newest array<bigint>"
    n = rl.Value("bigint", default=0)
    total = rl.Value("bigint", default=0)
    newest = rl.List("bigint")
    met = rl.Map("bigint", "boolean")

    def __init__(self, marks: Path) -> None:
        self.marks = marks

    def on_event(self, e: Any, ctx: Any) -> Iterator[Any]:
        if e.id in DEADLY and not (self.marks / str(e.id)).exists():
            (self.marks / str(e.id)).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        assert e.id not in self.met
        self.met[e.id % 1000] = True
        self.n += 1
        self.total += e.id
        if len(self.newest) == 3:
            self.newest.clear()
        self.newest.append(e.id)
        yield e.k, self.n, self.total, list(self.newest)


def expected(rows: int) -> dict[int, list[Any]]:
    return {
        k: [
            (k, at + 1, total, list(mine[at - at % 3 : at + 1]))
            for at, total in enumerate(accumulate(mine))
        ]
        for k in range(11)
        for mine in [range(k, rows, 11)]
    }


def test_tasks_come_and_go_while_the_flow_runs_and_workers_die(
    spark: SparkSession, tmp_path: Path
) -> None:
    out, home, marks = rl.sinks.memory(), tmp_path / "store", tmp_path / "marks"
    marks.mkdir()
    store = catalog(home)
    flow = rl.Flow("kept", key_groups=16)
    columns = {"k": "id % 11", "id": "id"}
    stream = flow.read(rl.sources.generator(columns, rows=2200), uid="numbers")
    stream.key_by("k").process(Kept(marks), uid="kept").write(out, uid="out")
    said: list[Any] = []
    handles: list[rl.Handle] = []
    is_started = threading.Event()
    ask = ["rescale", str(home), "1", "--wait", "0", "--json"]

    def after(status: Any) -> None:
        assert is_started.wait(250)
        (handle,) = handles
        wanted = {1: 2, 3: 7, 5: 3}.get(status.epoch)
        if wanted is not None:
            handle.rescale(wanted)
        elif status.epoch == 7:
            said.append(CliRunner().invoke(main, ask))
            # The heart takes it up; the flow is not let on before.
            running: Any = handle._running
            run = running._first.run
            wait_for(lambda: not run._driver._requests.empty())

    options: dict[str, Any] = {"available_now": True, "max_rows_per_epoch": 220}
    started = flow.start(
        str(home), spark=spark, parallelism=1, on_status=after, **options
    )
    handles.append(started)
    is_started.set()
    started.wait()
    said.append(CliRunner().invoke(main, ask))

    tasks = [store.manifest(epoch).parallelism for epoch in store.epochs()]
    assert tasks == [1, 1, 2, 2, 7, 7, 3, 3, 1, 1]
    assert {int(mark.name) for mark in marks.iterdir()} == DEADLY
    found: dict[int, list[Any]] = {k: [] for k in range(11)}
    for row in out.rows():
        found[row[0]].append((*row[:3], list(row[3])))
    assert found == expected(2200)  # in the order of each key
    assert all(report.is_whole for report in verify(store))
    assert json.loads(said[0].stdout) == {"run": 1, "parallelism": 1, "epoch": None}
    assert said[1].exit_code == 1
    assert "has ended" in said[1].stdout
    with pytest.raises(InvalidConfigError, match="at least 1"):
        started.rescale(0)
