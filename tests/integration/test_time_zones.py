"""Results do not depend on the time zone of a session, nor on its summer time."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, date, datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import riverlock as rl

# Clocks of New York never show 2:30 on one of these days, and 1:30 twice on the other.
LOCAL = ["2024-03-10 02:30:00", "2024-11-03 01:30:00", "2024-11-03 23:59:59"]
ROWS = [{"k": day[:10], "ntz": day, "at": day, "day": day[:10]} for day in LOCAL]
SCHEMA = "k string, ntz timestamp_ntz, at timestamp, day date"

Rows = dict[str, list[tuple[object, ...]]]


def _results(spark: SparkSession, folder: Path) -> Rows:
    flow = rl.Flow("zones")
    path = str(folder / "in")
    source = rl.sources.files(path, format="json", schema=SCHEMA, bounded=True)
    rows = flow.read(source)
    sinks = {name: rl.sinks.memory() for name in ("plain", "days", "keys", "sql")}
    rows.with_column("same", "ntz = at AND at = timestamp '2024-03-10 02:30:00'").write(
        sinks["plain"], uid="plain"
    )
    days = rows.event_time("ntz").window(rl.tumbling("1 day"))
    days.agg(n="count(*)", uid="days").write(sinks["days"], uid="days-out")
    keyed = rows.key_by("ntz", "at", "day")
    keyed.agg(n="count(*)", uid="keys").write(sinks["keys"], uid="keys-out")
    query = "SELECT k FROM rows WHERE at >= timestamp '2024-11-03 01:30:00'"
    flow.sql(query, rows=rows).write(sinks["sql"], uid="sql-out")
    rows.write(rl.sinks.files(str(folder / "out"), format="json"), uid="files")

    flow.run(str(folder / "store"), spark=spark, available_now=True, parallelism=1)

    found = {name: sorted(sink.rows()) for name, sink in sinks.items()}
    lines = [p.read_text() for p in (folder / "out").glob("epoch=*/*.json")]
    found["files"] = sorted(
        tuple(json.loads(x).values()) for x in "".join(lines).split()
    )
    return found


@pytest.fixture
def in_new_york(spark: SparkSession) -> Iterator[SparkSession]:
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    yield spark
    spark.conf.set("spark.sql.session.timeZone", "UTC")


def test_results_do_not_depend_on_the_zone_of_the_session(
    in_new_york: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.json").write_text("\n".join(map(json.dumps, ROWS)))

    found = _results(in_new_york, tmp_path)

    times = [datetime.fromisoformat(day) for day in LOCAL]
    instants = [time.replace(tzinfo=UTC) for time in times]
    days = [date.fromisoformat(day[:10]) for day in LOCAL]
    assert found["plain"] == sorted(
        (t.date().isoformat(), t, i, d, number == 0)
        for number, (t, i, d) in enumerate(zip(times, instants, days, strict=True))
    )
    starts = [datetime(2024, 3, 10, tzinfo=UTC), datetime(2024, 11, 3, tzinfo=UTC)]
    counts = {
        start: sum(i.date() == start.date() for i in instants) for start in starts
    }
    assert {row[0]: row[2] for row in found["days"]} == counts
    assert found["keys"] == sorted(
        (t, i, d, 1) for t, i, d in zip(times, instants, days, strict=True)
    )
    assert found["sql"] == [("2024-11-03",), ("2024-11-03",)]
    assert [row[2] for row in found["files"]] == sorted(
        f"{i:%Y-%m-%dT%H:%M:%S}Z" for i in instants
    )
    assert in_new_york.conf.get("spark.sql.session.timeZone") == "America/New_York"
