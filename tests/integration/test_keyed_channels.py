"""On Spark, a keyed reader of a channel reads its key groups: nothing is exchanged."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import riverlock as rl
from riverlock.engines.jobs.deployment import JobsDeployment
from riverlock.program import regions

pytestmark = pytest.mark.spark

ROWS = 9_000


class Passed(rl.Process):
    output = "other bigint, n bigint"
    seen = rl.Value("bigint", default=0)

    def on_event(self, e: Any, ctx: Any) -> Any:
        self.seen += 1
        yield e.other, e.n


class Listed(rl.Process):
    output = "other bigint, n bigint, place bigint"
    seen = rl.Value("bigint", default=0)

    def on_event(self, e: Any, ctx: Any) -> Any:
        self.seen += 1
        yield e.other, e.n, self.seen


def flow_of(sink: Any) -> rl.Flow:
    flow = rl.Flow("keyed", key_groups=16)
    columns = {"k": "id % 7", "other": "id % 11", "n": "id"}
    read = flow.read(rl.sources.generator(columns, rows=ROWS), uid="in")
    passed = read.key_by("k").process(Passed(), uid="passed")
    entered = passed.region("second", uid="x", parallelism=3)
    small = entered.where("n < 1000000")
    small.key_by("other").process(Listed(), uid="listed").write(sink, uid="out")
    sums = entered.key_by("other").agg(n="count(*)", most="max(n)", uid="sums")
    sums.write(rl.sinks.memory(), uid="sums-out")
    return flow


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str]]:
    """The physical plans of stages, by operator."""
    found: dict[str, list[str]] = {}
    frame_of = JobsDeployment._frame

    def watched(self: JobsDeployment, stage: Any, *args: Any) -> Any:
        frame = frame_of(self, stage, *args)
        if frame is not None:
            java: Any = frame._jdf
            plan = java.queryExecution().executedPlan().toString()
            found.setdefault(stage.id, []).append(plan)
        return frame

    monkeypatch.setattr(JobsDeployment, "_frame", watched)
    return found


def test_a_keyed_reader_needs_no_exchange(
    spark: SparkSession,
    tmp_path: Path,
    plans: dict[str, list[str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def live(store: str) -> dict[int, list[tuple[int, int]]]:
        sink = rl.sinks.memory()
        flow_of(sink).run(
            store,
            spark=spark,
            available_now=True,
            parallelism=2,
            max_rows_per_epoch=5_000,
        )
        found = rl.open(store).state("sums").to_arrow().to_pylist()
        counts = Counter(n % 11 for n in range(ROWS))
        assert {row["other"]: row["n"] for row in found} == counts
        mine: dict[int, list[tuple[int, int]]] = {}
        for other, n, place in sink.rows():
            mine.setdefault(other, []).append((place, n))
        return mine

    found = live(str(tmp_path / "by-key"))
    assert any("Exchange" in plan for plan in plans["passed"])
    for uid in ("listed", "sums"):
        assert plans[uid], uid
        assert not any("Exchange" in plan for plan in plans[uid]), plans[uid]
    plans.clear()
    monkeypatch.setattr(regions, "channel_keys", lambda _: {})
    # The same rows in the same order as where they are exchanged.
    assert live(str(tmp_path / "exchanged")) == found
    assert any("Exchange" in plan for plan in plans["listed"])
