"""The Kafka sink on a real broker: what a record holds, and what is refused when."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.servers.kafka import Topic, all_records
from tools.kafka_server import KafkaServer

import riverlock as rl
from riverlock.connectors.base.committer import Committer, Owner
from riverlock.connectors.base.sink import Probed, SinkUse
from riverlock.connectors.base.stager import StagePoint
from riverlock.connectors.kafka.producer import (
    OutRow,
    PlainProducer,
    TransactionalProducer,
)
from riverlock.connectors.kafka.sink import KafkaSink
from riverlock.core.errors import (
    CommitRejectedError,
    CommitUnknownError,
    InvalidConfigError,
    InvalidFlowError,
    SinkError,
    SinkUnavailableError,
    SnapshotCorruptedError,
)
from riverlock.core.types import schema_of
from riverlock.snapshot.catalog import Catalog
from riverlock.snapshot.format.records import SinkOutput
from riverlock.storage.local import LocalStorage

NOWHERE = "127.0.0.1:9"


class Scene:
    """A sink, its store, and runs that stage and commit."""

    def __init__(self, sink: KafkaSink, columns: str, folder: Path) -> None:
        self.schema, self.sink = schema_of(columns), sink
        self.storage = LocalStorage(folder / "store")
        self.use = SinkUse(uid="out", schema=self.schema, replaces=False)
        self.flow = uuid.uuid4().hex

    def stage(self, epoch: int, *rows: tuple[Any, ...]) -> SinkOutput:
        columns = [list(c) for c in zip(*rows, strict=True)]
        at = StagePoint(
            storage=self.storage,
            folder=f"staged/{epoch}",
            epoch=epoch,
            attempt=uuid.uuid4().hex,
        )
        table = pa.table(columns, schema=self.schema.to_arrow())
        tokens = self.sink.stager(self.use).stage(table, at)
        return SinkOutput(kind="kafka", tokens=tuple(tokens), rows=len(rows))

    def open(self, run: int, origin: str | None = None) -> Committer:
        made = self.sink.committer(self.use, self.storage)
        made.open(Owner(flow=self.flow, sink="out", run=run, origin=origin))
        return made


def test_records_have_the_key_value_headers_and_partition_of_their_columns(
    kafka: KafkaServer, topic: Topic, tmp_path: Path
) -> None:
    columns = "id bigint, name string, tags map<string,string>, place int"

    def records(**settings: Any) -> list[tuple[Any, ...]]:
        target = topic(3)
        sink = rl.sinks.kafka(kafka.servers, target, **settings)
        scene = Scene(sink, columns, tmp_path / target)
        rows = scene.stage(
            0, (1, "é", [("a", "x"), ("b", None)], 2), (2, None, None, 0)
        )
        scene.open(1).commit(0, rows)
        found = all_records(kafka.servers, target)
        # The second row first: it is in partition 0, if partitions are chosen.
        return sorted(
            ((m.key(), m.value(), m.headers(), m.partition()) for m in found),
            key=lambda r: r[-1],
        )

    chosen = records(key="id", headers="tags", partition="place")
    by_column = records(key=["id", "place"], value="name", partition="place")

    assert chosen == [
        (b"2", b'{"id":2,"name":null}', None, 0),
        (b"1", '{"id":1,"name":"é"}'.encode(), [("a", b"x"), ("b", None)], 2),
    ]
    assert by_column == [
        (b'{"id":2,"place":0}', None, None, 0),
        (b'{"id":1,"place":2}', "é".encode(), None, 2),
    ]


@pytest.mark.parametrize("is_sent", [True, False])
def test_a_commit_without_an_answer_is_settled_by_its_marker(
    kafka: KafkaServer,
    topic: Topic,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    is_sent: bool,
) -> None:
    scene = Scene(rl.sinks.kafka(kafka.servers, topic()), "id bigint", tmp_path)
    committer = scene.open(1)
    committer.commit(0, scene.stage(0, (0,)))
    output = scene.stage(1, (1,), (2,))
    real: Callable[..., None] = TransactionalProducer._commit

    def without_answer(self: Any, marker: Any) -> None:
        if is_sent:
            real(self, marker)
        raise CommitUnknownError("out", epoch=marker.epoch, what="no answer")

    with monkeypatch.context() as patched:
        patched.setattr(TransactionalProducer, "_commit", without_answer)
        with pytest.raises(CommitUnknownError):
            committer.commit(1, output)
    committer.commit(1, output)

    values = [m.value() for m in all_records(kafka.servers, scene.sink.topic)]
    assert values == [b'{"id":0}', b'{"id":1}', b'{"id":2}']


def test_at_least_once_writes_an_epoch_again_after_a_crash(
    kafka: KafkaServer, topic: Topic, tmp_path: Path
) -> None:
    sink = rl.sinks.kafka(kafka.servers, topic(), guarantee="at_least_once")
    scene = Scene(sink, "id bigint", tmp_path)
    output = scene.stage(0, (1,))

    for run in (1, 2):
        committer = scene.open(run)
        committer.commit(0, output)

    assert "at least once" in committer.guarantee
    values = [m.value() for m in all_records(kafka.servers, scene.sink.topic)]
    assert values == [b'{"id":1}'] * 2


def test_a_store_that_was_put_back_is_not_taken_for_the_one_that_wrote(
    kafka: KafkaServer, topic: Topic, tmp_path: Path
) -> None:
    scene = Scene(rl.sinks.kafka(kafka.servers, topic()), "id bigint", tmp_path)
    first = scene.open(1)
    for epoch in range(3):
        first.commit(epoch, scene.stage(epoch, (epoch,)))
    second = scene.open(2)

    for epoch in (1, 2):
        with pytest.raises(CommitRejectedError) as error:
            second.commit(epoch, scene.stage(epoch, (epoch * 10,)))

    assert "this store has not decided" in error.value.message
    second.commit(3, scene.stage(3, (3,)))
    values = [m.value() for m in all_records(kafka.servers, scene.sink.topic)]
    assert values == [b'{"id":%d}' % n for n in range(4)]


def test_a_marker_that_is_gone_is_told_before_anything_is_sent(
    kafka: KafkaServer, topic: Topic, tmp_path: Path
) -> None:
    from confluent_kafka.admin import AdminClient

    markers = f"markers-{uuid.uuid4().hex}"
    sink = rl.sinks.kafka(kafka.servers, topic(), markers=markers)
    scene = Scene(sink, "id bigint", tmp_path)
    scene.open(1).commit(0, scene.stage(0, (0,)))
    admin = AdminClient({"bootstrap.servers": kafka.servers})
    admin.delete_topics([markers])[markers].result(60)

    with pytest.raises(InvalidConfigError) as error:
        scene.open(2)

    assert "written twice" in error.value.message


def test_a_note_of_the_marker_that_is_damaged_is_not_believed(
    kafka: KafkaServer, topic: Topic, tmp_path: Path
) -> None:
    from confluent_kafka.admin import AdminClient

    markers = f"markers-{uuid.uuid4().hex}"
    sink = rl.sinks.kafka(kafka.servers, topic(), markers=markers)
    scene = Scene(sink, "id bigint", tmp_path)
    scene.open(1).commit(0, scene.stage(0, (0,)))
    written = scene.storage.get("sinks/out.json")
    damaged = written.replace(b"cluster", b"clustes")
    scene.storage.put("sinks/out.json", damaged)

    scene.open(2)  # the marker is there, and says all

    assert scene.storage.get("sinks/out.json") == written
    scene.storage.put("sinks/out.json", damaged)
    admin = AdminClient({"bootstrap.servers": kafka.servers})
    admin.delete_topics([markers])[markers].result(60)
    with pytest.raises(SnapshotCorruptedError, match=r"sinks/out\.json"):
        scene.open(3)


def test_what_could_not_be_sent_is_refused_before_the_epoch_is_decided(
    kafka: KafkaServer, topic: Topic, tmp_path: Path
) -> None:
    name = topic(2)
    columns = "id bigint, place int, note string"

    def scene(**settings: Any) -> Scene:
        return Scene(rl.sinks.kafka(kafka.servers, name, **settings), columns, tmp_path)

    with pytest.raises(SinkError) as large:
        scene(key="id").stage(0, (7, 0, "x" * 1_000_000))
    with pytest.raises(SinkError):
        scene(partition="place").stage(0, (7, -1, ""))
    with pytest.raises(InvalidConfigError) as limit:
        scene(options={"message.max.bytes": 5_000_000}).open(1)
    with pytest.raises(InvalidConfigError) as missing:
        Scene(rl.sinks.kafka(kafka.servers, "nowhere"), columns, tmp_path).open(1)
    beyond = scene(partition="place")
    rows = beyond.stage(0, (7, 2, ""))
    with pytest.raises(CommitRejectedError) as partition:
        beyond.open(1).commit(0, rows)

    assert "the row with key b'7'" in large.value.message
    assert "max.message.bytes" in limit.value.message
    assert "needs an existing topic" in missing.value.message
    assert "none 2" in partition.value.message
    assert all_records(kafka.servers, name) == []


def test_what_does_not_fit_is_refused_without_a_cluster() -> None:
    schema = schema_of("id bigint, x double, tags map<string,bigint>")

    def stager(*, replaces: bool = False, **settings: Any) -> Any:
        use = SinkUse(uid="out", schema=schema, replaces=replaces)
        return rl.sinks.kafka(NOWHERE, "t", **settings).stager(use)

    assert stager(key="id").max_bytes == 1_000_000
    for wrong in (
        {"key": "nothing"},
        {"key": "x"},
        {"value": "id"},
        {"partition": "x"},
        {"headers": "tags"},
        {"replaces": True},
    ):
        with pytest.raises(InvalidFlowError):
            stager(**wrong)
    for broken in ({"guarantee": "maybe"}, {"options": {"transactional.id": "x"}}):
        with pytest.raises(InvalidConfigError):
            rl.sinks.kafka(NOWHERE, "t", **broken)
    sink = rl.sinks.kafka(NOWHERE, "t", options={"sasl.password": "hush"})
    assert "hush" not in repr(sink)


def test_a_cluster_that_is_away_is_told_in_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("riverlock.connectors.kafka.cluster.WAIT_SECONDS", 0.3)

    with pytest.raises(SinkError) as error:
        Scene(rl.sinks.kafka(NOWHERE, "t"), "id bigint", tmp_path).open(1)

    assert NOWHERE in error.value.message


@pytest.mark.parametrize("guarantee", ["exactly_once", "at_least_once"])
def test_a_probe_says_whether_the_topic_can_be_written(
    kafka: KafkaServer,
    topic: Topic,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    guarantee: str,
) -> None:
    def probe(servers: str, name: str) -> None:
        markers = f"markers-{uuid.uuid4().hex}"
        sink = rl.sinks.kafka(servers, name, guarantee=guarantee, markers=markers)
        scene = Scene(sink, "id bigint", tmp_path)
        made = sink.committer(scene.use, scene.storage)
        assert isinstance(made, Probed)
        made.probe()

    probe(kafka.servers, topic())
    with pytest.raises(InvalidConfigError, match="needs an existing topic"):
        probe(kafka.servers, "none")
    monkeypatch.setattr("riverlock.connectors.kafka.cluster.WAIT_SECONDS", 0.3)
    with pytest.raises(SinkUnavailableError, match="sink 'out'"):
        probe(NOWHERE, "none")


def test_at_least_once_waits_for_a_cluster_that_is_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("riverlock.connectors.kafka.producer.WAIT_SECONDS", 0.3)
    producer = PlainProducer(rl.sinks.kafka(NOWHERE, "t").connection)
    row = OutRow(key=None, value=b"1", headers=None, partition=None)

    with pytest.raises(SinkUnavailableError, match="1 records were not acknowledged"):
        producer.send("t", [row], "out", 3)
    producer.drop()


def test_a_fork_is_refused_where_its_origin_writes(
    kafka: KafkaServer, topic: Topic, tmp_path: Path
) -> None:
    shared = rl.sinks.kafka(kafka.servers, topic(2))
    origin = Scene(shared, "id bigint", tmp_path / "origin")
    origin.open(1).commit(0, origin.stage(0, (1,)))

    fork = Scene(shared, "id bigint", tmp_path / "fork")
    with pytest.raises(InvalidConfigError, match="an output of its own"):
        fork.open(1, origin=origin.flow)

    fork.sink = rl.sinks.kafka(kafka.servers, topic(2))
    fork.open(1, origin=origin.flow)


def test_in_an_at_least_once_region_rows_leave_with_their_task(
    kafka: KafkaServer, topic: Topic, tmp_path: Path
) -> None:
    target, store = topic(2), tmp_path / "s"
    flow = rl.Flow("direct", key_groups=2, guarantee="at least once")
    read = flow.read(rl.testing.rows("id long", [(n,) for n in range(5)]), uid="in")
    sink = rl.sinks.kafka(kafka.servers, target, key="id")
    read.write(sink, uid="out")
    flow.run(str(store), execution="local", available_now=True, max_rows_per_epoch=3)
    found = [(m.key(), m.value()) for m in all_records(kafka.servers, target)]
    assert sorted(found) == [(b"%d" % n, b'{"id":%d}' % n) for n in range(5)]
    newest = Catalog(LocalStorage(store)).newest()
    assert newest is not None
    assert (newest.outputs["out"].tokens, newest.outputs["out"].rows) == ((), 2)
