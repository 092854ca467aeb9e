"""A Kafka topic as an output."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from riverlock.connectors.kafka.connection import Connection, connection_to
from riverlock.core.errors import InvalidConfigError, InvalidFlowError
from riverlock.core.keywords import told_keywords
from riverlock.core.types import INTEGERS, Type

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from riverlock.connectors.base.committer import Committer
    from riverlock.connectors.base.sink import SinkUse
    from riverlock.connectors.kafka.staging import DirectKafkaStager, KafkaStager
    from riverlock.storage.base import Storage

__all__ = ["KafkaSink", "kafka"]

_GUARANTEES: Final = ("exactly_once", "at_least_once")
_FIXED: Final = ("enable.idempotence", "transactional.id")
_JSON: Final = "json"
_TEXT: Final = ("string", "binary")
_MAX_BYTES: Final = 1_000_000  # the client's own default


@dataclass(frozen=True, kw_only=True)
class KafkaSink:
    """A Kafka topic; see ``kafka``."""

    connection: Connection
    topic: str
    key: tuple[str, ...]
    value: str
    headers: str | None
    partition: str | None
    guarantee: str
    markers: str
    kind: str = "kafka"

    @property
    def place(self) -> str:
        """Cluster and topic."""
        return f"{self.connection.servers} {self.topic}"

    @property
    def max_bytes(self) -> int:
        """The largest record that the client sends."""
        return int(self.connection.options.get("message.max.bytes", _MAX_BYTES))

    def stager(self, use: SinkUse) -> KafkaStager:
        """Return the stager, which encodes rows inside tasks.

        Raises:
            InvalidFlowError: The columns do not fit.
        """
        from riverlock.connectors.kafka.staging import KafkaStager

        if use.replaces:
            raise InvalidFlowError(
                f"mode 'complete' of sink {use.uid!r}",
                expected="a sink that can replace its rows",
                found="Kafka, where records stay",
                hint="write mode='update', with the key of the rows",
            )
        self._check_columns(use)
        return KafkaStager(
            sink=use.uid,
            key=self.key,
            value=self.value,
            headers=self.headers,
            partition=self.partition,
            max_bytes=self.max_bytes,
        )

    def direct_stager(self, use: SinkUse) -> DirectKafkaStager:
        """Return what sends rows inside tasks.

        Raises:
            InvalidFlowError: The columns do not fit.
        """
        from riverlock.connectors.kafka.staging import DirectKafkaStager

        return DirectKafkaStager(
            rows=self.stager(use), connection=self.connection, topic=self.topic
        )

    def _check_columns(self, use: SinkUse) -> None:
        for name in self.key:
            kinds = (*_TEXT, *INTEGERS) if len(self.key) == 1 else None
            _check(use, "key", name, kinds)
        if self.value != _JSON:
            _check(use, "value", self.value, _TEXT)
        if self.partition is not None:
            _check(use, "partition", self.partition, tuple(INTEGERS))
        if self.headers is not None:
            kind = _check(use, "headers", self.headers, ("map",))
            known = [Type("map", element=Type(t), key=Type("string")) for t in _TEXT]
            if kind not in known:
                raise _misfit(use, "headers", "map<string, binary>", kind.ddl)

    def committer(self, use: SinkUse, storage: Storage) -> Committer:
        """Return the committer, which sends epochs in the driver."""
        from riverlock.connectors.kafka.committers import (
            KafkaCommitter,
            PlainKafkaCommitter,
        )

        if self.guarantee == "at_least_once":
            return PlainKafkaCommitter(self, storage, use.uid)
        return KafkaCommitter(self, storage, use.uid)


def _check(use: SinkUse, what: str, name: str, kinds: Sequence[str] | None) -> Type:
    if name not in use.schema.names:
        columns = ", ".join(use.schema.names)
        raise _misfit(use, what, f"one of the columns {columns}", name)
    found = use.schema[name]
    if kinds is not None and found.kind not in kinds:
        raise _misfit(use, what, " or ".join(kinds), f"{name} {found.ddl}")
    return found


def _misfit(use: SinkUse, what: str, expected: str, found: str) -> InvalidFlowError:
    return InvalidFlowError(
        f"{what} of Kafka sink {use.uid!r}", expected=expected, found=found
    )


@told_keywords
def kafka(  # noqa: PLR0913 - keyword-only settings
    servers: str,
    topic: str,
    *,
    key: str | Sequence[str] | None = None,
    value: str = _JSON,
    headers: str | None = None,
    partition: str | None = None,
    guarantee: str = "exactly_once",
    markers: str = "riverlock-epochs",
    options: Mapping[str, object] | None = None,
) -> KafkaSink:
    """Write to a Kafka topic exactly once; needs ``riverlock[kafka]``.

    Tasks stage rows in the store; when the epoch is decided, the driver sends them and
    a marker of the epoch in one transaction. Readers with ``read_committed`` see whole
    epochs, each once. The topic must exist.

    Args:
        servers: The cluster: ``host:port``, several with commas.
        topic: The topic.
        key: The column of the record's key (text, bytes or a whole number), or several,
            which become a JSON object. Records of a key are in one partition.
        value: ``json``: an object of all columns but those of headers and partition; or
            the column, of text or bytes, that is the value. Null deletes the key from a
            compacted topic.
        headers: A column of headers: ``map<string, binary>``, or of strings.
        partition: A column with the partition number. By default the key determines the
            partition, as with Java's clients.
        guarantee: ``at_least_once`` sends without transactions: cheaper, and an epoch
            may be there twice after a crash.
        markers: The topic of markers, with one partition; created if it does not exist.
        options: Settings of Kafka's client (librdkafka), such as
            ``{"security.protocol": "SASL_SSL"}``. They are never stored or shown.

    Raises:
        InvalidConfigError: An argument does not fit, or the client is not installed.
    """
    if guarantee not in _GUARANTEES:
        raise InvalidConfigError(
            "kafka(guarantee=)",
            expected=" or ".join(_GUARANTEES),
            found=repr(guarantee),
        )
    if not topic or topic == markers:
        raise InvalidConfigError(
            "kafka(topic=)",
            expected="a name other than that of the markers' topic",
            found=repr(topic),
        )
    keys = () if key is None else (key,) if isinstance(key, str) else tuple(key)
    return KafkaSink(
        connection=connection_to(servers, options, fixed=_FIXED),
        topic=topic,
        key=keys,
        value=value,
        headers=headers,
        partition=partition,
        guarantee=guarantee,
        markers=markers,
    )
