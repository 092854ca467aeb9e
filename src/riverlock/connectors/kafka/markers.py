"""Markers: which epoch of a sink a cluster holds, written in its own transaction.

A marker is a record of a compacted topic with one partition, under the key of flow and
sink. Offsets of a consumer group would be atomic as well, but a cluster forgets them a
week after the last commit.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

import msgspec

from riverlock.connectors.kafka.connection import WAIT_SECONDS
from riverlock.core.errors import InvalidConfigError, SinkError
from riverlock.core.values.known_types import known

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message
    from confluent_kafka.admin import AdminClient

    from riverlock.connectors.kafka.connection import Connection

__all__ = ["Marker", "make_topic", "read_marker"]

_SETTINGS: Final = {
    "cleanup.policy": "compact",
    # Small segments: the active one is not compacted, and a start reads all of them.
    "segment.bytes": str(1 << 20),
    "min.cleanable.dirty.ratio": "0.1",
}


class Marker(msgspec.Struct, frozen=True, kw_only=True):
    """The last epoch that a sink has written, and the run that wrote it."""

    flow: str
    sink: str
    run: int
    epoch: int | None = None
    # Of what the manifest lists for the epoch: another timeline has another.
    digest: str | None = None
    # The tokens of the run that wrote this, and of the one that decided the epoch;
    # older versions have left none.
    token: str = ""
    decided: str = ""

    @property
    def key(self) -> bytes:
        """The key of the record."""
        return f"{self.flow}/{self.sink}".encode()


def make_topic(admin: AdminClient, name: str) -> None:
    """Make the topic of markers, unless it exists.

    Raises:
        InvalidConfigError: It has more than one partition.
        KafkaException: It could not be made.
    """
    from confluent_kafka import KafkaError, KafkaException
    from confluent_kafka.admin import NewTopic

    known = admin.list_topics(timeout=WAIT_SECONDS).topics.get(name)
    if known is not None:
        if len(known.partitions) != 1:
            raise InvalidConfigError(
                f"topic {name!r} for markers",
                expected="one partition",
                found=str(len(known.partitions)),
            )
        return
    topic = NewTopic(name, 1, -1, config=_SETTINGS)
    try:
        admin.create_topics([topic])[name].result(WAIT_SECONDS)
    except KafkaException as error:
        # Another flow was faster.
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise


def read_marker(
    connection: Connection, topic: str, mine: Marker, sink: str
) -> Marker | None:
    """Return the newest committed marker of a flow's sink.

    This waits for everything that was written when it is called: a transaction of
    another flow that is being committed may hide what lies behind it for a moment.

    Raises:
        SinkError: That took too long.
        KafkaException: The cluster does not answer.
    """
    from confluent_kafka import Consumer, TopicPartition

    place = TopicPartition(topic, 0, 0)
    settings = {
        "group.id": "riverlock",  # asked for by the client; never joined
        "enable.auto.commit": "false",
        "enable.partition.eof": "true",
        "auto.offset.reset": "earliest",
        "fetch.wait.max.ms": "5",
    }
    # A reader of all there is sees the end; one of what is committed, what counts.
    ends = Consumer(
        connection.settings({**settings, "isolation.level": "read_uncommitted"})
    )
    consumer = Consumer(
        connection.settings({**settings, "isolation.level": "read_committed"})
    )
    try:
        _, end = ends.get_watermark_offsets(place, timeout=WAIT_SECONDS)
        consumer.assign([place])
        return _last(consumer, end, mine, sink)
    finally:
        ends.close()
        consumer.close()


def _last(consumer: Consumer, end: int, mine: Marker, sink: str) -> Marker | None:
    found: Marker | None = None
    position = 0
    deadline = time.monotonic() + WAIT_SECONDS
    while position < end:
        for message in consumer.consume(1000, timeout=0.02):
            position = max(position, _position(message))
            if message.error() is None and message.key() == mine.key:
                found = msgspec.json.decode(message.value(), type=known(Marker))
        if time.monotonic() > deadline:
            raise SinkError(
                sink,
                epoch=None,
                what=f"its marker could not be read: offset {position} of {end}",
            )
    return found


def _position(message: Message) -> int:
    """Return where a reader is after a message."""
    from confluent_kafka import KafkaError, KafkaException

    error = message.error()
    if error is None:
        return int(message.offset()) + 1
    if error.code() == KafkaError._PARTITION_EOF:
        return int(message.offset())
    raise KafkaException(error)
