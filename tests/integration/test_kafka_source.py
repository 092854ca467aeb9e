"""The Kafka source on a real broker: each record once, by position, or a loud word."""

from __future__ import annotations

import json
import random
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession
from tests.servers.kafka import Topic, all_records, send, send_in_transactions
from tools.kafka_server import KafkaServer

import riverlock as rl
from riverlock.connectors.kafka.ranges import RecordReader, Span
from riverlock.connectors.kafka.reader import KafkaReader, spans_by_task
from riverlock.core.errors import (
    InvalidConfigError,
    SourceError,
    SourceUnavailableError,
)

NOWHERE = "127.0.0.1:9"


def reader(servers: str, *topics: str, **settings: Any) -> KafkaReader:
    """A reader that plans; only ``read`` needs Spark."""
    source = rl.sources.kafka(servers, topics, **settings)
    return KafkaReader(cast("SparkSession", None), source, "in")


def records(servers: str, span: Span, **settings: Any) -> list[tuple[int, bytes]]:
    """What a task reads of a span."""
    source = rl.sources.kafka(servers, span.topic, **settings)
    mine = RecordReader(
        connection=source.connection,
        uid="in",
        isolation=source.isolation,
        allow_gap=source.allow_gap,
    )
    return [
        (row["offset"], row["value"])
        for batch in mine.read(span)
        for row in batch.to_pylist()
    ]


def delete_until(servers: str, name: str, partition: int, offset: int) -> None:
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": servers})
    place = TopicPartition(name, partition, offset)
    for done in admin.delete_records([place]).values():
        done.result(60)


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_spans_hold_exactly_their_records_whatever_the_gaps(
    kafka: KafkaServer, topic: Topic, isolation: str
) -> None:
    name, draw = topic(1), random.Random(7)
    send_in_transactions(
        kafka.servers,
        name,
        [
            (draw.random() < 0.6, [(None, b"%d-%d" % (t, n)) for n in range(t % 4)])
            for t in range(1, 40)
        ],
    )
    oracle = {
        m.offset(): m.value() for m in all_records(kafka.servers, name, isolation)
    }
    end = reader(kafka.servers, name, isolation=isolation)._topics.ends([f"{name}-0"])
    until = end[f"{name}-0"]

    for _ in range(30):
        first, last = sorted(draw.randrange(until + 1) for _ in "ab")
        found = records(
            kafka.servers,
            Span(topic=name, partition=0, start=first, end=last),
            isolation=isolation,
        )

        assert found == [(o, v) for o, v in sorted(oracle.items()) if first <= o < last]
    assert len(oracle) < until, "there were no gaps"


def test_rows_are_shared_among_partitions_and_every_offset_is_taken_once(
    kafka: KafkaServer, topic: Topic
) -> None:
    name = topic(3)
    for partition, rows in enumerate([5, 0, 40]):
        each: list[Any] = [(None, b"x")] * rows
        send(kafka.servers, name, each, partition=partition)
    mine = reader(kafka.servers, name)
    start = mine.initial()
    latest = mine.latest(start)
    ends = []

    while (end := mine.advance(start, latest, 20)) != start:
        ends.append(mine.rows_between(start, end))
        start = end

    assert ends == [20, 20, 5]
    assert start == latest


def test_pieces_of_tasks_cover_spans_and_keep_positions() -> None:
    spans = [
        Span(topic="t", partition=n, start=start, end=end)
        for n, (start, end) in enumerate([(7, 70_000), (0, 3), (50, 30_000)])
    ]
    taken = {}

    for tasks in (1, 2, 5):
        pieces = [p for load in spans_by_task(spans, tasks) for p in load]
        taken[tasks] = sorted(
            (p.span.partition, offset, offset + p.base)
            for p in pieces
            for offset in range(p.span.start, p.span.end, 1)
        )

    assert taken[1] == taken[2] == taken[5]
    assert len(taken[1]) == sum(s.end - s.start for s in spans)
    positions = [position for _, _, position in taken[1]]
    assert positions == sorted(set(positions))


def test_starting_is_by_offset_time_earliest_or_latest(
    kafka: KafkaServer, topic: Topic
) -> None:
    name = topic(2, retention_ms="-1")  # of records that are half a century old
    for second in (0, 3, 4, 9):
        send(
            kafka.servers,
            name,
            [(None, b"x")],
            partition=0,
            timestamp=1_000_000 + second * 1000,
        )

    def begins(starting: Any) -> list[int]:
        found = reader(kafka.servers, name, starting=starting).initial()
        return list(found["partitions"].values())

    assert begins("earliest") == [0, 0]
    assert begins("latest") == [4, 0]
    assert begins(datetime.fromtimestamp(1003.5, UTC)) == [2, 0]
    assert begins(datetime.fromtimestamp(9999, UTC)) == [4, 0]
    assert begins({0: 3}) == [3, 0]
    assert begins({f"{name}-1": 0, f"{name}-0": 2}) == [2, 0]
    with pytest.raises(SourceError) as there_is_none:
        begins({7: 0})
    assert f"{name}-7" in there_is_none.value.message
    with pytest.raises(SourceError):
        begins({0: 5})


