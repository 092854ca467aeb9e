"""The examples, against plain Python."""

from __future__ import annotations

import json
from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from examples import sessions, two_ways, word_count, word_count_socket
from examples.fraud import flow as fraud
from examples.fraud.compare import compare
from pyspark.sql import SparkSession

import riverlock as rl
from riverlock.cli.app import find_flow, load, parse
from riverlock.flow.inside import program_of

pytestmark = pytest.mark.spark


def _json_rows(folder: Path) -> list[dict[str, Any]]:
    files = sorted(folder.glob("epoch=*/*.json"))
    return [json.loads(line) for f in files for line in f.read_text().splitlines()]


def _parsed(text: str) -> datetime:
    return datetime.fromisoformat(text)


def test_word_count_reads_each_file_once_and_goes_on(
    spark: SparkSession, tmp_path: Path
) -> None:
    texts = ["To be, or not to be", "that is the question", "to be continued"]
    folder, out, store = tmp_path / "in", tmp_path / "out", str(tmp_path / "store")
    folder.mkdir()
    (folder / "1.txt").write_text("\n".join(texts[:2]) + "\n")

    word_count.build(str(folder), str(out)).run(store, spark=spark, available_now=True)
    (folder / "2.txt").write_text(texts[2] + "\n")
    word_count.build(str(folder), str(out)).run(store, spark=spark, available_now=True)

    expected = Counter(" ".join(texts).replace(",", "").lower().split())
    found = {row["word"]: row["n"] for row in _json_rows(out)}
    assert found == expected


def test_socket_word_count_counts_every_line_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    lines = ["a b a", "b a"]
    sink = rl.sinks.memory()

    with word_count_socket.line_server(lines) as port:
        flow = word_count_socket.build(port, sink)
        handle = flow.start(str(tmp_path / "store"), spark=spark)
        while handle.is_active and sum(dict(sink.rows()).values()) < 5:
            handle.wait(0.2)
        handle.stop()

    assert dict(sink.rows()) == {"a": 3, "b": 2}
    assert all(len(rows) == len(dict(rows)) for rows in sink.epochs.values())


def _sessions(rows: list[tuple[str, datetime]]) -> list[tuple[Any, ...]]:
    """Cut the clicks of each user at pauses longer than the gap."""
    newest = max(at for _, at in rows)
    open_visits: dict[str, list[datetime]] = {}
    ended = []
    for user, at in rows:
        visit = open_visits.setdefault(user, [])
        if visit and at - visit[-1] > sessions.GAP:
            ended.append((user, visit[0], visit[-1], len(visit)))
            visit.clear()
        visit.append(at)
    for user, visit in open_visits.items():
        if visit[-1] + sessions.GAP <= newest:
            ended.append((user, visit[0], visit[-1], len(visit)))
    return sorted(ended)


@pytest.mark.parametrize("rows_per_epoch", [None, 1_300])
def test_sessions_do_not_depend_on_where_epochs_end(
    spark: SparkSession, tmp_path: Path, rows_per_epoch: int | None
) -> None:
    rows = 5_000
    flow = sessions.build(str(tmp_path / "out"), rows=rows)
    clicks = spark.range(rows).selectExpr("id", "cast(1 as bigint) as seed")
    clicks = clicks.selectExpr(*(f"{e} as {n}" for n, e in sessions.CLICKS.items()))
    input_rows = [
        (r.user, _parsed(f"{r.at}+00:00"))
        for r in clicks.selectExpr("user", "cast(at as string) as at").collect()
    ]

    flow.run(
        str(tmp_path / "store"),
        spark=spark,
        available_now=True,
        max_rows_per_epoch=rows_per_epoch,
    )

    found = sorted(
        (r["user"], _parsed(r["started"]), _parsed(r["ended"]), r["clicks"])
        for r in _json_rows(tmp_path / "out")
    )
    assert found == _sessions(input_rows)


def test_two_ways_agree_and_differ_in_cost(spark: SparkSession, tmp_path: Path) -> None:
    epochs = {}
    for way in ("update_state_by_key", "map_with_state"):
        sink = rl.sinks.memory()
        two_ways.build(way, sink, rows=two_ways.KEYS + 200).run(
            str(tmp_path / way),
            spark=spark,
            available_now=True,
            max_rows_per_epoch=two_ways.KEYS,
        )
        epochs[way] = sink.epochs

    last = max(epochs["map_with_state"])
    whole = dict(epochs["update_state_by_key"][last])
    touched = epochs["map_with_state"][last]
    assert len(whole) == two_ways.KEYS  # the whole state, in every epoch
    assert len(touched) == 200  # one row per record
    assert {k: v for k, v in whole.items() if k < 100} == dict(touched)


def test_fraud_flow_equals_plain_spark_sql(spark: SparkSession, tmp_path: Path) -> None:
    store, out = tmp_path / "store", tmp_path / "out"

    fraud.build(str(out), rows=15_000).run(
        str(store), spark=spark, available_now=True, max_rows_per_epoch=6_000
    )

    results = compare(spark, store, out, 15_000)
    assert [r.name for r in results if not r.is_equal] == []
    assert all(r.expected > 0 for r in results if r.name != "sessions")


_ROOT = Path(__file__).parents[2] / "examples"
EXAMPLES = [p for p in sorted(_ROOT.rglob("*.py")) if "\nflow = " in p.read_text()]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.stem)
def test_example_can_be_found_by_the_command_line(path: Path) -> None:
    app = parse(str(path))

    found = find_flow(load(app), app.name)

    assert program_of(found).writes
