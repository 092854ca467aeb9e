"""Values of Kafka that are JSON: each is in the stream or bad, by the rules of files.

No broker is needed: the records are given.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StructField, StructType
from tests.integration.test_file_rows import JSON_LINES, VALUES, WIDE

import riverlock as rl
from riverlock.connectors.kafka.columns import COLUMNS
from riverlock.connectors.kafka.reader import KafkaReader
from riverlock.core.errors import SourceError
from riverlock.core.hidden_columns import SEQ
from riverlock.spark.structs import struct_of

pytestmark = pytest.mark.spark
NOWHERE = "127.0.0.1:1"
# Beside what is in lines of files: values without any, and with ends of lines.
MORE: dict[bytes | None, tuple[Any, ...] | None] = {
    None: (None, None, None),
    b"": None,
    b" \n": None,
    b'\n{"k":\n "g"}\n': ("g", None, None),
    b'{"k": "c"}\n{"k": "d"}': None,
    b'{"k": "c"}\n5': None,
    '{"k": "c"}'.encode("utf-16"): None,
}


def records(spark: SparkSession, values: list[bytes | None]) -> DataFrame:
    """Return records of one partition as tasks would have read them."""
    struct = struct_of(COLUMNS)
    found = StructType([*struct.fields, StructField(SEQ, LongType())])
    rows = [(b"k", v, None, "t", 0, n, None, n) for n, v in enumerate(values)]
    return spark.createDataFrame(rows, found)


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], DataFrame]], None]:
    """Make readers of Kafka read what is given."""

    def give(read: Callable[[], DataFrame]) -> None:
        def offset(until: int) -> dict[str, Any]:
            return {"topics": {"t": "id"}, "partitions": {"t-0": until}}

        def between(self: Any, start: Any, end: Any) -> DataFrame:
            frame = read()
            return frame if start != end else frame.limit(0).drop(SEQ)

        monkeypatch.setattr(KafkaReader, "initial", lambda _: offset(0))
        monkeypatch.setattr(KafkaReader, "latest", lambda *_: offset(1_000))
        monkeypatch.setattr(KafkaReader, "_records", between)

    return give


def source(schema: str, **more: Any) -> Any:
    return rl.sources.kafka(NOWHERE, "t", value="json", schema=schema, **more)


def good_and_bad(
    spark: SparkSession, schema: str
) -> tuple[DataFrame, dict[int, bytes | None]]:
    reader = KafkaReader(spark, source(schema), "in")
    start, end = reader.initial(), reader.latest(None)
    bad = {r.offset: r.record for r in reader.read_bad(start, end).collect()}
    return reader.read(start, end), bad


def test_values_have_the_rules_of_lines_whichever_columns_are_used(
    spark: SparkSession, given: Any
) -> None:
    known = [*JSON_LINES.items(), *MORE.items()]
    given(lambda: records(spark, [value for value, _ in known]))

    stream, bad = good_and_bad(spark, "k string, n bigint, x int")

    expected = {n: row for n, (_, row) in enumerate(known) if row is not None}
    whole = stream.select("offset", "k", "n", "x").collect()
    assert {r[0]: tuple(r)[1:] for r in whole} == expected
    for columns in (["offset"], ["offset", "k"], ["offset", "x"]):
        found = [r[0] for r in stream.select(*columns).collect()]
        assert sorted(found) == sorted(expected), columns
    wrong = {n: bytes(v or b"") for n, (v, row) in enumerate(known) if row is None}
    assert {n: bytes(v or b"") for n, v in bad.items()} == wrong


def test_numbers_and_times_that_do_not_fit_are_bad_and_not_others(
    spark: SparkSession, given: Any
) -> None:
    values = [json.dumps({"id": n, c: v}) for n, (c, v, _) in enumerate(VALUES)]
    given(lambda: records(spark, [v.encode() for v in values]))

    stream, bad = good_and_bad(spark, f"id int, {WIDE}")

    # As text: Python has no times as far as Spark's.
    texts = stream.drop("key", "headers").selectExpr("to_json(struct(*)) AS row")
    rows = {r["id"]: r for r in (json.loads(each.row) for each in texts.collect())}
    assert rows.keys() == {n for n, (_, _, fits) in enumerate(VALUES) if fits}
    assert all(row[VALUES[n][0]] is not None for n, row in rows.items())
    assert bad.keys() == set(range(len(VALUES))) - rows.keys()


def test_a_bad_value_stops_the_flow_whichever_columns_are_used(
    spark: SparkSession, given: Any, tmp_path: Path
) -> None:
    given(lambda: records(spark, [b'{"n": 1}', b'{"n": 1} 2']))
    flow = rl.Flow("strict")
    rows = flow.read(source("n int", bad_rows="fail"), uid="in")
    rows.select("1 AS one").write(rl.sinks.memory(), uid="out")

    with pytest.raises(SourceError) as caught:
        flow.run(str(tmp_path / "store"), spark=spark, available_now=True)

    assert "t-0 at offset 1" in str(caught.value)
    assert '{"n": 1} 2' in str(caught.value)
    assert "bad_rows" in caught.value.hint


def test_the_stream_and_its_bad_rows_come_from_one_evaluation(
    spark: SparkSession, given: Any, tmp_path: Path
) -> None:
    """As with a registry that knows a schema a moment later, or with compaction."""

    def read() -> DataFrame:
        frame = records(spark, [b'{"n": 1}'] * 200)
        luck = F.when(F.rand() < 0.5, F.col("value")).otherwise(F.lit(b"bad"))
        return frame.withColumn("value", luck)

    given(read)
    out, both, bad = (rl.sinks.memory() for _ in range(3))
    flow = rl.Flow("once")
    rows = flow.read(source("n int"), uid="in")
    rows.select("offset").write(out, uid="out")
    counted = rows.key_by("n").agg(count="count(*)")
    counted.select("count").write(both, uid="both")
    rows.bad.select("offset").write(bad, uid="bad")

    status = flow.run(str(tmp_path / "store"), spark=spark, available_now=True)

    assert sorted(r[0] for r in out.rows() + bad.rows()) == list(range(200))
    assert both.rows() == [(len(out.rows()),)]
    assert status is not None
    assert status.bad_rows == len(bad.rows()) > 0
