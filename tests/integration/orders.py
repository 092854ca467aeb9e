"""Rows that many tests of this folder read, and how they run a flow over them."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import riverlock as rl
from riverlock.snapshot.catalog import Catalog
from riverlock.snapshot.state_reader import operator_of, read_entries, read_variable
from riverlock.snapshot.verbs.verify import verify
from riverlock.storage.open import open_storage

T0 = datetime(2026, 1, 1, tzinfo=UTC)
Row = tuple[Any, ...]


def write_rows(spark: SparkSession, path: Path, rows: list[Row], schema: str) -> str:
    """Write rows as several Parquet files, in order; returns the directory."""
    path.mkdir(parents=True, exist_ok=True)
    size = max(1, len(rows) // 3)
    for number, begin in enumerate(range(0, len(rows), size)):
        table = spark.createDataFrame(rows[begin : begin + size], schema).toArrow()
        import pyarrow.parquet as pq

        pq.write_table(table, path / f"{number:05d}.parquet")
    return str(path)


def source(path: str, schema: str) -> Any:
    return rl.sources.files(path, format="parquet", schema=schema)


def run(flow: rl.Flow, store: Path, spark: SparkSession, **options: Any) -> None:
    options = {"available_now": True, "max_rows_per_epoch": 150, **options}
    flow.run(str(store), spark=spark, **options)
    assert all(report.is_whole for report in verify(Catalog(open_storage(str(store)))))


def state(store: Path, uid: str, name: str) -> list[Row]:
    catalog = Catalog(open_storage(str(store)))
    manifest = catalog.resolve(None)
    found = operator_of(manifest, uid, store="")
    entries = read_entries(catalog.storage, found, now_us=manifest.now_us)
    if entries is None:
        return []
    table = read_variable(entries, found, name)
    return [tuple(r.values()) for r in table.to_pylist()]


ORDERS = "user string, n bigint, amount double, at timestamp"
