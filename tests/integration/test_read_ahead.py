"""A backlog is shuffled an epoch ahead; nothing but time depends on it."""

from __future__ import annotations

import os
import signal
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import riverlock as rl
from riverlock.engines.jobs.ahead import ReadAhead, _last_exchange, _shuffled
from riverlock.snapshot.catalog import Catalog
from riverlock.stages.stage_tasks import StageTasks
from riverlock.storage.open import open_storage

pytestmark = pytest.mark.spark


class Running(rl.Process):
    output = "k bigint, total bigint"
    total = rl.Value("bigint", default=0)

    def on_event(self, e: Any, ctx: Any) -> Any:
        self.total += e.n
        yield e.k, self.total


class Stumbling(Running):
    """Has its worker killed four times in the third epoch: Spark gives up then."""

    def __init__(self, marks: str) -> None:
        self.marks = marks

    def on_event(self, e: Any, ctx: Any) -> Any:
        if e.n == 2_500:
            folder = Path(self.marks)
            count = len(list(folder.iterdir()))
            if count < 4:
                (folder / str(count)).touch()
                os.kill(os.getpid(), signal.SIGKILL)
        return super().on_event(e, ctx)


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each keyed stage found its rows read ahead."""
    found: list[bool] = []
    take = ReadAhead.take

    def watched(self: ReadAhead, *args: Any) -> Any:
        frame = take(self, *args)
        found.append(frame is not None)
        return frame

    monkeypatch.setattr(ReadAhead, "take", watched)
    return found


def flow_of(out: Any, process: rl.Process, *sizes: int, **pace: Any) -> rl.Flow:
    flow = rl.Flow("ahead", key_groups=8)
    columns = {"k": "id % 7", "n": "id"}
    first, *others = (
        flow.read(rl.sources.generator(columns, rows=rows, **pace), uid=f"in{n}")
        for n, rows in enumerate(sizes)
    )
    stream = first.union(*others) if others else first
    stream.key_by("k").process(process, uid="running").write(out, uid="out")
    return flow


def last_totals(rows: list[tuple[int, int]]) -> dict[int, int]:
    found: dict[int, int] = {}
    for key, total in rows:
        found[key] = max(found.get(key, 0), total)
    return found


def expected(*sizes: int) -> dict[int, int]:
    totals: Counter[int] = Counter()
    for rows in sizes:
        for n in range(rows):
            totals[n % 7] += n
    return dict(totals)


BY_THOUSANDS: dict[str, Any] = {"epoch_target": None, "max_rows_per_epoch": 1_000}


@pytest.mark.parametrize("sizes", [(8_000,), (8_000, 1_500, 0)])
def test_a_backlog_is_read_ahead(
    spark: SparkSession, tmp_path: Path, taken: list[bool], sizes: tuple[int, ...]
) -> None:
    out = rl.sinks.memory()
    flow_of(out, Running(), *sizes).run(
        str(tmp_path), spark=spark, available_now=True, **BY_THOUSANDS
    )

    epochs = Catalog(open_storage(str(tmp_path))).epochs()
    # The first epoch has none before it; all others were read ahead.
    assert taken == [False] + [True] * (len(epochs) - 1)
    assert len(out.rows()) == sum(sizes)
    assert last_totals(out.rows()) == expected(*sizes)


def test_what_comes_in_slowly_is_not(
    spark: SparkSession, tmp_path: Path, taken: list[bool]
) -> None:
    flow = flow_of(rl.sinks.memory(), Running(), 10_000_000, rows_per_second=500)
    flow.run(str(tmp_path), spark=spark, max_epochs=3)

    assert taken == [False] * 3


def test_an_epoch_that_failed_is_redone_and_what_was_read_ahead_still_counts(
    spark: SparkSession, tmp_path: Path, taken: list[bool]
) -> None:
    marks = tmp_path / "marks"
    marks.mkdir()
    out = rl.sinks.memory()
    flow_of(out, Stumbling(str(marks)), 6_000).run(
        str(tmp_path / "store"), spark=spark, available_now=True, **BY_THOUSANDS
    )

    assert len(list(marks.iterdir())) == 4
    # The third epoch twice: read ahead, then from its source; the fourth was ready.
    assert taken == [False, True, True, False, True, True, True]
    assert len(out.rows()) == 6_000
    assert last_totals(out.rows()) == expected(6_000)


def test_nothing_runs_on_after_a_stop(
    spark: SparkSession, tmp_path: Path, taken: list[bool]
) -> None:
    flow = flow_of(rl.sinks.memory(), Running(), 10_000_000)
    handle = flow.start(str(tmp_path), spark=spark, **BY_THOUSANDS)
    pause = threading.Event()
    while len(taken) < 3:
        assert not handle.wait(timeout=0.05)
    handle.stop()

    tracker = spark.sparkContext.statusTracker()
    for _ in range(1_000):
        if not tracker.getActiveJobsIds():
            break
        pause.wait(0.1)
    assert not tracker.getActiveJobsIds()


def test_views_of_a_transform_are_those_of_its_epoch(
    spark: SparkSession, tmp_path: Path, taken: list[bool]
) -> None:
    def by_view(frame: Any) -> Any:
        frame.createOrReplaceTempView("of_this_epoch")
        return frame.sparkSession.sql("SELECT * FROM of_this_epoch")

    out = rl.sinks.memory()
    flow = rl.Flow("views", key_groups=8)
    columns = {"k": "id % 7", "n": "id"}
    stream = flow.read(rl.sources.generator(columns, rows=8_000)).transform(by_view)
    stream.key_by("k").process(Running(), uid="running").write(out, uid="out")
    stream.write(rl.sinks.memory(), uid="copy")  # a stage that is not read ahead
    flow.run(str(tmp_path), spark=spark, available_now=True, **BY_THOUSANDS)

    assert len(out.rows()) == 8_000
    assert last_totals(out.rows()) == expected(8_000)


def test_a_task_that_was_told_another_epoch_does_not_count(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    told: list[Any] = []
    begun = StageTasks.begun

    def stale_once(self: StageTasks, *args: Any) -> Any:
        told.append(begun(self, *args))
        return told[-2] if len(told) == 4 else told[-1]

    monkeypatch.setattr(StageTasks, "begun", stale_once)
    out = rl.sinks.memory()
    flow_of(out, Running(), 6_000).run(
        str(tmp_path), spark=spark, available_now=True, **BY_THOUSANDS
    )

    assert "another epoch's parameters" in caplog.text
    assert len(out.rows()) == 6_000
    assert last_totals(out.rows()) == expected(6_000)


def test_an_exchange_is_submitted_before_its_frame_is_given_away(
    spark: SparkSession,
) -> None:
    """Else the job that collects it may come first, and end Spark's scheduler."""
    for number in range(20):
        frame = spark.range(number, 100).repartition(2, "id")
        made = _shuffled(frame)
        plan = frame._jdf.queryExecution().executedPlan()
        submitted = _last_exchange(plan).futureAction().get().isDefined()
        assert submitted or made.exchange.isCompleted()
        assert len(made.frame.collect()) == 100 - number
