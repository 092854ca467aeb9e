"""Structured Streaming DataFrames, landed in a channel and read from there."""

from __future__ import annotations

import re
import uuid
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from riverlock.connectors.base.stager import StagePoint
from riverlock.connectors.builtin_stagers import TableStager
from riverlock.connectors.files.reading.positions import MAX_FILES, with_position
from riverlock.core.errors import SourceError
from riverlock.core.types import schema_of
from riverlock.snapshot.format.channels import Channel, Segment

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from riverlock.sources import SparkStream
    from riverlock.storage.base import Storage

__all__ = ["LandingReader"]

# The folder beside Spark's own in which steps are noted.
_LANDED = "landed"
_NOTE = re.compile(r"(\d+)-(\d+)")
_PUT_BACK = (
    "put back a backup of the whole store that was made while the flow was down, or"
    " begin with a new store"
)


class LandingReader:
    """Starts Spark's query on first use and reads what it has landed."""

    gives_positions = True
    can_read_ahead = True
    is_repeatable = True

    def __init__(
        self,
        spark: SparkSession,
        source: SparkStream,
        uid: str,
        storage: Storage,
        *,
        takes_all: bool,
    ) -> None:
        """Build the streaming DataFrame, to know its columns.

        With ``takes_all`` everything that Spark's source has now is landed first.
        """
        self._takes_all = takes_all
        self._spark, self._source, self._uid = spark, source, uid
        self._channel = Channel(storage, source.channel)
        self._frame: DataFrame = source.build(spark)
        if not self._frame.isStreaming:
            raise SourceError(uid, what="build() did not return a streaming DataFrame")
        self._query: Any = None
        self._next = 0
        self._noted: str | None = None

    def initial(self) -> Any:
        """Begin at the first segment."""
        return {"channel": self._channel.name, "segment": 0}

    def latest(self, start: Any) -> Any:
        """Return the number of segments that exist by now.

        Raises:
            SourceError: Spark's query has failed, a segment no longer exists, or the
                position belongs to another channel.
        """
        name = self._channel.name
        if start.get("channel", name) != name:
            raise SourceError(
                self._uid,
                what=f"it was read up to a segment of channel {start['channel']!r}, and"
                f" lands in channel {name!r} now",
                hint="give the source its channel back, or another uid",
            )
        if self._query is None:
            self._check_whole(start["segment"])
            self._query = self._start()
            if self._takes_all:
                self._query.awaitTermination()
        failure = self._query.exception()
        if failure is not None:
            raise SourceError(
                self._uid, what=f"its Structured Streaming query failed: {failure}"
            )
        landed = self._next  # first: it grows beside us
        end = self._channel.end_after(start["segment"])
        if end < landed:
            raise SourceError(
                self._uid,
                what=f"segment {end} of channel {name!r} was deleted, as"
                " all epochs that are kept had passed it",
                hint="go back to an epoch that has read this source, or begin with a"
                " new store",
            )
        return self._at(start, end)

    def _check_whole(self, position: int) -> None:
        """Refuse to land where the channel, its query and its reader do not agree.

        They are of one moment, unless a store was copied while its flow ran.
        """
        name, end = self._channel.name, self._channel.end()
        if end < position:
            raise SourceError(
                self._uid,
                what=f"it was read up to segment {position}, and channel {name!r} has"
                f" {end}: what lands next would never be read",
                hint=f"nothing was changed; {_PUT_BACK}",
            )
        if not self._source.is_replayable:
            return
        self._check_landed()
        last = self._channel.segment(end - 1) if end else None
        if last is None:
            return
        if last.writer != self._uid:
            raise SourceError(
                self._uid,
                what=f"channel {name!r} was landed by source {last.writer!r}: another"
                " query would land everything once more",
                hint="nothing was changed; give the source its uid back, or another"
                " channel",
            )
        step = self._last_step("offsets")
        if step is None or step < last.step:
            went = "is gone" if step is None else f"ends with step {step}"
            raise SourceError(
                self._uid,
                what=f"segment {last.number} of channel {name!r} is of step"
                f" {last.step}, and the checkpoint of Spark's query {went}: steps that"
                " come again may have other rows, which would not land",
                hint=f"nothing was changed; {_PUT_BACK}",
            )

    def _check_landed(self) -> None:
        """Refuse to go on without segments that Spark's query has landed."""
        found = map(_NOTE.fullmatch, self._names(_LANDED))
        notes = [(int(note[1]), int(note[2])) for note in found if note]
        if not notes:
            return  # nothing has landed, or by an older version
        step, segments = max(notes)
        end, done = self._channel.end(), self._last_step("commits")
        if end >= segments and (done is None or done <= step):
            return
        raise SourceError(
            self._uid,
            what=f"Spark's query has landed step {max(step, done or 0)}, and channel"
            f" {self._channel.name!r} ends with segment {end - 1}: rows are missing",
            hint=f"nothing was changed; {_PUT_BACK}",
        )

    def _note(self, writer: str, step: int) -> None:
        """Keep how many segments there are after a step, before Spark commits it."""
        storage, before = self._channel.storage, self._noted
        folder = f"{self._channel.landing(writer)}{_LANDED}/"
        self._noted = f"{folder}{step}-{self._next}"
        storage.put(self._noted, b"")
        if before not in (None, self._noted):
            storage.delete(before)

    def _names(self, part: str) -> list[str]:
        """Return the files in a folder of the bookkeeping."""
        folder = f"{self._channel.landing(self._uid)}{part}/"
        found = self._channel.storage.list(folder)
        return [entry.path.removeprefix(folder) for entry in found]

    def _last_step(self, part: str) -> int | None:
        """Return the last step that the bookkeeping of Spark's query has."""
        steps = (int(name) for name in self._names(part) if name.isdecimal())
        return max(steps, default=None)

    def _at(self, start: Any, end: int) -> Any:
        """Return a position; one that older versions wrote gets its name with rows."""
        if end == start["segment"]:
            return start
        return {"channel": self._channel.name, "segment": end}

    def advance(self, start: Any, latest: Any, max_rows: int) -> Any:
        """Take segments until they hold ``max_rows``; at least one."""
        end, rows = start["segment"], 0
        files = 0
        while end < latest["segment"] and (rows == 0 or rows < max_rows):
            segment = self._channel.segment(end)
            assert segment
            files += len(segment.files)
            if files > MAX_FILES and end > start["segment"]:
                break
            rows += segment.rows
            end += 1
        return self._at(start, end)

    def has_ended(self, start: Any, latest: Any) -> bool:
        """Never: nobody says that no more will come."""
        return False

    def rows_between(self, start: Any, end: Any) -> int:
        """Return the rows of the segments."""
        return sum(s.rows for s in self._segments(start, end))

    def _segments(self, start: Any, end: Any) -> list[Segment]:
        found = []
        for number in range(start["segment"], end["segment"]):
            segment = self._channel.segment(number)
            if segment is None:
                raise SourceError(self._uid, what=f"segment {number} is missing")
            found.append(segment)
        return found

    def read(self, start: Any, end: Any) -> DataFrame:
        """Read the segments' files."""
        schema: StructType = self._frame.schema
        root = self._channel.storage.uri.rstrip("/")
        files = [f for s in self._segments(start, end) for f in s.files]
        names = [f["path"] for f in files]
        if not names:
            return self._spark.createDataFrame([], schema)
        frame = self._spark.read.schema(schema).parquet(*(f"{root}/{n}" for n in names))
        # Names of files are unique in a channel, whatever folder they are in.
        places = {n.rpartition("/")[2]: place for place, n in enumerate(names)}
        return with_position(frame, places, max(f["bytes"] for f in files))

    def observed(self, rows: int) -> dict[str, float]:
        """Nothing to learn."""
        return {}

    def close(self) -> None:
        """Stop Spark's query."""
        if self._query is not None:
            self._query.stop()

    def _start(self) -> Any:
        source, storage = self._source, self._channel.storage
        self._next = self._channel.end()
        writer = self._uid
        if not source.is_replayable:
            # Spark refuses to start a socket from an old checkpoint: each run has its
            # own, and those of the runs before are of no use.
            writer = uuid.uuid4().hex
            for entry in storage.list(f"{self._channel.root}landing/"):
                storage.delete(entry.path)
        place = f"{storage.uri.rstrip('/')}/{self._channel.landing(writer)}"
        query = self._frame.writeStream.option("checkpointLocation", place)
        if self._takes_all:
            query = query.trigger(availableNow=True)
        elif source.trigger_us:
            query = query.trigger(
                processingTime=f"{source.trigger_us // 1000} milliseconds"
            )
        return query.foreachBatch(
            lambda frame, step: self._land(frame, step, writer)
        ).start()

    def _land(self, frame: DataFrame, step: int, writer: str) -> None:
        """Append a micro-batch as a segment, unless it exists already."""
        self._append(frame, step, writer)
        self._note(writer, step)

    def _append(self, frame: DataFrame, step: int, writer: str) -> None:
        last = self._channel.segment(self._next - 1) if self._next else None
        if last and last.writer == writer and last.step >= step:
            return
        folder = f"{self._channel.root}data/{self._next:012d}"
        stage = _stage_with(self._channel.storage, folder, self._next)
        found = frame.mapInArrow(stage, "token binary").collect()
        import msgspec

        files = [f for row in found for f in msgspec.json.decode(row.token)]
        rows = sum(f["rows"] for f in files)
        if rows == 0:
            return
        segment = Segment(
            number=self._next,
            files=tuple(files),
            rows=rows,
            writer=writer,
            step=step,
            schema=schema_of(frame.schema).ddl,
        )
        if not self._channel.append(segment):
            raise SourceError(
                self._uid, what=f"another run landed segment {self._next}"
            )
        self._next += 1


def _stage_with(storage: Storage, folder: str, number: int) -> Any:
    def stage(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import msgspec

        found = [b for b in batches if b.num_rows]
        tokens: list[Any] = []
        if found:
            at = StagePoint(
                storage=storage, folder=folder, epoch=number, attempt=uuid.uuid4().hex
            )
            tokens = TableStager(sink="landed").stage(pa.Table.from_batches(found), at)
        yield pa.RecordBatch.from_pydict({"token": [msgspec.json.encode(tokens)]})

    return stage
