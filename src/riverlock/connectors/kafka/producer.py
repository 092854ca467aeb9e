"""Sends the rows of epochs: with their marker in one transaction, or plainly."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from riverlock.connectors.kafka.connection import WAIT_SECONDS, may_pass
from riverlock.core.errors import (
    CommitUnknownError,
    SinkError,
    SinkUnavailableError,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from confluent_kafka import KafkaError

    from riverlock.connectors.kafka.connection import Connection
    from riverlock.connectors.kafka.markers import Marker

__all__ = [
    "OutRow",
    "PlainProducer",
    "ProducerFencedError",
    "TransactionalProducer",
]

_SETTINGS: Final = {
    # As Java's clients place keys, so that others find them where they expect them.
    "partitioner": "murmur2_random",
    "linger.ms": "5",
    "queue.buffering.max.kbytes": str(64 << 10),
}
# Rows are staged when a transaction begins, so it lasts as long as sending them.
_TRANSACTION_MS: Final = 300_000
# A client that was told so once calls it a fatal error from then on.
_FENCED: Final = ("_FENCED", "_FATAL", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH")
_ABORT_SECONDS: Final = 5.0


class ProducerFencedError(SinkError):
    """Another producer of the same id began after this one; the marker tells more."""


class OutRow(NamedTuple):
    """A record to be sent."""

    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]] | None
    partition: int | None


class _Sender:
    """What both have in common: a client, and waiting for a full queue."""

    def __init__(self, connection: Connection, settings: dict[str, Any]) -> None:
        from confluent_kafka import Producer

        self._producer = Producer({**_SETTINGS, **connection.settings(settings)})

    def _send(self, topic: str, rows: Iterable[OutRow], **more: Any) -> None:
        produce, poll = self._producer.produce, self._producer.poll
        for row in rows:
            fields: dict[str, Any] = {"key": row.key, "value": row.value, **more}
            if row.headers:
                fields["headers"] = row.headers
            if row.partition is not None:
                fields["partition"] = row.partition
            while True:
                try:
                    produce(topic, **fields)
                    break
                except BufferError:
                    poll(0.1)
        poll(0)

    def drop(self) -> None:
        """Forget what is queued; nothing more is sent."""
        from confluent_kafka import KafkaException

        with contextlib.suppress(KafkaException):
            self._producer.purge()


class TransactionalProducer(_Sender):
    """Sends epochs in transactions; making one fences earlier ones with the same id.

    After an error it cannot be used any more: a new one completes or aborts what is
    open, and the marker says which of the two it was.
    """

    def __init__(self, connection: Connection, transactional_id: str) -> None:
        """Take the id; what an older producer left open is completed or aborted.

        Raises:
            KafkaException: The cluster refuses, or does not answer.
        """
        longest = connection.options.get("transaction.timeout.ms", _TRANSACTION_MS)
        super().__init__(
            connection,
            {
                "transactional.id": transactional_id,
                "transaction.timeout.ms": str(longest),
            },
        )
        self._producer.init_transactions(WAIT_SECONDS)

    def send(
        self, topic: str, rows: Iterable[OutRow], markers: str, marker: Marker
    ) -> None:
        """Send rows and a marker; readers of committed records see all or nothing.

        Raises:
            SinkError: Nothing was committed.
            CommitUnknownError: The outcome is unknown: ask the marker.
        """
        import msgspec
        from confluent_kafka import KafkaException

        try:
            self._producer.begin_transaction()
            self._send(topic, rows)
            # Last, for other flows' readers wait at a marker that is not decided.
            self._producer.produce(
                markers, key=marker.key, value=msgspec.json.encode(marker), partition=0
            )
        except KafkaException as error:
            raise _failure(error.args[0], marker, SinkError) from error
        self._commit(marker)

    def _commit(self, marker: Marker) -> None:
        from confluent_kafka import KafkaException

        try:
            self._producer.commit_transaction(WAIT_SECONDS)
        except KafkaException as error:
            cause: KafkaError = error.args[0]
            kind = SinkError if cause.txn_requires_abort() else CommitUnknownError
            raise _failure(cause, marker, kind) from error

    def drop(self) -> None:
        """Abort, if still possible, so that readers need not wait for a time-out."""
        from confluent_kafka import KafkaException

        super().drop()
        with contextlib.suppress(KafkaException):
            self._producer.abort_transaction(_ABORT_SECONDS)


def _failure(cause: KafkaError, marker: Marker, kind: type[SinkError]) -> SinkError:
    if cause.name() in _FENCED:
        kind = ProducerFencedError
    return kind(marker.sink, epoch=marker.epoch, what=cause.str())


class PlainProducer(_Sender):
    """Sends rows without a transaction: at least once."""

    def __init__(self, connection: Connection) -> None:
        """Make a client; it connects when it has something to send."""
        super().__init__(connection, {"enable.idempotence": "true"})

    def send(self, topic: str, rows: Iterable[OutRow], sink: str, epoch: int) -> None:
        """Send rows; return when the cluster has them.

        Raises:
            SinkError: It does not have them, or not all of them.
            SinkUnavailableError: It does not answer.
        """
        from confluent_kafka import KafkaException

        failed: list[KafkaError] = []

        def on_delivery(error: Any, _: Any) -> None:
            if error is not None and not failed:
                failed.append(error)

        try:
            self._send(topic, rows, on_delivery=on_delivery)
            left = self._producer.flush(WAIT_SECONDS)
        except KafkaException as error:
            raise SinkError(sink, epoch=epoch, what=error.args[0].str()) from error
        if failed:
            kind = SinkUnavailableError if may_pass(failed[0]) else SinkError
            raise kind(sink, epoch=epoch, what=failed[0].str())
        if left:
            what = f"{left} records were not acknowledged in time"
            raise SinkUnavailableError(sink, epoch=epoch, what=what)
