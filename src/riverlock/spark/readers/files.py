"""Files of a directory, each exactly once.

The offset carries what has been read: a *base* file in the store lists the first files,
``recent`` those since, so that every manifest is self-contained and stays small. The
files of an epoch are named with size and time of change: reading it again later either
gives the same rows or says which file has changed.
"""

from __future__ import annotations

import glob
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from pyspark.sql import Observation
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField

from riverlock.core.errors import SourceError
from riverlock.snapshot.sealed import checksum
from riverlock.spark.readers.positions import MAX_FILES, with_position
from riverlock.spark.structs import struct_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import Column, DataFrame, SparkSession

    from riverlock.snapshot.layout import RegionPaths
    from riverlock.sources import Files
    from riverlock.storage.base import Storage

__all__ = ["FilesReader", "has_counted", "is_counted"]

_CORRUPT = "__rl_corrupt"
# A manifest carries at most about so many names before they move to a base file.
_MAX_RECENT = 500
_FIRST_GUESS_BYTES_PER_ROW = 64.0

Entry = list[Any]  # path, size, time of change in microseconds


class FilesReader:
    """Discovers and reads files."""

    gives_positions = True
    can_read_ahead = False

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
        self._bytes_per_row = _FIRST_GUESS_BYTES_PER_ROW
        self._last_bytes = 0
        # Where the plan under way starts and ends, what was read before it, and what
        # was found beyond. A plan may be dropped, or lose its epoch to another run.
        self._start: Any = None
        self._end: Any = None
        self._seen: set[str] = set()
        self._bases: dict[str, list[Entry]] = {}
        self._found: list[Entry] = []
        self._counting: Observation | None = None

    def initial(self) -> Any:
        """Nothing has been read."""
        path = os.path.abspath(self._source.path)  # noqa: PTH100 - it may be a pattern
        return {"count": 0, "base": None, "recent": [], "path": path}

    def latest(self, start: Any) -> Any:
        """List the directory; new files are those not read before."""
        self._go_to(start)
        known = self._seen | {e[0] for e in self._found}
        fresh = [e for e in self._list() if e[0] not in known]
        self._found += sorted(fresh, key=lambda e: (e[2], e[0]))
        return {"count": start["count"] + len(self._found)}

    def has_ended(self, start: Any, latest: Any) -> bool:
        """Whether all files are read, and no more were promised."""
        return self._source.bounded and bool(start["count"] == latest["count"])

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
        """Stand where a plan starts; only what lies before it has been read."""
        if start == self._start:
            return
        mine = self.initial()["path"]
        if start["path"] != mine:
            raise SourceError(
                self._uid,
                what=f"what was read so far came from {start['path']}, not {mine}",
                hint="give each source a uid of its own; a new uid begins anew",
            )
        if self._start is not None and start == self._end:
            taken = start["count"] - self._start["count"]
            read = {e[0] for e in self._found[:taken]}
            self._found = self._found[taken:]
            self._seen |= read
        else:
            self._seen = {e[0] for e in self._entries(start)}
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
        name = f"{self._uid}/{offset['count']:012d}-{checksum(body)}"
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
            self._bases = {base: msgspec.json.decode(body, type=list[Entry])}
        recent: list[Entry] = offset["recent"]
        return self._bases[base] + recent

    def _between(self, start: Any, end: Any) -> list[Entry]:
        return self._entries(end)[start["count"] : end["count"]]

    def _list(self) -> Iterator[Entry]:
        roots = glob.glob(self._source.path) or [self._source.path]  # noqa: PTH207 - absolute too
        for root in roots:
            if Path(root).is_file():
                yield from _entry_if_there(Path(root))
            for folder, folders, names in os.walk(root):
                folders[:] = [f for f in folders if not f.startswith((".", "_"))]
                for name in names:
                    if not name.startswith((".", "_")) and not name.endswith(".tmp"):
                        yield from _entry_if_there(Path(folder, name))

    def rows_between(self, start: Any, end: Any) -> int | None:
        """Unknown until read; none for an empty range."""
        return 0 if start["count"] == end["count"] else None

    def read(self, start: Any, end: Any) -> DataFrame:
        """Read the rows that can be parsed."""
        frame = self._raw(start, end)
        if _CORRUPT not in frame.columns:
            return frame
        if start != end:
            self._counting = Observation()
            bad = F.count_if(F.col(_CORRUPT).isNotNull()).alias("bad_rows")
            frame = frame.observe(self._counting, bad)
        good = F.col(_CORRUPT).isNull() & _looks_elsewhere(frame)
        return frame.where(good).drop(_CORRUPT)

    def read_bad(self, start: Any, end: Any) -> DataFrame:
        """Read the rows that cannot be parsed: ``file, record``."""
        frame = self._raw(start, end)
        file, record = F.input_file_name().alias("file"), F.lit("").alias("record")
        if _CORRUPT not in frame.columns:
            return frame.select(file, record).limit(0)
        bad = F.col(_CORRUPT).isNotNull() & _looks_elsewhere(frame)
        return frame.where(bad).select(file, F.col(_CORRUPT).alias("record"))

    def _raw(self, start: Any, end: Any) -> DataFrame:
        source = self._source
        assert source.schema is not None
        schema = struct_of(source.schema)
        reader = self._spark.read.format(source.format).options(**source.options)
        if source.format in ("json", "csv"):
            if source.bad_rows == "fail":
                reader = reader.option("mode", "FAILFAST")
            else:
                schema.add(StructField(_CORRUPT, StringType()))
                reader = reader.option("columnNameOfCorruptRecord", _CORRUPT)
        entries = self._between(start, end)
        for entry in entries:
            self._check(entry)
        if not entries:
            return self._spark.createDataFrame([], schema)
        frame = reader.schema(schema).load([_as_pattern(e[0]) for e in entries])
        return with_position(frame, {e[0]: n for n, e in enumerate(entries)})

    def _check(self, entry: Entry) -> None:
        try:
            now = _entry(Path(entry[0]))
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

    def observed(self, rows: int) -> dict[str, float]:
        """Learn how large rows are; tells how many could not be parsed."""
        if rows and self._last_bytes:
            self._bytes_per_row = self._last_bytes / rows
        counting, self._counting = self._counting, None
        if counting is None or not has_counted(counting):
            return {}
        return dict(counting.get)

    def close(self) -> None:
        """Nothing is open."""


def is_counted(counting: Observation) -> bool:
    """Tell whether a count is there by now."""
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


def _looks_elsewhere(frame: DataFrame) -> Column:
    """Return a truth that reads another column than the corrupt one.

    Spark refuses plans that read only that one, and optimises plainer truths away.
    """
    return F.hash(F.col(f"`{frame.columns[0]}`")) % 2 < 5


def _entry(path: Path) -> Entry:
    stat = path.stat()
    return [str(path.absolute()), stat.st_size, stat.st_mtime_ns // 1_000]


def _entry_if_there(path: Path) -> list[Entry]:
    """Return the entry of a file, unless it vanished since it was listed."""
    try:
        return [_entry(path)]
    except FileNotFoundError:
        return []


def _as_pattern(path: str) -> str:
    # Spark reads patterns: a bracket in a name must not be one.
    for char in "[]{}*?":
        path = path.replace(char, f"\\{char}")
    return f"file://{path}"
