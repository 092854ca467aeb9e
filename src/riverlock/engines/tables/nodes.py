"""From nodes to Arrow tables: the stateless part of an epoch, or of a task's share.

Every table carries the hidden columns that Spark's frames carry, with the same meaning:
tasks cannot tell which engine made their rows. Tables over empty ranges are also how
columns are checked before anything runs.
"""

from __future__ import annotations

import io
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from riverlock.core.errors import DefinitionError, InvalidFlowError
from riverlock.core.hidden_columns import (
    BRANCH,
    HIDDEN,
    MARK,
    PART,
    SEQ,
    SIDE,
    SOURCE,
    TIME,
)
from riverlock.core.times import END_US, START_US
from riverlock.core.types import Schema, schema_of
from riverlock.engines.tables.refusals import needs_spark
from riverlock.operators.input_sides import LEFT, RIGHT
from riverlock.operators.shipped import MAIN
from riverlock.operators.windows.lateness import late_rows_of
from riverlock.program.graph import (
    Connect,
    EventTime,
    Keyed,
    Late,
    Node,
    Output,
    Read,
    Relational,
    RowWise,
    Union,
)
from riverlock.program.two_inputs import (
    LEFT_ROW,
    RIGHT_ROW,
    check_same_keys,
    packed_columns,
)
from riverlock.worker.row_functions import row_function

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from riverlock.connectors.base.source_reader import Reader
    from riverlock.connectors.channel.rows import Shares
    from riverlock.snapshot.format.records import InputRange
    from riverlock.stages.stage_tasks import LateRows
    from riverlock.storage.base import Storage

__all__ = [
    "ArrowRows",
    "Given",
    "Stored",
    "Tables",
    "ranges_of",
    "share_of",
    "stored_output",
]

# As on Spark: positions of several sources must not meet.
SOURCE_SHIFT = 56
_TIMES = ("timestamp", "timestamp_ntz")
# Types whose text is the same here and on Spark.
_PLAIN = ("string", "byte", "short", "int", "long", "boolean", "date")


@dataclass(frozen=True)
class ArrowRows:
    """The rows of a node: columns that users see, then hidden ones."""

    columns: Schema
    table: pa.Table

    @property
    def hidden(self) -> tuple[str, ...]:
        """The names of the hidden columns."""
        return tuple(c for c in self.table.column_names if c in HIDDEN)

    @property
    def visible(self) -> pa.Table:
        """The columns that users see."""
        return self.table.select(list(self.columns.names))

    def with_column(self, name: str, values: Any) -> ArrowRows:
        """Return the same rows with a hidden column set."""
        table = self.table
        if name in table.column_names:
            place = table.column_names.index(name)
            return replace(self, table=table.set_column(place, name, values))
        return replace(self, table=table.append_column(name, values))

    def constant(self, name: str, value: Any, kind: pa.DataType) -> ArrowRows:
        """Return the same rows with a hidden column that is the same for all."""
        return self.with_column(name, pa.repeat(pa.scalar(value, kind), len(self)))

    def __len__(self) -> int:
        """Return how many there are."""
        return int(self.table.num_rows)


@dataclass(frozen=True)
class Given:
    """What is read of a source here: its columns, and the rows, piece by piece."""

    columns: Schema
    # The position of the first row of each piece, and what reads the piece: rows say
    # where in it they are, or follow each other.
    pieces: tuple[tuple[int, Callable[[], pa.Table]], ...] = ()

    def rows(self) -> ArrowRows:
        """Read it."""
        # A channel has a hidden column, too: its files say so, if there are any.
        tables = [] if self.pieces else [self.columns.to_arrow().empty_table()]
        positions = [np.empty(0, dtype=np.int64)]
        for first, read in self.pieces:
            table = read()
            if SEQ in table.column_names:
                places = table[SEQ].to_numpy()
                table = table.drop_columns([SEQ])
            else:
                places = np.arange(table.num_rows, dtype=np.int64)
            tables.append(table)
            positions.append(places + first)
        found = ArrowRows(self.columns, pa.concat_tables(tables))
        return found.with_column(SEQ, pa.array(np.concatenate(positions)))


def share_of(
    readers: Mapping[str, Reader], uid: str, shares: Shares, task: int
) -> Given:
    """Return what a task reads of a channel whose rows stand by key group."""
    first = list(readers).index(uid) << SOURCE_SHIFT
    source: Any = readers[uid]
    return Given(source.schema, ((first, partial(shares.table, task)),))


def ranges_of(
    readers: Mapping[str, Reader], ranges: Mapping[str, InputRange]
) -> dict[str, Given]:
    """Return what an epoch reads if all of it is read here, a piece per source."""
    found = {}
    for place, (uid, reader) in enumerate(readers.items()):
        source: Any = reader
        span = ranges[uid]
        whole = partial(source.table, span.start, span.end)
        found[uid] = Given(source.schema, ((place << SOURCE_SHIFT, whole),))
    return found


