"""Sinks: whole epochs, once, whatever is repeated."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import riverlock as rl
from riverlock.core.errors import InvalidConfigError, SinkError
from riverlock.snapshot.sealed import checksum

pytestmark = pytest.mark.spark

COLUMNS = {
    "country": "if(id % 5 = 0, null, array('de', 'a/b', 'é')[cast(id % 3 as int)])",
    "n": "id",
    "at": "timestamp_seconds(id)",
    "price": "cast(id as decimal(10,2)) / 4",
}


def copy(sink: Any, **columns: str) -> rl.Flow:
    flow = rl.Flow("copy")
    source = rl.sources.generator({**COLUMNS, **columns}, rows=100)
    flow.read(source).write(sink, uid="out")
    return flow


def run(flow: rl.Flow, store: Path, spark: SparkSession, **options: Any) -> Any:
    options = {"available_now": True, "max_rows_per_epoch": 40, **options}
    return flow.run(str(store), spark=spark, **options)


@pytest.mark.parametrize("kind", ["json", "csv", "parquet"])
@pytest.mark.parametrize("by", [(), ("country",)])
def test_files_hold_whole_epochs_that_spark_reads(
    spark: SparkSession, tmp_path: Path, kind: str, by: tuple[str, ...]
) -> None:
    out = tmp_path / "out"

    run(
        copy(rl.sinks.files(str(out), format=kind, partition_by=by)),
        tmp_path / "s",
        spark,
    )

    options = {"header": True} if kind == "csv" else {}
    schema = "country string, n bigint, at timestamp, price decimal(20,6), epoch int"
    frame = spark.read.format(kind).options(**options).schema(schema).load(str(out))
    rows = {r.n: r for r in frame.collect()}
    assert sorted(rows) == list(range(100))
    assert {r.epoch for r in rows.values()} == {0, 1, 2}
    for n, row in rows.items():
        expected = None if n % 5 == 0 else ["de", "a/b", "é"][n % 3]
        assert row.country == expected or (kind == "csv" and not expected)
        assert row.price == n / 4
        assert row["at"].astimezone(UTC) == datetime.fromtimestamp(n, UTC)


def test_the_manifest_of_each_epoch_lists_its_files(
    spark: SparkSession, tmp_path: Path
) -> None:
    out = tmp_path / "out"

    run(copy(rl.sinks.files(str(out), format="json")), tmp_path / "store", spark)

    listed = []
    for path in sorted((out / "_riverlock").glob("0*.json")):
        record = json.loads(path.read_text())
        for file in record["files"]:
            data = (out / file["path"]).read_bytes()
            assert len(data) == file["bytes"]
            assert checksum(data) == file["checksum"]
            assert data.count(b"\n") == file["rows"]
            listed.append(out / file["path"])
    assert sorted(listed) == sorted(out.glob("epoch=*/*.json"))
    staged = out / "_riverlock" / "staged"
    assert [p for p in staged.rglob("*") if p.is_file()] == []


def test_a_directory_of_another_store_is_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    sink = rl.sinks.files(str(tmp_path / "out"), format="json")
    run(copy(sink), tmp_path / "one", spark)

    with pytest.raises(InvalidConfigError, match="output directory"):
        run(copy(sink), tmp_path / "two", spark)


def test_memory_and_console(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    memory = rl.sinks.memory()
    flow = copy(memory)
    flow2 = rl.Flow("console")
    flow2.read(rl.sources.generator({"n": "id"}, rows=30)).write(rl.sinks.console(3))

    run(flow, tmp_path / "one", spark)
    run(flow2, tmp_path / "two", spark, max_rows_per_epoch=1000)

    assert len(memory.rows()) == 100
    printed = capsys.readouterr().out
    assert "epoch 0: 30 rows" in printed
    assert "n=0" in printed
    assert "27 more" in printed


def test_for_each_epoch_gets_the_same_rows_on_every_retry(
    spark: SparkSession, tmp_path: Path
) -> None:
    calls: list[tuple[int, Counter[Any]]] = []

    def write(frame: Any, epoch: int) -> None:
        calls.append((epoch, Counter(r.n for r in frame.collect())))
        if len(calls) in (1, 3):
            message = "database is down"
            raise RuntimeError(message)

    run(copy(rl.sinks.for_each_epoch(write)), tmp_path / "store", spark)

    seen: dict[int, Counter[Any]] = {}
    for epoch, rows in calls:
        assert seen.setdefault(epoch, rows) == rows
    assert [e for e, _ in calls] == [0, 0, 1, 1, 2]
    assert sum(seen.values(), Counter()) == Counter(range(100))


def test_a_sink_that_never_works_stops_the_flow_and_is_caught_up_later(
    spark: SparkSession, tmp_path: Path
) -> None:
    from riverlock.coordinator.restart import FixedDelay

    got: list[int] = []
    is_down = True

    def write(frame: Any, epoch: int) -> None:
        if is_down:
            message = "database is down"
            raise RuntimeError(message)
        got.extend(r.n for r in frame.collect())

    def build() -> rl.Flow:
        return copy(rl.sinks.for_each_epoch(write))

    with pytest.raises(
        SinkError, match=r"database is down .*test_sinks.py:\d+ in write"
    ):
        run(
            build(),
            tmp_path / "store",
            spark,
            restart=FixedDelay(delay_us=1000, attempts=2),
        )
    assert got == []
    is_down = False
    run(build(), tmp_path / "store", spark)

    assert sorted(got) == list(range(100))
