"""Parameters that change while the flow runs: at one epoch, whatever dies, for good."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession
from tests.integration.test_lifecycle import catalog, wait_for

import riverlock as rl
from riverlock.cli import main
from riverlock.core.errors import InvalidConfigError
from riverlock.snapshot.format.records import Change
from riverlock.snapshot.format.requests import add_request

pytestmark = pytest.mark.spark

EPOCH_ROWS = 40


def limits(folder: Path, out: Any, rows: int, default: int) -> rl.Flow:
    died = folder / "died"

    class Limits(rl.Process):
        output = "id bigint, seen bigint, words string"
        limit = rl.Param(default, doc="how much is added")
        words = rl.Param(["a"])
        total = rl.Value("bigint", default=0)

        def on_event(self, e: Any, ctx: Any) -> Iterator[Any]:
            if self.limit == 200 and e.id == 50 and not died.exists():
                died.touch()
                # The epoch is redone: it has what it was planned with, not this.
                change = Change(values={"limits": {"limit": 300}})
                add_request(catalog(folder / "store"), change, now_us=1)
                os.kill(os.getpid(), signal.SIGKILL)
            self.total += self.limit
            yield e.id, self.total, "".join(self.words)

    flow = rl.Flow("limits", key_groups=8)
    columns = {"k": "id % 5", "id": "id"}
    stream = flow.read(rl.sources.generator(columns, rows=rows), uid="numbers")
    stream.key_by("k").process(Limits(), uid="limits").write(out, uid="out")
    return flow


def expected(by_epoch: list[tuple[int, str]]) -> list[Any]:
    totals = dict.fromkeys(range(5), 0)
    found = []
    for epoch, (limit, words) in enumerate(by_epoch):
        for number in range(epoch * EPOCH_ROWS, (epoch + 1) * EPOCH_ROWS):
            totals[number % 5] += limit
            found.append((number, totals[number % 5], words))
    return found


def cli(*words: object) -> Any:
    return CliRunner().invoke(main, ["set", *map(str, words)])


def test_parameters_change_at_one_epoch_and_stay(
    spark: SparkSession, tmp_path: Path
) -> None:
    out, store = rl.sinks.memory(), tmp_path / "store"
    options: dict[str, Any] = {
        "spark": spark,
        "available_now": True,
        "max_rows_per_epoch": EPOCH_ROWS,
        "parallelism": 2,
    }
    handles: list[rl.Handle] = []
    has_begun, is_started = threading.Event(), threading.Event()
    refused: list[str] = []

    def after(status: Any) -> None:
        has_begun.set()
        assert is_started.wait(250)
        running: Any = handles[0]._running
        run = running._first.run
        # Not on before the request is there: the first of ours, the second of a worker.
        wait_for(lambda: run._heartbeat._last_request >= min(status.epoch + 1, 2))
        if status.epoch == 3:
            with pytest.raises(InvalidConfigError, match="wait for itself") as error:
                handles[0].set("limits", limit=1)
            refused.append(str(error.value))

    flow = limits(tmp_path, out, 4 * EPOCH_ROWS, default=100)
    handles.append(flow.start(str(store), on_status=after, **options))
    with pytest.raises(InvalidConfigError, match="one of limit, words"):
        handles[0].set("limits", nothing=1)
    with pytest.raises(InvalidConfigError, match=r"of kind int.*whole number"):
        handles[0].set("limits", limit="many")
    # The first epoch is decided without it, however slowly a run begins.
    assert has_begun.wait(250)
    is_started.set()
    epoch = handles[0].set("limits", limit=200)
    handles[0].wait()
    with pytest.raises(InvalidConfigError, match="next run takes them up"):
        handles[0].set("limits", words=["x"])
    asked = cli(store, 'limits.words=["b", "c"]', "--json")
    # Another default in the code: what was set stays.
    again = limits(tmp_path, out, 6 * EPOCH_ROWS, default=7)
    handles.clear()
    is_started.clear()
    back: list[Any] = []

    def reset(status: Any) -> None:
        assert is_started.wait(250)
        running: Any = handles[0]._running
        run = running._first.run
        if status.epoch == 4 and not back:
            back.append(cli(store, "limits.limit", "--default", "--wait", "0"))
            wait_for(lambda: run._heartbeat._last_request >= 5)

    handles.append(again.start(str(store), on_status=reset, **options))
    is_started.set()
    handles[0].wait()

    by_epoch = [(100, "a"), (200, "a"), (300, "a"), (300, "a"), (300, "bc"), (7, "bc")]
    assert (tmp_path / "died").exists()
    assert refused
    assert sorted(map(tuple, out.rows())) == expected(by_epoch)
    found = [catalog(store).manifest(n).operators["limits"] for n in range(6)]
    recorded = [
        (s.parameters["limit"].in_force, "".join(s.parameters["words"].in_force))
        for s in found
    ]
    assert recorded == by_epoch
    assert epoch == found[1].parameters["limit"].since == 1
    assert json.loads(asked.stdout)["epoch"] is None
    assert back[0].stdout.endswith("run 2 was asked; its next epoch has it\n")
    done = again.replay(str(store), 1, 2, spark=spark)
    assert done.matches
