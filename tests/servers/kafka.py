"""A real Kafka broker for the tests of a run."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import pytest
from tests.servers.proxy import CuttingProxy, of_kafka
from tools.kafka_server import KafkaServer, running, why_not

try:
    from confluent_kafka import (
        Consumer,
        IsolationLevel,
        KafkaError,
        Producer,
        TopicPartition,
    )
    from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec
except ImportError:
    pass  # the fixture skips what needs it

if TYPE_CHECKING:
    from confluent_kafka import Message

Topic = Callable[..., str]
Record = tuple[bytes | None, bytes | None]


@pytest.fixture(scope="session")
def kafka_proxy() -> Iterator[CuttingProxy]:
    """What cuts the connections of those who come by its port."""
    proxy = CuttingProxy(0, is_commit=of_kafka, is_shut=True)
    yield proxy
    proxy.close()


@pytest.fixture(scope="session")
def kafka(
    tmp_path_factory: pytest.TempPathFactory, kafka_proxy: CuttingProxy
) -> Iterator[KafkaServer]:
    """A broker that answers; skipped where the machine cannot have one."""
    reason = why_not()
    if reason is not None:
        pytest.skip(f"no Kafka broker: {reason}")
    with running(tmp_path_factory.mktemp("kafka"), kafka_proxy.port) as server:
        kafka_proxy.server = server.behind
        kafka_proxy.open()
        yield server


@pytest.fixture
def topic(kafka: KafkaServer) -> Topic:
    """Make topics, each with a name of its own."""
    admin = AdminClient(_quiet(kafka.servers))

    def make(partitions: int = 1, **settings: str) -> str:
        name = f"t-{uuid.uuid4().hex}"
        config = {k.replace("_", "."): v for k, v in settings.items()}
        (made,) = admin.create_topics(
            [NewTopic(name, partitions, 1, config=config)]
        ).values()
        made.result(60)
        return name

    return make


def _quiet(servers: str) -> dict[str, Any]:
    return {"bootstrap.servers": servers, "log_level": 2}


def send(servers: str, name: str, records: Iterable[Record], **more: Any) -> None:
    """Send records without a transaction, in order; returns when all are there."""
    # Without it, what is sent again after an error comes behind what was sent later.
    producer = Producer({**_quiet(servers), "enable.idempotence": True})
    for key, value in records:
        producer.produce(name, key=key, value=value, **more)
    assert producer.flush(60) == 0


def send_in_transactions(
    servers: str, name: str, transactions: Iterable[tuple[bool, list[Record]]]
) -> None:
    """Send records in transactions that are committed (true) or aborted (false)."""
    producer = Producer({**_quiet(servers), "transactional.id": name})
    producer.init_transactions(60)
    for commits, records in transactions:
        producer.begin_transaction()
        for key, value in records:
            producer.produce(name, key=key, value=value)
        if commits:
            producer.commit_transaction(60)
        else:
            # What was sent is in the log all the same.
            producer.flush(60)
            producer.abort_transaction(60)


def ends(servers: str, name: str, isolation: str) -> list[int]:
    """Return where each partition ends, for readers of an isolation level."""
    level = IsolationLevel[isolation.upper()]
    admin = AdminClient(_quiet(servers))
    parts = admin.list_topics(name, timeout=60).topics[name].partitions
    asked = {TopicPartition(name, n): OffsetSpec.latest() for n in parts}
    found = admin.list_offsets(asked, isolation_level=level)
    return [found[part].result(60).offset for part in asked]


def all_records(
    servers: str, name: str, isolation: str = "read_committed"
) -> list[Message]:
    """Read a topic from its beginning to its end, with a bare consumer."""
    consumer = Consumer(
        {
            **_quiet(servers),
            "group.id": "tests",
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 5,
        }
    )
    parts = consumer.list_topics(name, timeout=60).topics[name].partitions
    consumer.assign([TopicPartition(name, number, 0) for number in parts])
    found, open_parts = [], set(parts)
    while open_parts:
        for message in consumer.consume(1000, timeout=0.05):
            error = message.error()
            if error is None:
                found.append(message)
            else:
                assert error.code() == KafkaError._PARTITION_EOF, error
                open_parts.discard(message.partition())
    consumer.close()
    return found
