"""Event time on Spark: partitions, markers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import riverlock as rl
from riverlock.snapshot.catalog import Catalog
from riverlock.storage.local import LocalStorage


def test_partitions_and_markers_move_watermarks(
    spark: SparkSession, tmp_path: Path
) -> None:
    flow = rl.Flow("times")
    columns = {
        "shard": "id % 2",
        # Two devices whose clocks are far apart.
        "at": "timestamp_seconds(id + IF(id % 2 = 0, 10000, 5000))",
        "is_mark": "id % 10 = 9",
    }
    rows = flow.read(rl.sources.generator(columns, rows=40))
    mark = "CASE WHEN is_mark THEN at END"
    sinks: dict[str, Any] = {}
    for name, declaration in {
        "plain": {},
        "per": {"per": "shard"},
        "marked": {"watermark": mark},
    }.items():
        timed = rows.event_time("at", uid=f"time-{name}", **declaration)
        counts = timed.window(rl.tumbling("10 seconds")).agg(n="count(*)", uid=name)
        sinks[name] = rl.sinks.memory()
        counts.write(sinks[name], uid=f"{name}-out")

    store = str(tmp_path / "store")
    flow.run(
        store,
        spark=spark,
        available_now=True,
        max_rows_per_epoch=20,
        epoch_target=None,
        parallelism=2,
    )

    def windows(name: str) -> list[tuple[int, int]]:
        return sorted((int(r[0].timestamp()), r[2]) for r in sinks[name].rows())

    # At 5039 a row of the slow device has come, and may come again.
    over = [(5000, 5), (5010, 5), (5020, 5)]
    assert windows("per") == windows("marked") == over
    catalog = Catalog(LocalStorage(Path(store)))
    # By itself the fast device makes all later rows of the other one late.
    stages = catalog.manifest(1).metrics["stages"]
    late = {name: stages[name].get("late_rows", 0) for name in sinks}
    assert late == {"plain": 10, "per": 0, "marked": 0}
    newest = catalog.manifest(1)
    parts = newest.watermarks["time-per"].partitions
    assert {n: (p.max_time_us or 0) // 1_000_000 for n, p in parts.items()} == {
        "0": 10_038,
        "1": 5_039,
    }
    assert newest.watermarks["time-marked"].watermark_us == 5_039_000_000 - 1


def test_a_time_that_is_declared_behind_an_operator_counts(
    spark: SparkSession, tmp_path: Path
) -> None:
    flow = rl.Flow("behind")
    columns = {"k": "id", "at": "timestamp_seconds(60 * id)"}
    rows = flow.read(rl.sources.generator(columns, rows=30), uid="in")
    once = rows.key_by("k").agg(at="max(at)")
    both = once.union(rows).event_time("at")
    found = rl.sinks.memory()
    both.window(rl.tumbling("10 minutes")).agg(n="count(*)").write(found)

    flow.run(
        str(tmp_path / "store"), spark=spark, available_now=True, max_rows_per_epoch=7
    )

    # The source may go on: the last window is not over.
    assert [row[2] for row in found.rows()] == [20, 20]


def test_rows_that_operators_give_ahead_of_time_move_no_watermark(
    spark: SparkSession, tmp_path: Path
) -> None:
    flow = rl.Flow("ahead")
    columns = {"k": "id % 2", "at": "timestamp_seconds(id * 60)"}
    source = rl.sources.generator(columns, rows=150, bounded=True)
    keyed = flow.read(source).event_time("at", delay="1 minute").key_by("k")
    hour, table, sums = rl.tumbling("1 hour"), rl.sinks.memory(), rl.sinks.memory()
    # Both give rows of hours that have not ended, whose time is the end of the hour.
    keyed.window(hour).agg(n="count(*)", uid="hours").write(table, mode="complete")
    early = keyed.window(hour, trigger=rl.early(count=10), accumulate=False)
    given = early.agg(n="count(*)", uid="early").key_by("k")
    given.agg(n="sum(n)", uid="sums").write(sums)

    flow.run(
        str(tmp_path / "store"),
        spark=spark,
        available_now=True,
        max_rows_per_epoch=40,
        epoch_target=None,
    )

    catalog = Catalog(LocalStorage(tmp_path / "store"))
    manifests = [catalog.manifest(epoch) for epoch in catalog.epochs()]
    marks = [m.watermarks["event_time-1"].watermark_us for m in manifests]
    # A minute before the newest of 40, 80 and 120 records, while there are more.
    assert marks[:3] == [(60 * n - 120) * 1_000_000 - 1 for n in (40, 80, 120)]
    stages = [s for m in manifests for s in m.metrics["stages"].values()]
    assert [s for s in stages if s.get("late_rows")] == []
    assert sorted(row[-1] for row in table.rows()) == [15, 15, 30, 30, 30, 30]
    assert dict(sums.rows()) == {0: 75, 1: 75}
