"""Windows of all kinds in one flow, against plain Python over all records."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import riverlock as rl
from riverlock.core.errors import InvalidFlowError
from riverlock.core.hidden_columns import GAP
from riverlock.engines.jobs.frames.session_gaps import with_gap
from riverlock.flow.inside import program_of
from riverlock.snapshot.catalog import Catalog
from riverlock.snapshot.verbs.verify import verify
from riverlock.storage.open import open_storage

pytestmark = pytest.mark.spark

COLUMNS = {
    "k": "cast(pmod(xxhash64(id), 3) as int)",
    "v": "pmod(xxhash64(id, 2), 100)",
    "at": "timestamp_seconds(1767225600 + 3 * id + 40 * (id div 50)"
    " - pmod(xxhash64(id, 4), 10))",
}
ROWS = 240
SILENCE = 15
GAPS = (
    "CASE WHEN k = 0 THEN {i} 30 SECONDS{e} WHEN v < 5 THEN NULL ELSE {i} 8 SECONDS{e}"
    " END"
)


def listed(key: Any, window: Any, records: list[Any]) -> list[Any]:
    if key == 1:
        message = f"{len(records)} records of one"
        raise ValueError(message)
    return [(key, len(records), sum(r.v for r in records))]


def test_windows_of_all_kinds(spark: SparkSession, tmp_path: Path) -> None:
    sinks: dict[str, Any] = {}

    def keep(name: str, stream: rl.Stream, mode: str | None = None) -> None:
        sinks[name] = rl.sinks.memory()
        stream.write(sinks[name], mode=mode)

    dead = rl.sinks.memory()
    flow = rl.Flow("kinds", on_error=dead)
    source = rl.sources.generator(COLUMNS, rows=ROWS, bounded=True)
    raw = flow.read(source, uid="in")
    stream = raw.event_time("at", delay="10 seconds")
    keyed, rows = stream.key_by("k"), "k int, n bigint, total bigint"
    silence, minute = rl.sessions(f"{SILENCE} seconds"), rl.tumbling("1 minute")
    sums = {"n": "count(*)", "total": "sum(v)"}
    by_record = rl.sessions(gap_expr=GAPS.format(i="INTERVAL", e=""))
    early = rl.early(count=5)
    keep("applied", keyed.window(silence).apply(listed, rows, uid="applied"))
    closely = keyed.window(by_record).agg(sums, uid="by_record")
    keep("by_record", closely)
    keep("gapless", closely.late)
    keep("counted", keyed.window(rl.count_windows(7, 3)).agg(sums, uid="counted"))
    keep("whole", raw.window(rl.global_window()).agg(sums, uid="whole"))
    triggered = keyed.window(minute, trigger=early, accumulate=False)
    keep("triggered", triggered.agg(sums, uid="triggered"))
    keep("totals", keyed.agg(sums, uid="totals"), mode="complete")
    minutes = stream.window(minute).agg(sums, uid="minutes")
    keep("minutes", minutes, mode="complete")

    flow.run(
        str(tmp_path / "store"), spark=spark, available_now=True, max_rows_per_epoch=130
    )

    catalog = Catalog(open_storage(str(tmp_path / "store")))
    assert all(report.is_whole for report in verify(catalog))
    newest = catalog.newest()
    assert newest is not None
    kept = {uid: o.entries for uid, o in newest.operators.items() if o.entries}
    assert [n for uid, n in kept.items() if "table" not in uid] == [3]  # totals
    batch = spark.range(ROWS).selectExpr(*(f"{v} as {n}" for n, v in COLUMNS.items()))
    records = [(r.k, r.v, r["at"].timestamp()) for r in batch.collect()]
    found = {name: Counter(sink.rows()) for name, sink in sinks.items()}
    mine = {k: [r for r in records if r[0] == k] for k in range(3)}

    sessions = [(k, _summed(s)) for k in mine for s in _sessions(mine[k])]
    assert found["applied"] == Counter((k, *s) for k, s in sessions if k != 1)
    # What the function raises is a dead letter, window by window.
    assert Counter(row[3] for row in dead.rows()) == Counter(
        f"ValueError: {n} records of one" for k, (n, _) in sessions if k == 1
    )
    window = F.session_window("at", F.expr(GAPS.format(i="'", e="'")))
    grouped = batch.groupBy("k", window).agg(F.count("*"), F.sum("v"))
    assert Counter((r[0], *r[-2:]) for r in sinks["by_record"].rows()) == Counter(
        (r[0], *r[-2:]) for r in grouped.collect()
    )
    # A record without a gap is in no session, and not lost.
    assert Counter(r[:2] for r in sinks["gapless"].rows()) == Counter(
        (k, v) for k, v, _ in records if k and v < 5
    )
    assert found["counted"] == Counter(
        (k, first, last, *_summed(mine[k][first - 1 : last]))
        for k in mine
        for first, last in _numbers(len(mine[k]), size=7, slide=3)
    )
    assert found["whole"] == Counter([_summed(records)])
    expected = Counter(
        (k, "early" if len(part) == 5 else "on time", *_summed(part))
        for k in mine
        for minute_of in _minutes(mine[k]).values()
        for part in _parts(minute_of, 5)
    )
    assert expected == Counter((r[0], *r[3:]) for r in sinks["triggered"].rows())

    # The whole table, once: the newest epoch takes the place of the others.
    assert found["totals"] == Counter((k, *_summed(mine[k])) for k in mine)
    assert Counter(r[2:] for r in sinks["minutes"].rows()) == Counter(
        _summed(m) for m in _minutes(records).values()
    )


def test_windows_that_are_given_early_do_not_move_time(
    spark: SparkSession, tmp_path: Path
) -> None:
    # One event time only: rows of later operators do not say whose they are.
    flow = rl.Flow("early")
    columns = {"k": "id % 2", "at": "timestamp_seconds(60 * id)"}
    source = rl.sources.generator(columns, rows=60, bounded=True)
    stream = flow.read(source, uid="in").event_time("at")
    windows = stream.window(rl.sliding("1 hour", "10 minutes")).agg(n="count(*)")
    final, whole, again = (rl.sinks.memory() for _ in range(3))
    windows.write(final)
    windows.write(whole, mode="complete")
    hours = stream.window(rl.tumbling("1 hour"), trigger=rl.early(count=20))
    firings = hours.agg(seen="count(*)")
    firings.key_by("firing").agg(seen="max(seen)", n="count(*)").write(again)

    flow.run(
        str(tmp_path / "store"), spark=spark, available_now=True, max_rows_per_epoch=7
    )

    in_each = Counter(
        end
        for minute in range(60)
        for end in range(10 * (minute // 10 + 1), 10 * (minute // 10) + 61, 10)
    )
    for sink in (final, whole):
        found = {int(row[1].timestamp()) // 60: row[2] for row in sink.rows()}
        assert found == in_each
    assert sorted(again.rows())[-2:] == [("early", 60, 3), ("on time", 60, 1)]


def _sessions(records: list[Any]) -> list[list[Any]]:
    found: list[list[Any]] = []
    for record in sorted(records, key=lambda r: r[2]):
        if not found or record[2] > found[-1][-1][2] + SILENCE:
            found.append([])
        found[-1].append(record)
    return found


def _minutes(records: list[Any]) -> dict[int, list[Any]]:
    found: dict[int, list[Any]] = {}
    for record in records:
        found.setdefault(int(record[2] // 60), []).append(record)
    return found


def _numbers(length: int, *, size: int, slide: int) -> list[tuple[int, int]]:
    return [
        (max(end - size + 1, 1), min(end, length))
        for end in range(slide, length + slide, slide)
    ]


def _parts(records: list[Any], size: int) -> list[list[Any]]:
    return [records[n : n + size] for n in range(0, len(records), size)]


def _summed(records: list[Any]) -> tuple[int, int]:
    return len(records), sum(v for _, v, _ in records)


def test_gaps_are_intervals_texts_or_seconds(spark: SparkSession) -> None:
    frame = spark.range(3).selectExpr("id", "timestamp_seconds(id) as at")
    texts = {
        "if(id = 0, null, INTERVAL '90' SECOND)": [None, 90_000_000, 90_000_000],
        "concat(id, ' minutes')": [0, 60_000_000, 120_000_000],
        "if(id = 0, 'odd', '1 hour 1 second')": [None, 3_601_000_000, 3_601_000_000],
        "id * 0.5": [0, 500_000, 1_000_000],
    }
    for text, expected in texts.items():
        gaps = with_gap(frame, _sessions_by(text)).orderBy("id").select(GAP)
        assert [row[0] for row in gaps.collect()] == expected
    for wrong in ("id = 1", "missing + 1", "id +"):
        with pytest.raises(InvalidFlowError, match="gap_expr of operator 'gaps'"):
            with_gap(frame, _sessions_by(wrong))


def _sessions_by(text: str) -> Any:
    flow = rl.Flow("gaps")
    source = rl.sources.generator({"at": "timestamp_seconds(id)"}, rows=1)
    stream = flow.read(source).event_time("at")
    stream.window(rl.sessions(gap_expr=text)).count(uid="gaps")
    return program_of(flow).keyed[-1]
