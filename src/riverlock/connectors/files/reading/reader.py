"""Files of a directory, each exactly once.

The offset records what has been read: a *base* file in the store lists the first files,
``recent`` those since, so that every manifest is self-contained and stays small. The
files of an epoch are recorded with size and modification time: reading it again later
either returns the same rows or says which file has changed.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import Observation
from pyspark.sql import functions as F

from riverlock.connectors.files.reading.input_listing import (
    WILDCARDS,
    Entry,
    Listing,
    entry_of,
)
from riverlock.connectors.files.reading.positions import (
    MAX_FILES,
    path_of,
    with_position,
)
from riverlock.connectors.files.reading.rows import CORRUPT, FileRows
from riverlock.connectors.files.reading.splits import FileSplit, check_files
from riverlock.core.errors import SourceError
from riverlock.core.paths import last_directory
from riverlock.core.types import schema_of
from riverlock.core.values.known_types import known
from riverlock.snapshot.format.sealed import checksum
from riverlock.spark.remote import bad_row_error

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, DataFrameReader, SparkSession

    from riverlock.core.types import Schema
    from riverlock.snapshot.format.store_layout import RegionPaths
    from riverlock.sources import Files
    from riverlock.storage.base import Storage

__all__ = ["FilesReader", "has_counted", "is_counted"]

# A manifest carries at most about so many names before they move to a base file.
_MAX_RECENT = 500
_FIRST_GUESS_BYTES_PER_ROW = 64.0
# Whatever the session says: a file that cannot be read is not passed over.
_EXACTLY = {"ignoreMissingFiles": "false", "ignoreCorruptFiles": "false"}
# The last bytes of a Parquet file, in the clear and encrypted.
_PARQUET_ENDS, _PARQUET_END_BYTES = (b"PAR1", b"PARE"), 4
# Hadoop's checksums beside files cannot be named if there is a colon.
_WITH_COLONS = {
    "fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    "fs.file.impl.disable.cache": "true",
}


class FilesReader:
    """Discovers and reads files."""

    gives_positions = True
    can_read_ahead = False
    is_repeatable = True

    def __init__(
        self,
        spark: SparkSession,
        source: Files,
        uid: str,
        place: tuple[Storage, RegionPaths],
    ) -> None:
        """Keep the description; nothing is listed yet."""
        self._spark, self._source, self._uid = spark, source, uid
        self._storage, self._paths = place
        self._rows = FileRows(source)
        self._listing = Listing(
            source.path,
            uid,
            encoding=lambda: _java_encoding(spark),
            waits=source.missing == "wait",
        )
        self._bytes_per_row = _FIRST_GUESS_BYTES_PER_ROW
        self._last_bytes = 0
        # Where the plan in progress starts and ends, what was read before it, and what
        # was found beyond. A plan may be dropped, or lose its epoch to another run.
        self._start: Any = None
        self._end: Any = None
        self._seen: dict[str, Entry] = {}
        self._bases: dict[str, list[Entry]] = {}
        self._found: list[Entry] = []
        self._counting: Observation | None = None
        # Of the last range, if its files say it themselves.
        self._stored_rows: int | None = None

    def initial(self) -> Any:
        """Nothing has been read.

        Raises:
            SourceError: There is no such directory, and the source does not wait for
                it.
        """
        self._listing.is_there()
        return {"count": 0, "base": None, "recent": [], "path": self._source.path}

    def check_place(self, offset: Any) -> None:
        """Refuse to continue with other files than those that were read so far."""
        meant, mine = offset["path"], self._source.path
        if meant == mine:
            return
        begun = last_directory(self._source.given, meant)
        if begun is not None:
            raise SourceError(
                self._uid,
                what=f"{self._source.given!r} means {mine} here, and meant {meant} when"
                f" the flow last ran, in {begun}",
                hint=f"nothing was changed; start it in {begun}, or write the whole"
                f" path; if the files were moved, make {meant} a link to where they"
                " are now, and write that path",
            )
        raise SourceError(
            self._uid,
            what=f"what was read so far came from {meant}, not {mine}",
            hint=f"nothing was changed; give the source {meant} again; files of another"
            " place are another source: read them by a source with a uid of its own",
        )

    def latest(self, start: Any) -> Any:
        """List the directory; new files are those not read before.

        Raises:
            SourceError: It no longer exists, and the source does not wait for it.
        """
        self._go_to(start)
        is_there = self._listing.is_there()
        known = self._seen.keys() | {e[0] for e in self._found}
        fresh = []
        for entry in self._listing.files() if is_there else ():
            if entry[0] not in known:
                fresh.append(entry)
            elif self._seen.get(entry[0], entry) != entry:
                self._listing.tell_changed(entry[0])
        self._found += sorted(fresh, key=lambda e: (e[2], e[0]))
        return {"count": start["count"] + len(self._found)}

    def has_ended(self, start: Any, latest: Any) -> bool:
        """Whether all files are read, and no more were promised."""
        is_read = bool(start["count"] == latest["count"])
        return self._source.bounded and is_read and self._listing.is_there()

    def advance(self, start: Any, latest: Any, max_rows: int) -> Any:
        """Take files until they hold about ``max_rows``; at least one."""
        self._go_to(start)
        budget = max_rows * self._bytes_per_row
        limit = latest["count"] - start["count"]
        taken: list[Entry] = []
        for entry in self._found[: min(limit, MAX_FILES)]:
            if taken and budget < entry[1]:
                break
            budget -= entry[1]
            taken.append(entry)
        if not taken:
            return start
        self._last_bytes = sum(e[1] for e in taken)
        self._end = self._offset(start, taken)
        return self._end

    def _go_to(self, start: Any) -> None:
        """Go to where a plan starts; only what lies before it has been read."""
        if start == self._start:
            return
        self.check_place(start)
        if self._start is not None and start == self._end:
            taken = start["count"] - self._start["count"]
            self._seen |= {e[0]: e for e in self._found[:taken]}
            self._found = self._found[taken:]
        else:
            self._seen = {e[0]: e for e in self._entries(start)}
            self._found = [e for e in self._found if e[0] not in self._seen]
        self._start, self._end = start, None

    def _offset(self, start: Any, taken: list[Entry]) -> Any:
        count, base, recent = start["count"], start["base"], start["recent"]
        if len(recent) > _MAX_RECENT:
            base, recent = self._write_base(start), []
        more = {"count": count + len(taken), "base": base, "recent": recent + taken}
        return {**start, **more}

    def _write_base(self, offset: Any) -> str:
        body = msgspec.json.encode(self._entries(offset))
        # Never a name again: one that was left behind may just be swept.
        name = f"{self._uid}/{offset['count']:012d}-{checksum(body)}-{uuid4().hex[:12]}"
        path = f"{self._paths.root}sources/{name}.json"
        self._storage.put(path, body)
        return path

    def _entries(self, offset: Any) -> list[Entry]:
        """Return everything read up to an offset, in order."""
        base = offset["base"]
        if base is None:
            return list(offset["recent"])
        if base not in self._bases:
            body = self._storage.get(base)
            if checksum(body) not in base:
                raise SourceError(self._uid, what=f"its list {base} is damaged")
            self._bases = {base: msgspec.json.decode(body, type=known(list[Entry]))}
        recent: list[Entry] = offset["recent"]
        return self._bases[base] + recent

    def _between(self, start: Any, end: Any) -> list[Entry]:
        return self._entries(end)[start["count"] : end["count"]]

    def rows_between(self, start: Any, end: Any) -> int | None:
        """Unknown until read; none for an empty range."""
        return 0 if start["count"] == end["count"] else None

    def read(self, start: Any, end: Any) -> DataFrame:
        """Read the rows that can be parsed."""
        frame = self._raw(start, end)
        self._counting = None
        if not self._rows.has_bad:
            # The ends of Parquet files say it without any counting.
            is_text = self._source.format == "text" and start != end
            return self._counted(frame, F.count(F.lit(1))) if is_text else frame
        corrupt = F.col(CORRUPT)
        if self._source.bad_rows == "fail":
            said = bad_row_error(self._uid, F.input_file_name(), corrupt)
            bad = F.when(corrupt.isNotNull(), said)
            frame = frame.withColumn(CORRUPT, bad).where(corrupt.isNull()).drop(CORRUPT)
            return frame if start == end else self._counted(frame, F.count(F.lit(1)))
        if start != end:
            bad = F.count_if(corrupt.isNotNull()).alias("bad_rows")
            frame = self._counted(frame, F.count_if(corrupt.isNull()), bad)
        return frame.where(corrupt.isNull()).drop(CORRUPT)

    def _counted(self, frame: DataFrame, rows: Column, *more: Column) -> DataFrame:
        """Return a frame that counts its rows when it is read."""
        self._counting = Observation()
        return frame.observe(self._counting, rows.alias("rows"), *more)

    def rows_read(self) -> int | None:
        """Return how many rows were read, bad ones apart."""
        if self._counting is None:
            return self._stored_rows
        if not has_counted(self._counting):
            self._counting = None
            return None
        return int(self._counting.get["rows"])

    def read_bad(self, start: Any, end: Any) -> DataFrame:
        """Read the rows that cannot be parsed: ``file, record``."""
        frame = self._raw(start, end)
        file, record = F.input_file_name().alias("file"), F.lit("").alias("record")
        if not self._rows.has_bad or self._source.bad_rows == "fail":
            return frame.select(file, record).limit(0)
        corrupt = F.col(CORRUPT)
        return frame.where(corrupt.isNotNull()).select(file, corrupt.alias("record"))

    def _raw(self, start: Any, end: Any) -> DataFrame:
        entries = self._between(start, end)
        self._check_entries(entries)
        if not entries:
            return self._spark.createDataFrame([], self._rows.empty_schema)
        places = {e[0]: n for n, e in enumerate(entries)}
        largest = max(e[1] for e in entries)

        def positioned(frame: DataFrame) -> DataFrame:
            self._check_all(frame, places)
            return with_position(frame, places, largest)

        paths = [_as_pattern(e[0]) for e in entries]
        return self._rows.read(self._reader(entries), paths, positioned)

    def _check_entries(self, entries: list[Entry]) -> None:
        """Check that files are what they were; count the rows of those that say it."""
        is_parquet = self._source.format == "parquet"
        for entry in entries:
            self._check(entry)
            if is_parquet:
                self._check_end(entry)
        counts = is_parquet and entries
        self._stored_rows = sum(_rows_of(e) for e in entries) if counts else None

    def _reader(self, entries: list[Entry]) -> DataFrameReader:
        reader = self._spark.read.options(**_EXACTLY)
        if any(":" in Path(e[0]).name for e in entries):
            reader = reader.options(**_WITH_COLONS)
        return reader

    def _check_all(self, frame: DataFrame, places: dict[str, int]) -> None:
        """Check that Spark reads every file: it ignores some names."""
        left = places.keys() - {path_of(uri) for uri in frame.inputFiles()}
        if left:
            raise SourceError(
                self._uid,
                what=f"Spark does not read {', '.join(sorted(left))}",
                hint="rename the file; nothing was read yet",
            )

    def recheck(self, start: Any, end: Any) -> None:
        """Check that files are, after they were read, as they were planned."""
        for entry in self._between(start, end):
            self._check(entry)

    def _check(self, entry: Entry) -> None:
        try:
            now = entry_of(Path(entry[0]))
        except FileNotFoundError as error:
            raise SourceError(
                self._uid,
                what=f"file {entry[0]} is gone before its epoch was committed",
                hint="put it back; the epoch is read again then",
            ) from error
        if now != entry:
            raise SourceError(
                self._uid,
                what=f"file {entry[0]} has changed since it was first seen",
                hint="files must be moved in whole and never changed",
            )

    def _check_end(self, entry: Entry) -> None:
        """Check that a Parquet file has an end; Spark ignores empty ones."""
        with Path(entry[0]).open("rb") as file:
            file.seek(max(0, entry[1] - _PARQUET_END_BYTES))
            if file.read() in _PARQUET_ENDS:
                return
        raise SourceError(
            self._uid,
            what=f"file {entry[0]} is not a Parquet file, or its end was cut off",
            hint="nothing of this epoch was read or written; put the whole file in its"
            " place, or remove it, and start again",
        )

    @property
    def schema(self) -> Schema:
        """The columns.

        Raises:
            InvalidFlowError: Only Spark reads such files.
        """
        check_files(self._source, self._uid)
        assert self._source.schema is not None
        return self._source.schema

    def splits(self, start: Any, end: Any, wanted: int) -> list[FileSplit]:
        """Return the files of a range.

        Raises:
            SourceError: A file is gone, or not what it was.
        """
        entries = self._between(start, end)
        columns = self.schema
        self._check_entries(entries)
        self._counting = None
        return [
            FileSplit(
                path=entry[0],
                format=self._source.format,
                columns=columns,
                bad_columns=schema_of(self._source.bad_columns),
                fails=self._source.bad_rows == "fail",
                uid=self._uid,
            )
            for entry in entries
        ]

    def observed(self, rows: int) -> dict[str, float]:
        """Learn how large rows are; report what could not be read."""
        if rows and self._last_bytes:
            self._bytes_per_row = self._last_bytes / rows
        noticed = {}
        if self._listing.set_aside:
            noticed["files_set_aside"] = float(len(self._listing.set_aside))
        counting, self._counting = self._counting, None
        if counting is None or not has_counted(counting):
            return noticed
        bad = {n: each for n, each in counting.get.items() if n == "bad_rows"}
        return noticed | bad

    def close(self) -> None:
        """Nothing is open."""


def _rows_of(entry: Entry) -> int:
    with suppress(pa.ArrowException):  # what is wrong with it, Spark tells
        return int(pq.read_metadata(entry[0]).num_rows)
    return 0


def is_counted(counting: Observation) -> bool:
    """Tell whether a count is available by now."""
    observed: Any = counting._jo
    return observed is not None and bool(observed.future().isCompleted())


def has_counted(counting: Observation) -> bool:
    """Wait a little for a count; Spark may have found that it need not count at all."""
    pause = threading.Event()
    for _ in range(100):
        if is_counted(counting):
            return True
        pause.wait(0.01)
    return False


def _java_encoding(spark: SparkSession) -> str:
    """Return the encoding in which Java spells names of files."""
    jvm: Any = spark._jvm
    return str(jvm.java.lang.System.getProperty("sun.jnu.encoding"))


def _as_pattern(path: str) -> str:
    # Spark reads patterns: a bracket in a name must not be one.
    for char in WILDCARDS:
        path = path.replace(char, f"\\{char}")
    return f"file://{path}"
