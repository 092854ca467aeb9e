"""Topics of Kafka: ranges of offsets, fixed by the driver and read by tasks."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import Observation
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StringType, StructField, StructType

from riverlock.connectors.files.reading.reader import has_counted, is_counted
from riverlock.connectors.kafka.columns import COLUMNS
from riverlock.connectors.kafka.ranges import RecordReader, Span
from riverlock.connectors.kafka.splits import KafkaSplit, RecordShape
from riverlock.connectors.kafka.topics import Topics, key_of, place_of
from riverlock.connectors.kafka.values.decoding_step import BODY as _BODY
from riverlock.connectors.kafka.values.decoding_step import CORRUPT as _CORRUPT
from riverlock.connectors.kafka.values.decoding_step import decoding_of
from riverlock.connectors.parsing.json_decoding import JsonDecoder, check_json
from riverlock.connectors.parsing.json_text import JsonText
from riverlock.core.errors import RiverlockError, SourceError
from riverlock.core.hidden_columns import SEQ
from riverlock.core.times import micros
from riverlock.spark.remote import RemoteError, bad_row_error
from riverlock.spark.structs import struct_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, SparkSession

    from riverlock.connectors.kafka.source import Kafka
    from riverlock.core.types import Schema

__all__ = ["KafkaReader", "spans_by_task"]

log = logging.getLogger(__name__)
# Reading less than this in a task of its own costs more than it saves.
_LEAST_OFFSETS: Final = 20_000
# What Spark makes of a value that is JSON.
_ROW: Final = "__rl_row"
# Positions: the partition's place in the range above 36 bits of offset in it.
_PLACE_BITS: Final = 36


class KafkaReader:
    """Fixes ranges of offsets, and has tasks read them.

    An offset is ``{"topics": {name: id}, "partitions": {"name-number": offset}}``; for
    a bounded source also ``"until"``, the end by partition.
    """

    gives_positions = True
    can_read_ahead = True
    is_repeatable = False  # compaction and retention go on meanwhile

    def __init__(self, spark: SparkSession, source: Kafka, uid: str) -> None:
        """Make a client; nothing is asked yet.

        Raises:
            InvalidConfigError: The client does not know an option.
        """
        self._spark, self._source, self._uid = spark, source, uid
        self._topics = Topics(
            source.connection,
            source.topics,
            uid,
            source.isolation,
            waits=source.missing == "wait",
        )
        # Counts of bad rows by range, oldest first: the next may be read ahead.
        self._counts: dict[str, Observation] = {}
        self._told: set[str] = set()

    def initial(self) -> Any:
        """Ask where ``starting`` is."""
        layout = self._topics.layout()
        names = layout.partitions
        offset: dict[str, Any] = {
            "topics": dict(layout.ids),
            "partitions": self._starting(names),
        }
        if self._source.bounded:
            offset["until"] = self._topics.ends(names)
        return offset

    def _starting(self, names: tuple[str, ...]) -> dict[str, int]:
        match self._source.starting:
            case "earliest":
                return self._topics.begins(names)
            case "latest":
                return self._topics.ends(names)
            case datetime() as time:
                return self._topics.since(names, micros(time) // 1000)
            case dict() as given:
                return self._given(given, names)
            case _:
                message = "checked by kafka()"
                raise AssertionError(message)

    def _given(
        self, offsets: Mapping[Any, int], names: tuple[str, ...]
    ) -> dict[str, int]:
        only = self._source.topics[0]
        chosen = {
            key_of(only, k) if isinstance(k, int) else k: offset
            for k, offset in offsets.items()
        }
        begins, ends = self._topics.begins(names), self._topics.ends(names)
        for name, offset in chosen.items():
            if name not in begins:
                raise SourceError(self._uid, what=f"there is no partition {name}")
            if not begins[name] <= offset <= ends[name]:
                raise SourceError(
                    self._uid,
                    what=f"starting has offset {offset} for {name}, which holds"
                    f" {begins[name]} to {ends[name]}",
                )
        return {**begins, **chosen}

    def latest(self, start: Any) -> Any:
        """Ask for the ends, after checking that what is to be read still exists.

        Raises:
            SourceError: Topics are others than before, or records are lost.
        """
        until = start.get("until")
        if until is not None and start["partitions"] == until:
            return start  # all is read: the topics may go
        layout = self._topics.layout()
        self._check_topics(start["topics"], layout.ids)
        names = layout.partitions if until is None else tuple(until)
        gone = sorted(start["partitions"].keys() - set(layout.partitions))
        if gone:
            raise SourceError(self._uid, what=f"partitions are gone: {', '.join(gone)}")
        ends, begins = self._topics.ends(names), self._topics.begins(names)
        for name in names:
            self._check_there(name, _from(start, name), begins[name], ends[name])
        if until is not None:
            ends = {name: min(ends[name], until[name]) for name in names}
        return {**start, "partitions": ends}

    def _check_topics(self, before: Mapping[str, str], now: Mapping[str, str]) -> None:
        if before.keys() != now.keys():
            raise SourceError(
                self._uid,
                what=f"what was read so far came from {', '.join(sorted(before))}, not"
                f" {', '.join(sorted(now))}",
                hint="nothing was changed; read other topics by a source with a uid of"
                " its own",
            )
        changed = sorted(name for name, uuid in before.items() if now[name] != uuid)
        if changed:
            raise SourceError(
                self._uid,
                what=f"topic {', '.join(changed)} was deleted and created again:"
                " offsets that were read so far mean other records now",
                hint="nothing was changed; a source with another uid begins with what"
                " the topic has now, with the existing state",
            )

    def _check_there(self, name: str, start: int, begin: int, end: int) -> None:
        if end < start:
            raise SourceError(
                self._uid,
                what=f"{name} was read to offset {start}, and now ends at {end}: the"
                " cluster has lost records",
                hint="nothing was changed; a source with another uid begins with what"
                " the topic has now, with the existing state",
            )
        if start < begin and not self._source.allow_gap:
            raise SourceError(
                self._uid,
                what=f"{begin - start} offsets of {name} are lost, {start} to"
                f" {begin - 1}: they were deleted before they were read",
                hint="allow_gap=True continues without them; a longer retention of the"
                " topic prevents this",
            )
        if start < begin and name not in self._told:
            self._told.add(name)
            log.warning(
                "source %s: %s offsets of %s are lost, from %s on",
                self._uid,
                begin - start,
                name,
                start,
            )

    def advance(self, start: Any, latest: Any, max_rows: int) -> Any:
        """Share the rows among partitions: what one does not need, others get."""
        waiting = {
            name: end - _from(start, name)
            for name, end in latest["partitions"].items()
            if end > _from(start, name)
        }
        if not waiting:
            return start
        taken = _shared(waiting, max_rows)
        ends = {n: _from(start, n) + taken.get(n, 0) for n in latest["partitions"]}
        return {**start, "partitions": ends}

    def has_ended(self, start: Any, latest: Any) -> bool:
        """Whether everything up to the promised end is read."""
        return bool(start.get("until") == start["partitions"])

    def rows_between(self, start: Any, end: Any) -> int:
        """Return the number of offsets: records, and gaps between them."""
        return sum(s.end - s.start for s in _spans(start, end))

    def read(self, start: Any, end: Any) -> DataFrame:
        """Read the records, with their values decoded."""
        return self.part(self.read_whole(start, end), bad=False)

    def read_bad(self, start: Any, end: Any) -> DataFrame:
        """Read the records whose values are not such objects."""
        return self.part(self.read_whole(start, end), bad=True)

    @property
    def has_bad_rows(self) -> bool:
        """Whether a value can be bad; ``part`` tells which are."""
        return self._source.payload is not None and self._source.bad_rows == "report"

    def read_whole(self, start: Any, end: Any) -> DataFrame:
        """Read the records as they are, with what their values decode to."""
        frame = self._records(start, end)
        if self._source.payload is None:
            return frame.withColumn(_CORRUPT, F.lit(None).cast("string"))
        decoded = self._decoded(frame)
        counts = self._source.bad_rows == "report" and start != end
        return self._counted(decoded, start) if counts else decoded

    def part(self, whole: DataFrame, *, bad: bool) -> DataFrame:
        """Return the rows of the stream, or those of ``.bad``."""
        corrupt, positions = F.col(_CORRUPT), _positions(whole)
        if bad:
            record = F.col("value").alias("record")
            shown = ("topic", "partition", "offset", record)
            return whole.where(corrupt.isNotNull()).select(*shown, *positions)
        payload, own = self._source.payload, struct_of(COLUMNS).names
        columns = [_renamed(name, self._source.prefix) for name in own]
        if payload is not None:
            columns = [F.col(f"{_BODY}.`{n}`") for n in payload.names]
            kept = [name for name in own if name != "value"]
            columns += [_renamed(name, self._source.prefix) for name in kept]
        return whole.where(corrupt.isNull()).select(*columns, *positions)

    def _counted(self, decoded: DataFrame, start: Any) -> DataFrame:
        """Count bad rows; once per range, however many stages read it."""
        name = str(sorted(start["partitions"].items()))
        known = self._counts.get(name)
        if known is not None and is_counted(known):
            return decoded
        self._counts[name] = counting = Observation()
        bad = F.count_if(F.col(_CORRUPT).isNotNull())
        return decoded.observe(counting, bad.alias("bad_rows"))

    def _decoded(self, frame: DataFrame) -> DataFrame:
        """Add the columns of values, and what is wrong with bad ones."""
        assert self._source.payload is not None
        schema = struct_of(self._source.payload)
        decoding = decoding_of(self._source, self._uid)
        if decoding is None:
            return self._from_json(frame, JsonText(schema, {}))
        more = [StructField(_BODY, schema), StructField(_CORRUPT, StringType())]
        return frame.mapInArrow(decoding, StructType([*frame.schema.fields, *more]))

    def _from_json(self, frame: DataFrame, json: JsonText) -> DataFrame:
        text, row = F.col("value").cast("string"), F.col(_ROW)
        parsed = frame.withColumn(_ROW, json.parsed(text))
        if SEQ in frame.columns:
            # A column that is not computed twice keeps Spark from parsing twice.
            once = F.monotonically_increasing_id() * 0
            parsed = parsed.withColumn(SEQ, F.col(SEQ) + once)
        # A record without any value is one of nulls.
        is_bad = F.col("value").isNotNull() & json.is_bad(text, row)
        said = F.lit("no JSON object of these columns")
        if self._source.bad_rows == "fail":
            number = F.concat_ws("-", "topic", "partition")
            place = F.concat(number, F.lit(" at offset "), "offset")
            said = bad_row_error(self._uid, place, F.make_valid_utf8(text))
        body, corrupt = F.struct(*json.columns(row)), F.when(is_bad, said)
        found = parsed.withColumn(_BODY, body).withColumn(_CORRUPT, corrupt)
        return found.drop(_ROW)

    def _records(self, start: Any, end: Any) -> DataFrame:
        """Return the records as they are, with their positions."""
        struct = struct_of(COLUMNS)
        spans = _spans(start, end)
        if not spans:
            return self._spark.createDataFrame([], struct)
        tasks = spans_by_task(spans, self._spark.sparkContext.defaultParallelism)
        numbers = self._spark.range(0, len(tasks), 1, len(tasks))
        found = StructType([*struct.fields, StructField(SEQ, LongType())])
        return numbers.mapInArrow(_ReadTask(self._record_reader, tasks), found)

    @property
    def schema(self) -> Schema:
        """The columns of the stream."""
        return self._source.schema

    def splits(self, start: Any, end: Any, wanted: int) -> list[KafkaSplit]:
        """Cut the spans of a range, in their order."""
        spans = _spans(start, end)
        shape = self._shape
        return [
            KafkaSplit(self._record_reader, piece.span, shape)
            for piece in _cut(spans, wanted)
        ]

    @property
    def _shape(self) -> RecordShape:
        source = self._source
        decoder = None
        if source.payload is not None:
            decoding = decoding_of(source, self._uid)
            if decoding is None:
                check_json(source.payload, f"source {self._uid!r}")
            decoder = (
                JsonDecoder(source.payload) if decoding is None else decoding.decoder
            )
        return RecordShape(
            columns=source.schema,
            payload=source.payload,
            prefix=source.prefix,
            decoder=decoder,
            reports=source.bad_rows == "report",
        )

    @property
    def _record_reader(self) -> RecordReader:
        source = self._source
        return RecordReader(
            connection=source.connection,
            uid=self._uid,
            isolation=source.isolation,
            allow_gap=source.allow_gap,
        )

    def observed(self, rows: int) -> dict[str, float]:
        """Return how many records could not be parsed."""
        # The oldest is the epoch's own; those behind it were read ahead.
        found, later = 0, {}
        for place, (name, counting) in enumerate(self._counts.items()):
            if is_counted(counting) if place else has_counted(counting):
                found += counting.get["bad_rows"]
            elif place:
                later[name] = counting
        self._counts = later
        return {"bad_rows": found} if found else {}

    def close(self) -> None:
        """Nothing is open that does not close itself."""


def _from(start: Any, name: str) -> int:
    """Return where a partition is read from; a new one, from its beginning."""
    return int(start["partitions"].get(name, 0))


def _spans(start: Any, end: Any) -> list[Span]:
    return [
        Span(topic=topic, partition=number, start=_from(start, name), end=until)
        for name, until in sorted(end["partitions"].items())
        for topic, number in [place_of(name)]
        if until > _from(start, name)
    ]


def _shared(waiting: Mapping[str, int], rows: int) -> dict[str, int]:
    """Share rows evenly; those that need less leave the rest to the others.

    >>> _shared({"a": 5, "b": 100, "c": 100}, 45)
    {'a': 5, 'b': 20, 'c': 20}
    >>> _shared({"a": 5, "b": 5}, 1)
    {'a': 1, 'b': 0}
    """
    found, left = {}, rows
    for place, name in enumerate(sorted(waiting, key=lambda n: (waiting[n], n))):
        share = -(-left // (len(waiting) - place))
        found[name] = min(waiting[name], share)
        left -= found[name]
    return found


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a span, and the position of the span's first offset."""

    span: Span
    base: int


