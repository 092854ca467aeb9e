"""Records of a span of offsets as Arrow, read inside tasks.

A span is read by position, not by count: transaction markers, records of aborted
transactions and records removed by compaction leave gaps between offsets.
"""

from __future__ import annotations

import bisect
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from riverlock.connectors.kafka.columns import COLUMNS
from riverlock.connectors.kafka.connection import may_pass
from riverlock.core.errors import SourceError, SourceUnavailableError
from riverlock.core.garbage import without_gc
from riverlock.core.types import schema_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from confluent_kafka import Consumer, Message

    from riverlock.connectors.kafka.connection import Connection

__all__ = ["SETTINGS", "RecordReader", "Span"]

_ARROW: Final = schema_of(COLUMNS).to_arrow()
_BATCH_ROWS: Final = 10_000
_BATCH_BYTES: Final = 8 << 20
_FIRST_ROWS: Final = 500
# Nothing is waited for: what is read was there when the span was chosen.
_POLL_SECONDS: Final = 0.02
_SILENCE_SECONDS: Final = 60.0
# The same after a word of trouble: an epoch that waits is not waited for in tasks.
_TROUBLE_SECONDS: Final = 10.0
SETTINGS: Final = {
    "group.id": "riverlock",  # asked for by the client; never joined
    "fetch.wait.max.ms": "5",
    "queued.max.messages.kbytes": "32768",
    # What is fetched beyond a span is thrown away.
    "queued.min.messages": "20000",
    # By default the client pauses for a second whenever its queue is full.
    "fetch.queue.backoff.ms": "2",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Offsets ``[start, end)`` of a partition."""

    topic: str
    partition: int
    start: int
    end: int


# One client per process and cluster: connecting takes longer than many an epoch.
_CONSUMERS: dict[tuple[object, ...], Consumer] = {}


@dataclass(frozen=True, kw_only=True)
class RecordReader:
    """Reads spans; picklable, connects where it is used."""

    connection: Connection
    uid: str
    isolation: str
    allow_gap: bool

    def read(self, span: Span) -> Iterator[pa.RecordBatch]:
        """Yield the records of a span, in order.

        Raises:
            SourceError: Records of the span are gone.
            SourceUnavailableError: The cluster does not answer.
        """
        from confluent_kafka import TopicPartition

        consumer = self._consumer()
        place = TopicPartition(span.topic, span.partition, span.start)
        consumer.assign([place])
        try:
            yield from self._batches(consumer, span)
        finally:
            consumer.unassign()

    def _consumer(self) -> Consumer:
        from confluent_kafka import Consumer

        fixed = {
            "enable.auto.commit": "false",
            "enable.partition.eof": "true",
            "isolation.level": self.isolation,
            # Records that are gone are not skipped, unless that was asked for.
            "auto.offset.reset": "earliest" if self.allow_gap else "error",
        }
        settings = {**SETTINGS, **self.connection.settings(fixed)}
        name = tuple(sorted(settings.items()))
        if name not in _CONSUMERS:
            _CONSUMERS[name] = Consumer(settings)
        return _CONSUMERS[name]

    def _batches(self, consumer: Consumer, span: Span) -> Iterator[pa.RecordBatch]:
        position, rows = span.start, _FIRST_ROWS
        silent_since, trouble = time.monotonic(), ""
        while position < span.end:
            wanted = min(rows, span.end - position)
            batch, behind, events = _poll(consumer, wanted, span)
            if batch is not None:
                position = max(position, behind)
                yield batch
                rows = _rows_of(batch)
            for event in events:
                end, noticed = self._end(event, span)
                position, trouble = max(position, end), noticed or trouble
            limit = _TROUBLE_SECONDS if trouble else _SILENCE_SECONDS
            if batch is not None or position >= span.end:
                silent_since, trouble = time.monotonic(), ""
            elif time.monotonic() - silent_since > limit:
                raise self._silent(span, position, trouble)

    def _end(self, event: Message, span: Span) -> tuple[int, str]:
        """Return the offset that an event says has been reached, or raise its error.

        Raises:
            SourceError: Records are gone.
            SourceUnavailableError: The cluster does not answer.
        """
        from confluent_kafka import KafkaError

        error = event.error()
        assert error is not None
        if error.code() == KafkaError._PARTITION_EOF:
            return int(event.offset()), ""
        text = self.connection.masked(error.str())
        where = f"{span.topic}-{span.partition}"
        gone = (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE)
        if error.code() in gone:
            raise SourceError(
                self.uid,
                what=f"records of {where} between offsets {span.start} and {span.end}"
                f" are gone before their epoch was committed: {text}",
                hint="allow_gap=True continues without them; a longer retention of the"
                " topic prevents this",
            )
        if may_pass(error):
            return span.start, text  # the client tries again; silence is limited
        raise SourceError(self.uid, what=f"{where}: {text}")

    def _silent(
        self, span: Span, position: int, trouble: str
    ) -> SourceUnavailableError:
        limit = _TROUBLE_SECONDS if trouble else _SILENCE_SECONDS
        noticed = f" ({trouble})" if trouble else ""
        return SourceUnavailableError(
            self.uid,
            what=f"Kafka at {self.connection.servers} does not answer:"
            f" {span.topic}-{span.partition} gave nothing for {limit:.0f} seconds"
            f" at offset {position} of {span.end}{noticed}",
        )


@without_gc()
def _poll(
    consumer: Consumer, wanted: int, span: Span
) -> tuple[pa.RecordBatch | None, int, list[Message]]:
    """Take what has arrived: records, the offset after them, and events."""
    messages, events = _parted(consumer.consume(wanted, timeout=_POLL_SECONDS))
    if not messages:
        return None, span.start, events
    behind: Any = messages[-1].offset()
    return _batch(messages, span), behind + 1, events


def _rows_of(batch: pa.RecordBatch) -> int:
    """Return how many records a batch should have, judging by the last one."""
    if not batch.num_rows:
        return _FIRST_ROWS
    size = max(1, batch.nbytes // batch.num_rows)
    return max(1, min(_BATCH_ROWS, _BATCH_BYTES // int(size)))


def _parted(messages: list[Message]) -> tuple[list[Message], list[Message]]:
    """Separate records from events."""
    from confluent_kafka import Message

    if not any(map(Message.error, messages)):
        return messages, []
    events = [m for m in messages if m.error() is not None]
    return [m for m in messages if m.error() is None], events


def _batch(messages: list[Message], span: Span) -> pa.RecordBatch:
    """Return records as columns; a map is the fastest loop that Python has."""
    from confluent_kafka import Message

    offsets: list[Any] = list(map(Message.offset, messages))
    if offsets[-1] >= span.end:
        # What lies behind a gap at the end of the span belongs to the next one.
        count = bisect.bisect_left(offsets, span.end)
        messages, offsets = messages[:count], offsets[:count]
    size = len(messages)
    millis = pa.array([t for _, t in map(Message.timestamp, messages)], pa.int64())
    times = pc.if_else(pc.less(millis, 0), None, millis)  # before Kafka 0.10: unknown
    columns = [
        pa.array(map(Message.key, messages), pa.binary(), size=size),
        pa.array(map(Message.value, messages), pa.binary(), size=size),
        _headers(list(map(Message.headers, messages))),
        pa.repeat(pa.scalar(span.topic, pa.string()), size),
        pa.repeat(pa.scalar(span.partition, pa.int32()), size),
        pa.array(offsets, pa.int64()),
        times.cast(pa.timestamp("ms", tz="UTC")).cast(_ARROW.field("timestamp").type),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=_ARROW)


def _headers(found: list[Any]) -> pa.Array:
    kind = _ARROW.field("headers").type
    if not any(found):
        return pa.nulls(len(found), kind)
    rows = [h and [{"key": k, "value": v} for k, v in h] for h in found]
    return pa.array(rows, kind)
