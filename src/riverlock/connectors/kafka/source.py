"""Kafka topics as an input."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from riverlock.connectors.base.source import check_missing
from riverlock.connectors.kafka.columns import COLUMNS
from riverlock.connectors.kafka.connection import Connection, connection_to
from riverlock.connectors.kafka.values.registry import Registry, registry_at
from riverlock.core.errors import InvalidConfigError
from riverlock.core.extras import load_extra
from riverlock.core.keywords import told_keywords
from riverlock.core.types import Field, Schema, SchemaLike, schema_of

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Kafka", "kafka"]

_VALUES: Final = ("binary", "json", "avro", "protobuf")
# What decodes them; named as the extra.
_PACKAGES: Final = {"avro": "fastavro", "protobuf": "google.protobuf"}
_ISOLATIONS: Final = ("read_committed", "read_uncommitted")
_FIXED: Final = (
    "auto.offset.reset",
    "enable.auto.commit",
    "enable.partition.eof",
    "isolation.level",
)

Starting = str | datetime | Mapping[Any, int]


@dataclass(frozen=True, kw_only=True)
class Kafka:
    """Kafka topics; see ``kafka``."""

    connection: Connection
    topics: tuple[str, ...]
    starting: Starting
    value: str
    payload: Schema | None
    registry: Registry | None
    prefix: str
    bad_rows: str
    isolation: str
    allow_gap: bool
    bounded: bool
    schema: Schema
    missing: str = "fail"
    kind: str = "kafka"

    @property
    def place(self) -> str:
        """What distinguishes it from others of its kind."""
        return ", ".join(self.topics)

    @property
    def bad_columns(self) -> str:
        """The columns of ``stream.bad``."""
        return "topic string, partition int, offset bigint, record binary"


@told_keywords
def kafka(  # noqa: PLR0913 - keyword-only settings
    servers: str,
    topic: str | Sequence[str],
    *,
    starting: Starting = "earliest",
    value: str = "binary",
    schema: SchemaLike | None = None,
    schema_registry: str | None = None,
    prefix: str = "",
    bad_rows: str = "report",
    isolation: str = "read_committed",
    allow_gap: bool = False,
    bounded: bool = False,
    missing: str = "fail",
    options: Mapping[str, object] | None = None,
) -> Kafka:
    """Read Kafka topics, each record exactly once; needs ``riverlock[kafka]``.

    Columns are ``key, value, headers, topic, partition, offset, timestamp``. Tasks read
    the records, in the order of their partitions. New partitions are found, and read
    from their beginning. For watermarks by partition write ``event_time("timestamp",
    delay="10 seconds", per="partition")``.

    Args:
        servers: The cluster: ``host:port``, several with commas.
        topic: A topic, or several.
        starting: Where a new store begins: ``earliest``, ``latest``, the records from a
            time on (an aware datetime), or offsets by partition number (for several
            topics, by ``"topic-number"``); other partitions begin with their earliest
            record.
        value: ``binary``; or ``json``, ``avro`` or ``protobuf``: the columns of
            ``schema`` then replace ``value``.
        schema: The columns of an object; fields without a column are left out, and
            columns without a field are null.
        schema_registry: The registry of Avro and Protobuf schemas, which values name by
            number: ``https://user:password@host``. User and password are never shown.
        prefix: A prefix for the names of the record's own columns, for objects that
            have a ``key`` or a ``timestamp`` as well.
        bad_rows: For values that are not such objects: ``report`` keeps them out of the
            stream, counts them in status and offers them as ``stream.bad``; ``fail``
            stops the flow.
        isolation: ``read_committed``, or ``read_uncommitted`` to see records of
            transactions that are not decided, or were aborted.
        allow_gap: Continue if records were lost before they were read, by retention for
            instance. By default the flow stops, and says which.
        bounded: Read up to the end as of the first start. Event time then ends with it,
            so that every window emits and every timer fires.
        missing: What to do if a topic does not exist: ``fail``, when the flow is
            checked, at its start and while it runs; or ``wait``: nothing is read before
            all topics exist, and ``check`` says which does not.
        options: Settings of Kafka's client (librdkafka), such as
            ``{"security.protocol": "SASL_SSL"}``. They are never stored or shown.

    Raises:
        InvalidConfigError: An argument does not fit, or the client is not installed.
    """
    topics = (topic,) if isinstance(topic, str) else tuple(topic)
    if not topics or not all(topics):
        raise InvalidConfigError(
            "kafka(topic=)", expected="a name, or several", found=repr(topic)
        )
    _check(value, _VALUES, "value of Kafka records")
    _check(isolation, _ISOLATIONS, "isolation")
    _check(bad_rows, ("report", "fail"), "bad_rows")
    check_missing(missing)
    _check_starting(starting, topics)
    payload = None if schema is None else schema_of(schema)
    return Kafka(
        connection=connection_to(servers, options, fixed=_FIXED),
        topics=topics,
        starting=starting,
        value=value,
        payload=payload,
        registry=_registry(value, schema_registry),
        prefix=prefix,
        bad_rows=bad_rows,
        isolation=isolation,
        allow_gap=allow_gap,
        bounded=bounded,
        missing=missing,
        schema=_columns(value, payload, prefix),
    )


def _check(found: str, known: Sequence[str], what: str) -> None:
    if found not in known:
        raise InvalidConfigError(what, expected=" or ".join(known), found=repr(found))


def _check_starting(starting: Starting, topics: Sequence[str]) -> None:
    match starting:
        case "earliest" | "latest":
            return
        case datetime() if starting.tzinfo is not None:
            return
        case Mapping() if all(_is_place(k, topics) for k in starting):
            if all(n >= 0 for n in starting.values()):
                return
        case _:
            pass
    raise InvalidConfigError(
        "kafka(starting=)",
        expected="'earliest', 'latest', a datetime with a time zone, or offsets by"
        " partition (by 'topic-number' of several topics)",
        found=repr(starting),
    )


def _is_place(key: object, topics: Sequence[str]) -> bool:
    if isinstance(key, int):
        return len(topics) == 1
    if not isinstance(key, str):
        return False
    topic, _, number = key.rpartition("-")
    return topic in topics and number.isdecimal()


def _registry(value: str, url: str | None) -> Registry | None:
    if (value in _PACKAGES) != (url is not None):
        raise InvalidConfigError(
            f"kafka(value={value!r})",
            expected="schema_registry= with 'avro' and 'protobuf', and only these",
            found="none" if url is None else "a schema_registry",
        )
    if url is None:
        return None
    load_extra(_PACKAGES[value], extra=value, needed_for=f"kafka(value={value!r})")
    return registry_at(url)


def _columns(value: str, payload: Schema | None, prefix: str) -> Schema:
    own = schema_of(COLUMNS)
    if value == "binary":
        if payload is not None:
            raise InvalidConfigError(
                "kafka(schema=)",
                expected="value='json', 'avro' or 'protobuf' with it",
                found="binary",
            )
        return Schema(tuple(_prefixed(f, prefix) for f in own.fields))
    if payload is None:
        raise InvalidConfigError(
            f"kafka(value={value!r})",
            expected="a schema, since columns must not depend on what has arrived",
            found="none",
            hint='write schema="user string, amount double"',
        )
    record = [_prefixed(f, prefix) for f in own.fields if f.name != "value"]
    twice = {f.name for f in record} & set(payload.names)
    if twice:
        raise InvalidConfigError(
            "kafka(schema=)",
            expected="other names than those of the record's own columns",
            found=", ".join(sorted(twice)),
            hint='write prefix="kafka_" to have kafka_key, kafka_partition and so on',
        )
    return Schema((*payload.fields, *record))


def _prefixed(column: Field, prefix: str) -> Field:
    return Field(f"{prefix}{column.name}", column.type)
