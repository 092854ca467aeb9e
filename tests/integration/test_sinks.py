"""Sinks: whole epochs, once, whatever is repeated."""

from __future__ import annotations

import json
import math
from collections import Counter
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import riverlock as rl
from riverlock.connectors.base.committer import Owner
from riverlock.connectors.base.sink import SinkUse
from riverlock.connectors.base.stager import StagePoint
from riverlock.core.errors import InvalidConfigError, SinkError
from riverlock.core.types import schema_of
from riverlock.snapshot.format.records import SinkOutput
from riverlock.snapshot.format.sealed import checksum
from riverlock.storage.local import LocalStorage

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


def copy_here(sink: Any) -> rl.Flow:
    """Return the same flow without Spark's expressions."""

    def columns(row: Any) -> tuple[Any, ...]:
        country = None if row.n % 5 == 0 else ["de", "a/b", "é"][row.n % 3]
        return country, row.n, datetime.fromtimestamp(row.n, UTC), Decimal(row.n) / 4

    flow = rl.Flow("copy")
    numbers = flow.read(rl.sources.generator({"n": "id"}, rows=100))
    kinds = "country string, n bigint, at timestamp, price decimal(16,6)"
    numbers.map(columns, kinds).write(sink, uid="out")
    return flow


def run_here(flow: rl.Flow, store: Path, **options: Any) -> Any:
    options = {"available_now": True, "max_rows_per_epoch": 40, **options}
    return flow.run(str(store), execution="local", **options)


def run(flow: rl.Flow, store: Path, spark: SparkSession, **options: Any) -> Any:
    options = {"available_now": True, "max_rows_per_epoch": 40, **options}
    return flow.run(str(store), spark=spark, **options)


@pytest.mark.spark
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


@pytest.mark.spark
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


def test_a_directory_of_another_store_is_refused(tmp_path: Path) -> None:
    sink = rl.sinks.files(str(tmp_path / "out"), format="json")
    run_here(copy_here(sink), tmp_path / "one")

    with pytest.raises(InvalidConfigError, match="output directory"):
        run_here(copy_here(sink), tmp_path / "two")


def test_memory_and_console(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    memory = rl.sinks.memory()
    flow = copy_here(memory)
    flow2 = rl.Flow("console")
    flow2.read(rl.sources.generator({"n": "id"}, rows=30)).write(rl.sinks.console(3))

    run_here(flow, tmp_path / "one")
    run_here(flow2, tmp_path / "two", max_rows_per_epoch=1000)

    assert len(memory.rows()) == 100
    printed = capsys.readouterr().out
    assert "epoch 0: 30 rows" in printed
    assert "n=0" in printed
    assert "27 more" in printed


@pytest.mark.spark
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


@pytest.mark.spark
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


ODD_NUMBERS = [math.nan, math.inf, -math.inf, -0.0, 5e-324, 1.7976931348623157e308, 0.1]


@pytest.mark.spark
def test_spark_reads_back_what_json_files_have(
    spark: SparkSession, tmp_path: Path
) -> None:
    columns = (
        "n int, x double, f float, ok boolean, big bigint, money decimal(38,18),"
        " text string, raw binary, day date, at timestamp, wall timestamp_ntz,"
        " xs array<double>, m map<string,double>, s struct<x: double, t: timestamp>"
    )
    schema = schema_of(columns)
    at = datetime(2026, 3, 29, 1, 30, 0, 123456, tzinfo=UTC)
    rows: list[dict[str, Any]] = [
        {
            "n": n,
            "x": x,
            "f": 0.5 if math.isfinite(x) else x,
            "ok": n % 2 == 0,
            "big": -(2**63) + n,
            "money": Decimal("-12345678901234567890.123456789012345678"),
            "text": "é,\"'\\\\\n\t💧\u2028 ",
            "raw": bytes(range(256)),
            "day": date(1582, 10, 15),
            "at": at,
            "wall": at.replace(tzinfo=None),
            "xs": [x, None, 1.5],
            "m": {"": x, "k": None},
            "s": {"x": x, "t": at},
        }
        for n, x in enumerate(ODD_NUMBERS)
    ]
    rows.append(dict.fromkeys(schema.names) | {"n": len(rows)})
    given = [{**r, "m": r["m"] and list(r["m"].items())} for r in rows]
    table = pa.Table.from_pylist(given, schema=schema.to_arrow())
    sink, store = rl.sinks.files(str(tmp_path / "out"), format="json"), tmp_path / "s"
    use, storage = (
        SinkUse(uid="out", schema=schema, replaces=False),
        LocalStorage(store),
    )
    point = StagePoint(storage=storage, folder="x", epoch=0, attempt="a", flow="f")
    tokens = tuple(sink.stager(use).stage(table, point))
    committer = sink.committer(use, storage)
    committer.open(Owner(flow="f", sink="out", run=1))
    committer.commit(0, SinkOutput(kind="files", tokens=tokens, rows=len(rows)))

    read = spark.read.schema(columns).json(str(tmp_path / "out/epoch=*/*.json"))
    written = spark.createDataFrame(table)

    found = [repr(row) for row in read.orderBy("n").collect()]
    assert found == [repr(row) for row in written.orderBy("n").collect()]
    assert len(found) == len(rows)
