"""Tables of databases: ranges of a column, fixed by the driver and read by tasks."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.types import LongType, StructField, StructType

from riverlock.connectors.databases.reading.added_behind import AddedBehind
from riverlock.connectors.databases.reading.offsets import decoded, encoded
from riverlock.connectors.databases.reading.questions import VALUE, Database
from riverlock.connectors.databases.reading.ranges import (
    Piece,
    PieceReader,
    SqlSplit,
    between,
    changed,
)
from riverlock.connectors.databases.reading.selection import Selection, select
from riverlock.connectors.databases.reading.settling import Settling, open_transactions
from riverlock.connectors.databases.reading.table_place import (
    check_same_table,
    place_of_table,
)
from riverlock.core.errors import (
    RiverlockError,
    SourceError,
    SourceUnavailableError,
)
from riverlock.core.hidden_columns import SEQ
from riverlock.spark.remote import RemoteError
from riverlock.spark.structs import struct_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from riverlock.connectors.databases.source import Sql
    from riverlock.core.clock import Clock
    from riverlock.core.types import Schema

__all__ = ["SqlReader"]

# Reading less than this in a task of its own costs more than it saves.
_LEAST_ROWS: Final = 10_000
_PATIENCE_SECONDS: Final = 60.0
_PAUSE_SECONDS: Final = 0.05


class SqlReader:
    """Fixes ranges of the column, and has tasks read them.

    An offset is ``{"value": the last value read, "rows": how many rows so far}``, with
    the place they were read from; for a bounded source also ``"until"``, the value it
    ends with. A range has the rows after its start's value, up to and including its
    end's. Their number is checked when they are read, so that stages and tasks that
    read at different times read the same.
    """

    gives_positions = True
    can_read_ahead = True
    is_repeatable = False  # rows may be updated meanwhile

    def __init__(
        self,
        spark: SparkSession,
        source: Sql,
        uid: str,
        clock: Clock,
        *,
        takes_all: bool,
    ) -> None:
        """Nothing is asked yet.

        Raises:
            InvalidConfigError: The database's client is not installed.
        """
        self._spark, self._source, self._uid = spark, source, uid
        self._clock, self._takes_all = clock, takes_all
        self._database = Database(source.address, uid)
        self._settling = Settling(delay_us=source.delay_us or 0)
        self._watches = source.delay_us is None and (
            source.address.dialect == "postgresql"
        )
        self._behind = AddedBehind(self._database, uid, source.column)
        self._known: Selection | None = None

    @property
    def _selection(self) -> Selection:
        if self._known is None:
            self._known = select(self._database, self._source, self._uid)
        return self._known

    def initial(self) -> Any:
        """Examine the table; for a bounded source also where it ends.

        Raises:
            InvalidFlowError: Table or column do not exist, or cannot be used.
        """
        _ = self._selection
        place = place_of_table(self._source)
        offset = {"value": encoded(self._source.after), "rows": 0, **place}
        if self._source.bounded:
            newest = self._newest(offset["value"])
            offset["until"] = offset["value"] if newest is None else newest
        return offset

    def check_place(self, offset: Any) -> None:
        """Refuse to continue at another table, whose rows were not read so far."""
        check_same_table(self._source, self._uid, offset)

    def latest(self, start: Any) -> Any:
        """Return the greatest value below which no new values will come.

        Raises:
            SourceError: The column is null in a row, or a row was added with a value
                that was passed already.
        """
        if "until" in start:
            if start["value"] != start["until"]:
                self._check_nulls()
            return {"value": start["until"]}
        self._check_nulls()
        newest = self._see(start)
        if newest is None and start["rows"]:
            self._behind.look(self._selection, start["value"])
        if newest is not None and self._takes_all:
            self._wait(start)
        is_settled = newest is not None and self._settling.settled is not None
        return {"value": self._settling.settled if is_settled else start["value"]}

    def _see(self, start: Any) -> Any:
        """Return the greatest value there is, and have it settle."""
        newest = self._newest(start["value"])
        if newest is not None and not self._selection.is_unique:
            # More rows of the greatest value may come.
            newest = self._newest(start["value"], below=newest)
        # In this order: who is open after a value was seen may have smaller ones.
        is_open = (
            open_transactions(self._database, self._uid)
            if self._watches
            else frozenset[str]()
        )
        self._settling.see(newest, is_open, self._clock.elapsed_us())
        return newest

    def _wait(self, start: Any) -> None:
        """Wait until what was there when it was asked for is settled.

        Raises:
            SourceUnavailableError: A transaction stays open.
        """
        patience = _PATIENCE_SECONDS + self._settling.delay_us / 1e6
        until = time.monotonic() + patience
        before = self._settling.settled
        while self._settling.is_waiting and self._settling.settled == before:
            if time.monotonic() > until:
                raise SourceUnavailableError(
                    self._uid,
                    what=f"a transaction at {self._source.address} that may add rows"
                    f" has been open for {patience:.0f} seconds",
                )
            time.sleep(_PAUSE_SECONDS)
            self._see(start)

    def _newest(self, lower: Any, *, below: Any = None) -> Any:
        """Return the greatest value after another one, optionally below a third."""
        column = self._selection.column
        bounds = [(">", lower), ("<", below)]
        given = [(sign, value) for sign, value in bounds if value is not None]
        conditions = [f"{column} {sign} {VALUE}" for sign, _ in given]
        where = " AND ".join(conditions) or f"{column} IS NOT NULL"
        found = self._database.ask(
            f"SELECT {column} FROM {self._selection.source} WHERE {where}"
            f" ORDER BY {column} DESC LIMIT 1",
            *(decoded(value) for _, value in given),
        )
        return self._encoded(found[0][0]) if found else None

    def _encoded(self, value: Any) -> Any:
        try:
            return encoded(value)
        except TypeError as error:
            raise SourceError(
                self._uid,
                what=f"column {self._source.column!r} has a value of type {error}",
                hint="it must be a whole number, decimal, text, date or time",
            ) from None

    def _check_nulls(self) -> None:
        chosen = self._selection
        found = self._database.ask(
            f"SELECT 1 FROM {chosen.source} WHERE {chosen.column} IS NULL LIMIT 1"
        )
        if found:
            raise SourceError(
                self._uid,
                what=f"column {self._source.column!r} is null in a row, which would"
                " never be read",
                hint="fill it, or leave such rows out: query='SELECT ... WHERE"
                f" {self._source.column} IS NOT NULL'",
            )

    def advance(self, start: Any, latest: Any, max_rows: int) -> Any:
        """Take that many rows, and those with the same value as the last one."""
        if latest["value"] in (None, start["value"]):
            return start
        chosen = self._selection
        condition, values = between(chosen.column, start["value"], latest["value"])
        found = self._database.ask(
            f"SELECT {chosen.column} FROM {chosen.source} WHERE {condition}"
            f" ORDER BY {chosen.column} LIMIT 1 OFFSET {max_rows - 1}",
            *values,
        )
        end = self._encoded(found[0][0]) if found else latest["value"]
        rows = self._count(start["value"], end)
        if not rows and "until" not in start:
            return start  # they were deleted
        place = place_of_table(self._source)
        return {**start, "value": end, "rows": start["rows"] + rows, **place}

    def _count(self, lower: Any, upper: Any) -> int:
        condition, values = between(self._selection.column, lower, upper)
        found = self._database.ask(
            f"SELECT count(*) FROM {self._selection.source} WHERE {condition}", *values
        )
        return int(found[0][0])

    def has_ended(self, start: Any, latest: Any) -> bool:
        """Whether everything up to the promised end is read."""
        return "until" in start and start["until"] == start["value"]

    def rows_between(self, start: Any, end: Any) -> int | None:
        """Return the number of rows that were counted; waiting rows are not."""
        if start["value"] == end["value"]:
            return 0
        return end["rows"] - start["rows"] if "rows" in end else None

    def read(self, start: Any, end: Any) -> DataFrame:
        """Read the rows in tasks; positions do not depend on how they are shared."""
        struct = struct_of(self._selection.schema)
        if start == end:
            return self._spark.createDataFrame([], struct)
        found = StructType([*struct.fields, StructField(SEQ, LongType())])
        tasks = self._spark.sparkContext.defaultParallelism
        pieces = self.pieces(start, end, tasks)
        if not pieces:
            return self._spark.createDataFrame([], found)
        numbers = self._spark.range(0, len(pieces), 1, len(pieces))
        return numbers.mapInArrow(_ReadTask(self.piece_reader, pieces), found)

    @property
    def schema(self) -> Schema:
        """The columns, as the table has them."""
        return self._selection.schema

    def splits(self, start: Any, end: Any, wanted: int) -> list[SqlSplit]:
        """Cut a range into pieces of about equal size.

        Raises:
            InputChangedError: There are not as many rows as when it was planned.
        """
        if start == end:
            return []
        pieces = self.pieces(start, end, wanted)
        return [SqlSplit(self.piece_reader, piece) for piece in pieces]

    @property
    def piece_reader(self) -> PieceReader:
        """What reads in tasks."""
        return PieceReader(
            address=self._source.address, uid=self._uid, selection=self._selection
        )

    def pieces(self, start: Any, end: Any, tasks: int) -> list[Piece]:
        """Cut a range into pieces of about equal size; equal values stay together.

        Raises:
            InputChangedError: There are not as many rows as when it was planned.
        """
        rows = end["rows"] - start["rows"]
        size = max(_LEAST_ROWS, -(-rows // tasks))
        if not rows:
            return []
        lower = start["value"]
        if rows <= size:
            return [Piece(lower=lower, upper=end["value"], rows=rows, first=0)]
        pieces: list[Piece] = []
        for upper, count in self._cuts(lower, end["value"], size):
            first = pieces[-1].first + pieces[-1].rows if pieces else 0
            pieces.append(Piece(lower=lower, upper=upper, rows=count, first=first))
            lower = upper
        total = sum(p.rows for p in pieces)
        if total != rows:
            raise changed(self._uid, planned=rows, found=total)
        return pieces

    def _cuts(self, lower: Any, upper: Any, size: int) -> list[tuple[Any, int]]:
        """Return where pieces end, and how many rows each has."""
        column = self._selection.column
        condition, values = between(column, lower, upper)
        ranks = (
            f"SELECT {column} AS riverlock_value, rank() OVER (ORDER BY {column}) - 1"
            f" AS riverlock_rank FROM {self._selection.source} WHERE {condition}"
        )
        # Not max(), which servers do not have for all that can be ordered.
        of_piece = f"OVER (PARTITION BY riverlock_rank - riverlock_rank % {size}"
        last = (
            "SELECT riverlock_value, riverlock_rank,"
            f" count(*) {of_piece}) AS riverlock_rows,"
            f" row_number() {of_piece} ORDER BY riverlock_rank DESC)"
            f" AS riverlock_place FROM ({ranks}) riverlock_ranks"
        )
        found = self._database.ask(
            f"SELECT riverlock_value, riverlock_rows FROM ({last}) riverlock_last"
            " WHERE riverlock_place = 1 ORDER BY riverlock_rank",
            *values,
        )
        return [(self._encoded(value), int(count)) for value, count in found]

    def observed(self, rows: int) -> dict[str, float]:
        """Nothing to learn."""
        return {}

    def close(self) -> None:
        """Disconnect."""
        self._database.close()


@dataclass(frozen=True)
class _ReadTask:
    """What runs in the workers: the task's number says which piece is its own."""

    reader: PieceReader
    pieces: list[Piece]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column("id").to_pylist():
                try:
                    yield from self.reader.read(self.pieces[number])
                except RiverlockError as error:
                    raise RemoteError(error) from error