class Stored(NamedTuple):
    """Rows that a stage has staged: all their columns, and the files in the store."""

    columns: Schema
    arrow: pa.Schema
    paths: Sequence[str] = ()


def stored_output(columns: Schema, paths: Sequence[str] = ()) -> Stored:
    """Return the rows of an operator's output, in these files."""
    hidden = [pa.field(SEQ, pa.int64()), pa.field(TIME, pa.int64())]
    return Stored(columns, pa.schema([*columns.to_arrow(), *hidden]), paths)


class Tables:
    """The tables of one epoch, each made once."""

    def __init__(  # noqa: PLR0913 - what an epoch reads
        self,
        event_times: Mapping[str, EventTime],
        given: Mapping[str, Given],
        staged: Mapping[tuple[str, str], Stored],
        late: Mapping[str, LateRows],
        storage: Storage | None = None,
        *,
        says_source: bool,
    ) -> None:
        """Take what the epoch reads.

        Args:
            event_times: The declarations of the flow, in order.
            given: What is read of each source.
            staged: Outputs of stages that ran before.
            late: What windows that ran before say of records that came too late.
            storage: Where files of stages are; None: there are none.
            says_source: Whether rows say which declaration their time is of.
        """
        self._given = given
        self._staged, self._late, self._storage = staged, late, storage
        self._declared = event_times
        self._says_source = says_source or len(event_times) > 1
        self._made: dict[Node, ArrowRows] = {}

    def rows(self, node: Node) -> ArrowRows:
        """Return the rows of a node.

        Raises:
            InvalidFlowError: A step makes no sense, or needs Spark.
            UserCodeError: A function of the user raised.
        """
        if node not in self._made:
            try:
                self._made[node] = self._make(node)
            except DefinitionError as error:
                error.place(node.line)
                raise
        return self._made[node]

    def share(self, node: Node, stored: Stored) -> None:
        """Take rows of a node from now on that a stage has evaluated."""
        self._made[node] = self._read_stored(stored)

    def _make(self, node: Node) -> ArrowRows:
        match node:
            case Read():
                return self._read(node)
            case EventTime():
                return self._event_time(node)
            case RowWise():
                return self._row_wise(node)
            case Union():
                return self._union(node)
            case Connect():
                return self._connected(node)
            case Output(input=Keyed() as keyed):
                return self._read_stored(self._staged[(keyed.uid, node.name)])
            case Late():
                return self._of_late(node.input)
            case Relational():
                raise needs_spark(f"step {node.operation!r}", "a step that Spark runs")
            case _:
                message = f"{type(node).__name__} has no rows"
                raise AssertionError(message)

    def _read(self, node: Read) -> ArrowRows:
        if node.reads_bad_rows:
            # What is read here was never text: there are none.
            source: Any = node.source
            return Given(schema_of(source.bad_columns)).rows()
        return self._given[node.uid].rows()

    def _event_time(self, node: EventTime) -> ArrowRows:
        rows = self.rows(node.input)
        if node.column is None:
            return rows
        if node.is_told:
            times = rows.table[TIME]
        else:
            times = _micros(rows, node.column, repr(node.column))
        declared = self._declared.values()
        found = rows.with_column(TIME, times)
        if any(d.watermark is not None for d in declared):
            found = found.with_column(MARK, _marks(rows, node, times))
        if any(d.per is not None for d in declared):
            found = found.with_column(PART, _parts(rows, node))
        if self._says_source:
            number = list(self._declared).index(node.uid)
            found = found.constant(SOURCE, number, pa.int32())
        return found

    def _row_wise(self, node: RowWise) -> ArrowRows:
        rows = self.rows(node.input)
        function = row_function(node, rows.columns, rows.hidden)
        return ArrowRows(function.output, function.split(_one_batch(rows.table))[MAIN])

    def _union(self, node: Union) -> ArrowRows:
        first, *others = [self.rows(i) for i in node.inputs]
        if node.by_position:
            raise needs_spark("union by position", "columns that SQL has put in order")
        for other in others:
            if set(other.columns.fields) != set(first.columns.fields):
                raise InvalidFlowError(
                    "union",
                    expected=f"columns {first.columns.ddl}",
                    found=other.columns.ddl,
                )
        width, tables = len(node.inputs), []
        for number, rows in enumerate([first, *others]):
            branch = np.zeros(len(rows), dtype=np.int64)
            if BRANCH in rows.table.column_names:
                branch = rows.table[BRANCH].fill_null(0).to_numpy()
            numbered = rows.with_column(BRANCH, pa.array(branch * width + number))
            tables.append(numbered.table)
        return ArrowRows(first.columns, _concatenated(tables))

    def _connected(self, node: Connect) -> ArrowRows:
        left, right = self.rows(node.left), self.rows(node.right)
        for rows, keys in ((left, node.left_keys), (right, node.right_keys)):
            for key in keys:
                if key not in rows.columns.names:
                    raise InvalidFlowError(
                        f"key {key!r} of connected streams",
                        expected=f"one of {', '.join(rows.columns.names)}",
                        found=repr(key),
                    )
        check_same_keys(node, left.columns, right.columns)
        common = left.columns.select(node.left_keys)
        columns = packed_columns(common, left.columns, right.columns)
        sides = [
            _packed(left, common.names, node.left_keys, LEFT),
            _packed(right, common.names, node.right_keys, RIGHT),
        ]
        return ArrowRows(columns, _concatenated(sides))

    def _of_late(self, node: Keyed) -> ArrowRows:
        """Return the records that the window left out."""
        rows, until_us = self.rows(node.input), self._late[node.uid].until_us
        assert node.windows is not None
        window: Any = node.windows.window
        limit = None if until_us is None else until_us - 1
        is_late, _ = late_rows_of(rows.table, window, node.windows.lateness_us, limit)
        return replace(rows, table=rows.table.filter(pa.array(is_late)))

    def _read_stored(self, stored: Stored) -> ArrowRows:
        tables = [stored.arrow.empty_table()]
        for path in stored.paths:
            assert self._storage is not None
            found = pq.read_table(
                io.BytesIO(self._storage.get(path)), use_threads=False
            )
            tables.append(_with_columns(found, stored.arrow))
        return ArrowRows(stored.columns, pa.concat_tables(tables))


