"""Partitions of topics, and how far they reach; asked by the driver."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from riverlock.connectors.kafka.connection import may_pass
from riverlock.core.errors import (
    InvalidConfigError,
    SourceError,
    SourceUnavailableError,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from confluent_kafka import KafkaError
    from confluent_kafka.admin import OffsetSpec

    from riverlock.connectors.kafka.connection import Connection

__all__ = ["Layout", "Topics", "key_of", "place_of"]

# How long an answer is waited for; a cluster that is away is asked again, and who waits
# for it can be stopped in between.
WAIT_SECONDS: Final = 10.0
_REFUSED: Final = ("_AUTHENTICATION", "_SSL")
# How soon a new partition is found.
_FRESH_SECONDS: Final = 1.0


def key_of(topic: str, partition: int) -> str:
    """Return the name of a partition, as offsets spell it."""
    return f"{topic}-{partition}"


def place_of(key: str) -> tuple[str, int]:
    """Return topic and number of a partition.

    >>> place_of("my-orders-12")
    ('my-orders', 12)
    """
    topic, _, number = key.rpartition("-")
    return topic, int(number)


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Partitions, and the ids that distinguish a topic from a later one of its name."""

    ids: Mapping[str, str]
    partitions: tuple[str, ...]


class Topics:
    """Asks the cluster about some topics.

    Every method raises ``SourceUnavailableError`` if the cluster does not answer, in
    which case the run waits, and ``SourceError`` for errors that would only recur.
    """

    def __init__(
        self,
        connection: Connection,
        names: tuple[str, ...],
        uid: str,
        isolation: str,
        *,
        waits: bool = False,
    ) -> None:
        """Make a client; it connects when it is asked for something.

        Args:
            connection: Where the cluster is.
            names: The topics.
            uid: The source's, for errors.
            isolation: Whether transactions that are not decided count.
            waits: Whether to wait for a topic that does not exist.

        Raises:
            InvalidConfigError: The client does not know an option.
        """
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient

        self._connection, self._names, self._uid = connection, names, uid
        self._waits = waits
        self._is_committed = isolation == "read_committed"
        self._noticed: KafkaError | None = None
        self._layout: Layout | None = None
        self._seen_at = 0.0
        try:
            self._admin = AdminClient(connection.settings({"error_cb": self._remember}))
        except KafkaException as error:
            raise InvalidConfigError(
                f"options of source {uid!r}",
                expected="settings that Kafka's client knows",
                found=connection.masked(error.args[0].str()),
            ) from None

    def layout(self) -> Layout:
        """Return the existing partitions, as of at most a second ago."""
        now = time.monotonic()
        if self._layout is None or now - self._seen_at > _FRESH_SECONDS:
            self._layout, self._seen_at = self._described(), now
        return self._layout

    def begins(self, partitions: Iterable[str]) -> dict[str, int]:
        """Return the first offset that still exists, by partition."""
        from confluent_kafka.admin import OffsetSpec

        return self._offsets(partitions, OffsetSpec.earliest())

    def ends(self, partitions: Iterable[str]) -> dict[str, int]:
        """Return the offset after the last record that is decided, by partition."""
        from confluent_kafka.admin import OffsetSpec

        return self._offsets(partitions, OffsetSpec.latest())

    def since(self, partitions: Iterable[str], time_ms: int) -> dict[str, int]:
        """Return the first offset at or after a time; the end if there is none."""
        from confluent_kafka.admin import OffsetSpec

        names = list(partitions)
        found = self._offsets(names, OffsetSpec.for_timestamp(time_ms))
        ends = self.ends(names)
        return {n: ends[n] if found[n] < 0 else min(found[n], ends[n]) for n in names}

    def _described(self) -> Layout:
        from confluent_kafka import TopicCollection

        found = self._admin.describe_topics(
            TopicCollection(list(self._names)), request_timeout=WAIT_SECONDS
        )
        topics = {name: self._result(found[name], name) for name in self._names}
        return Layout(
            ids={name: str(topic.topic_id) for name, topic in topics.items()},
            partitions=tuple(
                key_of(name, part.id)
                for name, topic in topics.items()
                for part in sorted(topic.partitions, key=lambda p: p.id)
            ),
        )

    def _offsets(self, partitions: Iterable[str], spec: OffsetSpec) -> dict[str, int]:
        from confluent_kafka import IsolationLevel, TopicPartition

        names = list(partitions)
        if not names:
            return {}
        level = (
            IsolationLevel.READ_COMMITTED
            if self._is_committed
            else IsolationLevel.READ_UNCOMMITTED
        )
        asked = {TopicPartition(*place_of(name)): spec for name in names}
        found = self._admin.list_offsets(
            asked, isolation_level=level, request_timeout=WAIT_SECONDS
        )
        by_name = {key_of(p.topic, p.partition): each for p, each in found.items()}
        return {n: int(self._result(by_name[n], n).offset) for n in names}

    def _result(self, future: Any, what: str) -> Any:
        from confluent_kafka import KafkaError, KafkaException

        try:
            found = future.result(WAIT_SECONDS + 10)
        except KafkaException as error:
            cause: KafkaError = error.args[0]
        except TimeoutError:
            cause = KafkaError(KafkaError._TIMED_OUT)
        else:
            self._noticed = None
            return found
        self._admin.poll(0)  # what the client has noticed on its connections
        noticed = "" if self._noticed is None else f" ({self._noticed.str()})"
        text = self._connection.masked(f"{what}: {cause.str()}{noticed}")
        if may_pass(cause) and not self._is_refused:
            raise SourceUnavailableError(
                self._uid,
                what=f"Kafka at {self._connection.servers} does not answer: {text}",
            )
        if cause.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            raise self._missing(what)
        raise SourceError(self._uid, what=text)

    def _missing(self, what: str) -> SourceError:
        place = f"topic or partition {what} does not exist at"
        if self._waits:
            said = f"{place} {self._connection.servers} yet"
            return SourceUnavailableError(self._uid, what=said)
        return SourceError(
            self._uid,
            what=f"{place} {self._connection.servers}",
            hint="correct the name, or create it; missing='wait' waits for it;"
            " if it was deleted and created again, its records are others: begin a new"
            " store",
        )

    def _remember(self, error: KafkaError) -> None:
        self._noticed = error

    @property
    def _is_refused(self) -> bool:
        """Whether brokers answer, and do not let us in: waiting would not help."""
        return self._noticed is not None and self._noticed.name() in _REFUSED
