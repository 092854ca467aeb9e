"""A cluster as a sink sees it; its errors become ours."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from riverlock.connectors.kafka.connection import WAIT_SECONDS, may_pass
from riverlock.connectors.kafka.markers import make_topic, read_marker
from riverlock.connectors.kafka.producer import TransactionalProducer
from riverlock.core.errors import (
    InvalidConfigError,
    SinkError,
    SinkUnavailableError,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from riverlock.connectors.kafka.connection import Connection
    from riverlock.connectors.kafka.markers import Marker

__all__ = ["Cluster"]


class Cluster:
    """Answers a sink; raises ``SinkError`` if the cluster refuses.

    The subclass ``SinkUnavailableError`` says that it does not answer.
    """

    def __init__(self, connection: Connection, sink: str) -> None:
        """Make a client; it connects when it is asked for something.

        Raises:
            InvalidConfigError: The client does not know an option.
        """
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient

        self._connection, self._sink = connection, sink
        try:
            self._admin = AdminClient(connection.settings({}))
        except KafkaException as error:
            raise InvalidConfigError(
                f"options of sink {sink!r}",
                expected="settings that Kafka's client knows",
                found=connection.masked(error.args[0].str()),
            ) from None

    @contextmanager
    def _in_words(self, doing: str) -> Iterator[None]:
        from confluent_kafka import KafkaException

        try:
            yield
        except KafkaException as error:
            text = self._connection.masked(error.args[0].str())
            kind = SinkUnavailableError if may_pass(error.args[0]) else SinkError
            raise kind(
                self._sink,
                epoch=None,
                what=f"{doing} at {self._connection.servers}: {text}",
            ) from None

    def id(self) -> str:
        """Return the cluster's own id."""
        with self._in_words("asking for the cluster"):
            return str(self._admin.list_topics(timeout=WAIT_SECONDS).cluster_id)

    def check_topic(self, topic: str, max_bytes: int) -> int:
        """Return how many partitions a topic has.

        Raises:
            InvalidConfigError: It does not exist, or takes only smaller records.
        """
        from confluent_kafka.admin import ConfigResource, ResourceType

        with self._in_words(f"asking for topic {topic!r}"):
            known = self._admin.list_topics(timeout=WAIT_SECONDS).topics.get(topic)
            if known is None:
                raise InvalidConfigError(
                    f"topic {topic!r} of sink {self._sink!r}",
                    expected=f"an existing topic at {self._connection.servers}",
                    found="none",
                    hint="create it, with the partitions that its readers need",
                )
            resource = ConfigResource(ResourceType.TOPIC, topic)
            (found,) = self._admin.describe_configs([resource]).values()
            limit = int(found.result(WAIT_SECONDS)["max.message.bytes"].value)
        if limit < max_bytes:
            raise InvalidConfigError(
                f"message.max.bytes of sink {self._sink!r}",
                expected=f"at most {limit}, as in max.message.bytes of {topic!r}",
                found=str(max_bytes),
                hint="a row that only the client takes could never be committed",
            )
        return len(known.partitions)

    def has_records(self, topic: str, partitions: int) -> bool:
        """Tell whether anything was ever written to a topic."""
        from confluent_kafka import TopicPartition
        from confluent_kafka.admin import OffsetSpec

        places = [TopicPartition(topic, n) for n in range(partitions)]
        with self._in_words(f"asking for the ends of topic {topic!r}"):
            ends = self._admin.list_offsets({p: OffsetSpec.latest() for p in places})
            return any(end.result(WAIT_SECONDS).offset > 0 for end in ends.values())

    def make_markers(self, topic: str) -> None:
        """Make the topic of markers, unless it exists."""
        with self._in_words(f"making topic {topic!r}"):
            make_topic(self._admin, topic)

    def transactional(self, transactional_id: str) -> TransactionalProducer:
        """Return a producer that fences all earlier ones with the same id."""
        with self._in_words("beginning with transactions"):
            return TransactionalProducer(self._connection, transactional_id)

    def marker(self, topic: str, mine: Marker) -> Marker | None:
        """Return the marker of the newest epoch that was committed."""
        with self._in_words("reading the marker"):
            return read_marker(self._connection, topic, mine, self._sink)