def spans_by_task(spans: list[Span], tasks: int) -> list[list[Piece]]:
    """Cut spans into pieces, and assign each task about as many offsets.

    Positions follow from the spans, so they do not depend on how they are cut.
    """
    pieces = _cut(spans, tasks)
    loads: list[list[Piece]] = [[] for _ in range(min(tasks, len(pieces)))]
    weights = [0] * len(loads)
    for piece in sorted(pieces, key=lambda p: p.span.start - p.span.end):
        least = weights.index(min(weights))
        loads[least].append(piece)
        weights[least] += piece.span.end - piece.span.start
    return loads


def _cut(spans: list[Span], tasks: int) -> list[Piece]:
    """Cut spans into pieces, in their order."""
    total = sum(s.end - s.start for s in spans)
    size = max(_LEAST_OFFSETS, -(-total // tasks))
    return [
        Piece(
            Span(
                topic=s.topic,
                partition=s.partition,
                start=begin,
                end=min(begin + size, s.end),
            ),
            (place << _PLACE_BITS) - s.start,
        )
        for place, s in enumerate(spans)
        for begin in range(s.start, s.end, size)
    ]


@dataclass(frozen=True)
class _ReadTask:
    """What runs in the workers: the task's number says which pieces are its own."""

    reader: RecordReader
    tasks: list[list[Piece]]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column("id").to_pylist():
                for piece in self.tasks[number]:
                    yield from self._read(piece)

    def _read(self, piece: Piece) -> Iterator[pa.RecordBatch]:
        import pyarrow.compute as pc

        try:
            for batch in self.reader.read(piece.span):
                position = pc.add(batch.column("offset"), piece.base)
                yield batch.append_column(SEQ, position)
        except RiverlockError as error:
            raise RemoteError(error) from error


def _renamed(name: str, prefix: str) -> Column:
    return F.col(name).alias(f"{prefix}{name}")


def _positions(frame: DataFrame) -> list[str]:
    return [SEQ] if SEQ in frame.columns else []