def _one_batch(table: pa.Table) -> pa.RecordBatch:
    if not table.num_rows:
        return pa.RecordBatch.from_pylist([], schema=table.schema)
    (batch,) = table.combine_chunks().to_batches()
    return batch


def _concatenated(tables: list[pa.Table]) -> pa.Table:
    """Return all rows; a column that some lack is null there."""
    return pa.concat_tables(tables, promote_options="default")


def _with_columns(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return a table with exactly these columns; missing ones are null."""
    columns = [
        table[field.name].cast(field.type)
        if field.name in table.column_names
        else pa.nulls(table.num_rows, field.type)
        for field in schema
    ]
    return pa.table(columns, schema=schema)


def _packed(
    rows: ArrowRows, names: Sequence[str], keys: Sequence[str], side: int
) -> pa.Table:
    """Return keys under their common names, the row as a struct, and its side."""
    packed = {name: rows.table[k] for name, k in zip(names, keys, strict=True)}
    packed[LEFT_ROW if side == LEFT else RIGHT_ROW] = _structs(rows)
    packed[SIDE] = pa.repeat(pa.scalar(side, pa.int32()), len(rows))
    return pa.table(packed | {name: rows.table[name] for name in rows.hidden})


def _structs(rows: ArrowRows) -> pa.ChunkedArray:
    return rows.visible.to_struct_array()


def _micros(rows: ArrowRows, column: str, what: str) -> pa.ChunkedArray:
    """Return a timestamp in microseconds; null where Python cannot name it."""
    if column not in rows.columns.names:
        raise InvalidFlowError(
            f"event_time({what})",
            expected=f"one of the columns {', '.join(rows.columns.names)}",
            found=repr(column),
        )
    kind = rows.columns[column]
    if kind.kind not in _TIMES:
        raise InvalidFlowError(
            f"event_time({what})",
            expected="a timestamp",
            found=kind.ddl,
            hint="make it one before, with map",
        )
    times = rows.table[column].cast(pa.int64())
    is_named = pc.and_(pc.greater_equal(times, START_US), pc.less_equal(times, END_US))
    return pc.if_else(is_named, times, pa.scalar(None, pa.int64()))


def _marks(rows: ArrowRows, node: EventTime, times: Any) -> Any:
    if node.watermark is None:
        return times
    if not isinstance(node.watermark, str) or node.watermark not in rows.columns.names:
        raise needs_spark(
            f"watermark of event_time {node.uid!r}",
            f"{node.watermark}, which is no column: expressions are Spark's",
        )
    return _micros(rows, node.watermark, "watermark=")


def _parts(rows: ArrowRows, node: EventTime) -> Any:
    """Return the partition of each row, as text; a null is one like any other."""
    if node.per is None:
        return pa.nulls(len(rows), pa.string())
    kind = rows.columns[node.per]
    if kind.kind not in _PLAIN:
        raise needs_spark(f"per of event_time {node.uid!r}", kind.ddl)
    return rows.table[node.per].cast(pa.string()).fill_null("")