def test_records_lost_by_retention_are_an_error_unless_a_gap_is_allowed(
    kafka: KafkaServer, topic: Topic, caplog: pytest.LogCaptureFixture
) -> None:
    name = topic(1)
    send(kafka.servers, name, [(None, b"%d" % n) for n in range(10)])
    start = reader(kafka.servers, name, starting={0: 2}).initial()
    delete_until(kafka.servers, name, 0, 6)
    span = Span(topic=name, partition=0, start=2, end=10)

    with pytest.raises(SourceError) as planned:
        reader(kafka.servers, name).latest(start)
    with pytest.raises(SourceError) as read:
        records(kafka.servers, span)

    assert f"4 offsets of {name}-0 are lost, 2 to 5" in planned.value.message
    assert "allow_gap" in planned.value.hint
    assert f"{name}-0 between offsets 2 and 10 are gone" in read.value.message
    latest = reader(kafka.servers, name, allow_gap=True).latest(start)
    assert latest["partitions"] == {f"{name}-0": 10}
    assert "4 offsets" in caplog.text
    found = records(kafka.servers, span, allow_gap=True)
    assert found == [(n, b"%d" % n) for n in range(6, 10)]


def test_a_topic_that_was_made_anew_or_replaced_is_an_error(
    kafka: KafkaServer, topic: Topic
) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic

    name, other = topic(1), topic(1)
    send(kafka.servers, name, [(None, b"x")] * 3)
    start = reader(kafka.servers, name).latest(reader(kafka.servers, name).initial())
    admin = AdminClient({"bootstrap.servers": kafka.servers})

    with pytest.raises(SourceError) as replaced:
        reader(kafka.servers, other).latest(start)
    admin.delete_topics([name])[name].result(60)
    with pytest.raises(SourceError) as gone:
        reader(kafka.servers, name).latest(start)
    admin.create_topics([NewTopic(name, 1, 1)])[name].result(60)
    send(kafka.servers, name, [(None, b"y")] * 5)
    with pytest.raises(SourceError) as anew:
        reader(kafka.servers, name).latest(start)

    assert f"came from {name}, not {other}" in replaced.value.message
    assert "does not exist" in gone.value.message
    assert "was deleted and created again" in anew.value.message


def test_what_cannot_work_is_refused_without_a_cluster_and_secrets_are_masked() -> None:
    source = rl.sources.kafka(NOWHERE, "t", options={"sasl.password": "hush"})

    assert "hush" not in repr(source)
    assert source.connection.masked("wrong: hush") == "wrong: ***"
    for wrong in (
        {"starting": "never"},
        {"starting": datetime(2026, 1, 1)},  # noqa: DTZ001 - that is the mistake
        {"starting": {"other-0": 1}},
        {"value": "json"},
        {"value": "json", "schema": "key string"},
        {"schema": "a string"},
        {"isolation": "none"},
        {"options": {"enable.auto.commit": True}},
    ):
        with pytest.raises(InvalidConfigError):
            rl.sources.kafka(NOWHERE, "t", **cast("Any", wrong))
    with pytest.raises(InvalidConfigError) as unknown:
        reader(NOWHERE, "t", options={"no.such.thing": "1", "sasl.password": "hush"})
    assert "no.such.thing" in unknown.value.message


def test_a_cluster_that_does_not_answer_is_said_to_be_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("riverlock.connectors.kafka.topics.WAIT_SECONDS", 0.3)

    with pytest.raises(SourceUnavailableError) as error:
        reader(NOWHERE, "t").initial()

    assert NOWHERE in error.value.message


