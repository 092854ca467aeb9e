"""Windows of all kinds in one flow, against plain Python over all records."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import riverlock as rl
from riverlock.snapshot.catalog import Catalog
from riverlock.snapshot.verify import verify
from riverlock.storage.open import open_storage

pytestmark = pytest.mark.spark

COLUMNS = {
    "k": "cast(pmod(xxhash64(id), 3) as int)",
    "v": "pmod(xxhash64(id, 2), 100)",
    "at": "timestamp_seconds(1767225600 + 3 * id + 40 * (id div 50)"
    " - pmod(xxhash64(id, 4), 10))",
}
ROWS = 240
GAP = 15


def listed(key: Any, window: Any, records: list[Any]) -> list[Any]:
    return [(key, len(records), sum(r.v for r in records))]


def added(old: Any, new: Any) -> Any:
    return {"k": old.k, "v": old.v + new.v, "at": old.at}


def test_windows_of_all_kinds(spark: SparkSession, tmp_path: Path) -> None:
    sinks = {
        name: rl.sinks.memory()
        for name in ("all_sessions", "all_applied", "applied", "reduced")
    }
    flow = rl.Flow("kinds")
    source = rl.sources.generator(COLUMNS, rows=ROWS, bounded=True)
    stream = flow.read(source, uid="in").event_time("at", delay="10 seconds")
    keyed, rows = stream.key_by("k"), "k int, n bigint, total bigint"
    sessions = rl.sessions(f"{GAP} seconds")
    stream.window(sessions).count(uid="all_sessions").write(sinks["all_sessions"])
    everything = stream.window(rl.tumbling("1 minute"))
    everything.apply(listed, rows, uid="all_applied").write(sinks["all_applied"])
    keyed.window(sessions).apply(listed, rows, uid="applied").write(sinks["applied"])
    keyed.window(sessions).reduce(added, uid="reduced").write(sinks["reduced"])

    flow.run(
        str(tmp_path / "store"), spark=spark, available_now=True, max_rows_per_epoch=70
    )

    catalog = Catalog(open_storage(str(tmp_path / "store")))
    assert all(report.is_whole for report in verify(catalog))
    batch = spark.range(ROWS).selectExpr(*(f"{v} as {n}" for n, v in COLUMNS.items()))
    records = [(r.k, r.v, r["at"].timestamp()) for r in batch.collect()]
    found = {name: Counter(sink.rows()) for name, sink in sinks.items()}
    by_key = Counter(
        (k, len(s), sum(v for _, v, _ in s))
        for k in range(3)
        for s in _sessions([r for r in records if r[0] == k])
    )
    assert found["applied"] == by_key
    assert Counter((r[0], r[1]) for r in sinks["reduced"].rows()) == Counter(
        (k, total) for k, _, total in by_key.elements()
    )
    assert Counter(r[-1] for r in sinks["all_sessions"].rows()) == Counter(
        len(s) for s in _sessions(records)
    )
    minutes: dict[int, list[Any]] = {}
    for record in records:
        minutes.setdefault(int(record[2] // 60), []).append(record)
    assert found["all_applied"] == Counter(
        (None, len(m), sum(v for _, v, _ in m)) for m in minutes.values()
    )


def _sessions(records: list[Any]) -> list[list[Any]]:
    found: list[list[Any]] = []
    for record in sorted(records, key=lambda r: r[2]):
        if not found or record[2] > found[-1][-1][2] + GAP:
            found.append([])
        found[-1].append(record)
    return found
