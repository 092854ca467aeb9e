"""Numbers of a status are those of the input, also if Spark combines rows first."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import riverlock as rl
from riverlock.snapshot.format.run_status import Status

pytestmark = pytest.mark.spark

ROWS = 4189


def _write(folder: Path, kind: str) -> str | None:
    """Write rows of few keys; returns the columns."""
    folder.mkdir()
    names = [f"u{n % 7}" for n in range(ROWS)]
    match kind:
        case "json":
            lines = [f'{{"user": "{name}"}}' for name in names]
        case "csv" | "text":
            lines = names
        case _:
            pq.write_table(pa.table({"user": names}), folder / "a.parquet")
            return "user string"
    (folder / "a").write_text("\n".join(lines) + "\n")
    return None if kind == "text" else "user string"


@pytest.mark.parametrize("bad_rows", ["report", "fail"])
@pytest.mark.parametrize("kind", ["json", "csv", "text", "parquet"])
def test_records_are_counted_before_they_are_combined(
    spark: SparkSession, tmp_path: Path, kind: str, bad_rows: str
) -> None:
    columns = _write(tmp_path / "in", kind)
    flow = rl.Flow("counted")
    source = rl.sources.files(
        str(tmp_path / "in"), format=kind, schema=columns, bad_rows=bad_rows
    )
    key = "value" if kind == "text" else "user"
    rows = flow.read(source, uid="names").where(f"{key} <> 'u0'")
    rows.key_by(key).agg(n="count(*)", uid="n").write(rl.sinks.memory(), uid="out")
    seen: list[Status] = []

    flow.run(
        str(tmp_path / "store"),
        spark=spark,
        available_now=True,
        on_status=seen.append,
    )

    assert sum({s.epoch: s.rows for s in seen}.values()) == ROWS