@pytest.mark.spark
def test_a_flow_reads_every_record_once_with_new_partitions_and_bad_ones(
    kafka: KafkaServer, topic: Topic, spark: SparkSession, tmp_path: Path
) -> None:
    from confluent_kafka.admin import AdminClient, NewPartitions

    name = topic(2)

    def order(n: int) -> tuple[bytes, bytes]:
        good = json.dumps({"user": f"u{n % 5}", "n": n, "at": n}).encode()
        return b"u%d" % (n % 5), b"{broken" if n % 50 == 0 else good

    def flow(out: Any, seen: Any, bad: Any) -> rl.Flow:
        made = rl.Flow("orders")
        source = rl.sources.kafka(
            kafka.servers,
            name,
            value="json",
            schema="user string, n bigint, at bigint",
            prefix="kafka_",
            options={"client.id": "tests", "sasl.password": "hush"},
        )
        orders = made.read(source, uid="in")
        orders.bad.write(bad, uid="bad")
        orders.select("n", "kafka_partition", "kafka_offset").write(out, uid="out")
        timed = orders.with_column("time", "timestamp_seconds(at)")
        timed = timed.event_time("time", delay="0 seconds", per="kafka_partition")
        timed.key_by("user").process(InOrder(), uid="order").write(seen, uid="seen")
        return made

    def run() -> Any:
        return flow(out, seen, bad).run(
            str(tmp_path / "store"),
            spark=spark,
            available_now=True,
            epoch_target=None,
            max_rows_per_epoch=170,
        )

    out, seen, bad = (rl.sinks.memory() for _ in range(3))
    send_in_transactions(
        kafka.servers,
        name,
        [(n % 3 != 2, [order(n * 40 + k) for k in range(40)]) for n in range(6)],
    )
    first = run()
    admin = AdminClient({"bootstrap.servers": kafka.servers})
    admin.create_partitions([NewPartitions(name, 4)])[name].result(60)
    for part in range(4):
        more = range(1000 + part * 50, 1050 + part * 50)
        send(kafka.servers, name, [order(n) for n in more], partition=part)
    second = run()

    oracle = [
        (json.loads(m.value())["n"], m.partition(), m.offset())
        for m in all_records(kafka.servers, name)
        if m.value() != b"{broken"
    ]
    assert Counter(out.rows()) == Counter(oracle)
    assert {partition for _, partition, _ in out.rows()} == {0, 1, 2, 3}
    assert Counter(row[1:3] for row in bad.rows()) == Counter(
        (m.partition(), m.offset())
        for m in all_records(kafka.servers, name)
        if m.value() == b"{broken"
    )
    assert first.bad_rows + second.bad_rows == len(bad.rows()) > 0
    # Each user saw the records of a partition in the order of their offsets.
    assert sum(count for _, count, _ in seen.rows()) == len(oracle)
    assert all(is_ordered for _, _, is_ordered in seen.rows())
    marks = second.inputs[0]
    assert marks.partitions == 4
    assert marks.slowest_partition is not None
    text = b"".join(p.read_bytes() for p in tmp_path.rglob("*") if p.is_file())
    assert b"hush" not in text


VALUES: list[tuple[bytes | None, bool]] = [
    (b'{"id": 1, "x": "a"}', True),
    (' \n\t{"id": 2, "x": "é漢"} \n'.encode(), True),
    (b"{}", True),
    (b'{"more": 1}', True),
    (None, True),  # a key without a value
    (b"", False),
    (b"  \n", False),
    (b"null", False),
    (b"[]", False),
    (b'[{"id": 3}]', False),
    (b'[{"id": 3}, {"id": 4}]', False),
    (b'{"id": 5, "x": "\xff\xc3("}', False),
    (b"\xff\xfe{bad", False),
    ('{"id": 6}'.encode("utf-16"), False),
    (b'{"id": "no"}', False),
    (b'{"x": "a", "id": "no"}', False),
    (b'"text"', False),
    (b"7", False),
    (b'{"id": 8', False),
]


@pytest.mark.spark
@pytest.mark.parametrize("columns", [["offset"], ["x", "offset"], ["id", "offset"]])
def test_each_record_is_in_the_stream_or_bad_whichever_columns_are_used(
    kafka: KafkaServer,
    topic: Topic,
    spark: SparkSession,
    tmp_path: Path,
    columns: list[str],
) -> None:
    name, out, bad = topic(1), rl.sinks.memory(), rl.sinks.memory()
    send(kafka.servers, name, [(b"k", value) for value, _ in VALUES])
    flow = rl.Flow("values")
    rows = flow.read(
        rl.sources.kafka(
            kafka.servers, name, value="json", schema="id bigint, x string"
        ),
        uid="in",
    )
    rows.select(*columns).write(out, uid="out")
    rows.bad.write(bad, uid="bad")

    status = flow.run(str(tmp_path / "store"), spark=spark, available_now=True)

    good = [offset for offset, (_, is_good) in enumerate(VALUES) if is_good]
    assert sorted(row[-1] for row in out.rows()) == good
    wrong = [(n, value) for n, (value, is_good) in enumerate(VALUES) if not is_good]
    assert sorted(row[2:] for row in bad.rows()) == wrong
    assert status is not None
    assert status.bad_rows == len(wrong)
    if columns[0] == "x":
        assert [x for x, _ in sorted(out.rows(), key=lambda r: r[1])][:2] == [
            "a",
            "é漢",
        ]


class InOrder(rl.Process):
    """Says of each record whether its offset follows the last of its partition."""

    output = "user string, count bigint, is_ordered boolean"
    last = rl.Map("int", "long")

    def on_event(self, record: Any, ctx: rl.Context) -> Any:
        before = self.last.get(record.kafka_partition, -1)
        self.last[record.kafka_partition] = record.kafka_offset
        yield record.user, 1, record.kafka_offset > before
