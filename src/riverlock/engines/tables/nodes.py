"""From nodes to Arrow tables: the stateless part of an epoch, or of a task's share.

Every table carries the hidden columns that Spark's frames carry, with the same meaning:
tasks cannot tell which engine made their rows. Tables over empty ranges are also how
columns are checked before anything runs.
"""

from __future__ import annotations

import io
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from riverlock.core.errors import DefinitionError, InvalidFlowError
from riverlock.core.hidden_columns import (
    BRANCH,
    GAP,
    HIDDEN,
    MARK,
    PART,
    SIDE,
    SOURCE,
    TIME,
)
from riverlock.core.times import END_US, START_US
from riverlock.core.types import Schema, schema_of
from riverlock.engines.tables.refusals import needs_spark
from riverlock.engines.tables.rows import ArrowRows, Computed
from riverlock.operators.input_sides import LEFT, RIGHT
from riverlock.operators.shipped import DEAD, DEAD_SCHEMA, MAIN
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
    from collections.abc import Mapping, Sequence

    from riverlock.columnar import Steps
    from riverlock.engines.tables.rows import Given, Stored
    from riverlock.stages.stage_tasks import LateRows
    from riverlock.storage.base import Storage

__all__ = ["ArrowRows", "Computed", "Tables", "needs_expressions"]

_TIMES = ("timestamp", "timestamp_ntz")
# Types whose text is the same here and on Spark.
_PLAIN = ("string", "byte", "short", "int", "long", "boolean", "date")


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
        computed: Computed | None = None,
        now_us: int = 0,
    ) -> None:
        """Take what the epoch reads.

        Args:
            event_times: The declarations of the flow, in order.
            given: What is read of each source.
            staged: Outputs of stages that ran before.
            late: What windows that ran before say of records that came too late.
            storage: Where files of stages are; None: there are none.
            says_source: Whether rows say which declaration their time is of.
            computed: Steps that are expressions.
            now_us: The time of the epoch, for expressions that ask for it.
        """
        self._given = given
        self._staged, self._late, self._storage = dict(staged), dict(late), storage
        self._declared = event_times
        self._says_source = says_source or len(event_times) > 1
        self._computed, self.now_us = computed or Computed(), now_us
        self._made: dict[Node, ArrowRows] = {}
        self._called: dict[Node, tuple[ArrowRows, ArrowRows]] = {}

    def rows(self, node: Node) -> ArrowRows:
        """Return the rows of a node.

        Raises:
            InvalidFlowError: A step makes no sense, or needs Spark.
            UserCodeError: A function of the user raised.
        """
        if node not in self._made:
            try:
                steps = self._computed.steps.get(node)
                self._made[node] = (
                    self._make(node) if steps is None else self._applied(*steps)
                )
            except DefinitionError as error:
                error.place(node.line)
                raise
        return self._made[node]

    def share(self, node: Node, stored: Stored) -> None:
        """Take rows of a node from now on that a stage has evaluated."""
        self._made[node] = self._read_stored(stored)

    def take_output(self, uid: str, name: str, stored: Stored) -> None:
        """Take an output of an operator, once it has run."""
        self._staged[(uid, name)] = stored

    def take_late(self, uid: str, late: LateRows) -> None:
        """Take what windows that have run say of records that came too late."""
        self._late[uid] = late

    def gapped(self, node: Keyed) -> ArrowRows:
        """Return what an operator is given, with gaps of sessions if they differ."""
        rows, gap = self.rows(node.input), self._computed.gaps.get(node.uid)
        if gap is None:
            return rows
        return replace(rows, table=gap.apply(rows.table, now_us=self.now_us))

    def _applied(self, base: Node, steps: Steps) -> ArrowRows:
        """Return what expressions make of the rows of a node."""
        made = steps.apply(self.rows(base).table, now_us=self.now_us)
        shown = [f for f in steps.columns.fields if f.name not in HIDDEN]
        return ArrowRows(Schema(tuple(shown)), made)

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
            case Output(input=RowWise() as work):
                return self._dead_letters(work)
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
        given = self._given[node.uid]
        return given.bad_rows() if node.reads_bad_rows else given.rows()

    def _event_time(self, node: EventTime) -> ArrowRows:
        rows = self.rows(node.input)
        if node.column is None:
            return rows
        if node.is_told:
            # Files of a channel have it; there may be none.
            has_times = TIME in rows.table.column_names
            times = rows.table[TIME] if has_times else pa.nulls(len(rows), pa.int64())
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
        return self._split(node)[0]

    def _dead_letters(self, node: RowWise) -> ArrowRows:
        return self._split(node)[1]

    def _split(self, node: RowWise) -> tuple[ArrowRows, ArrowRows]:
        """Return results and dead letters of a function, which is called once."""
        if node not in self._called:
            rows = self.rows(node.input)
            function = row_function(node, rows.columns, rows.hidden)
            found = function.split(_one_batch(rows.table))
            columns = schema_of(DEAD_SCHEMA)
            dead = found.get(DEAD, columns.to_arrow().empty_table())
            self._called[node] = (
                ArrowRows(function.output, found[MAIN]),
                ArrowRows(columns, dead),
            )
        return self._called[node]

    def _union(self, node: Union) -> ArrowRows:
        first, *others = [self.rows(i) for i in node.inputs]
        if node.by_position:
            others = [_renamed(other, first.columns.names) for other in others]
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
        rows, until_us = self.gapped(node), self._late[node.uid].until_us
        assert node.windows is not None
        window: Any = node.windows.window
        limit = None if until_us is None else until_us - 1
        is_late, _ = late_rows_of(rows.table, window, node.windows.lateness_us, limit)
        found = rows.table.filter(pa.array(is_late))
        if GAP in found.column_names:
            found = found.drop_columns([GAP])
        return replace(rows, table=found)

    def _read_stored(self, stored: Stored) -> ArrowRows:
        tables = [stored.arrow.empty_table()]
        tables += [_with_columns(table, stored.arrow) for table in stored.tables]
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


def _renamed(rows: ArrowRows, names: Sequence[str]) -> ArrowRows:
    """Return rows whose visible columns have other names, in order.

    Raises:
        InvalidFlowError: They are not as many.
    """
    shown = rows.columns.fields
    if len(shown) != len(names):
        raise InvalidFlowError(
            "union()",
            expected=f"{len(names)} columns",
            found=f"{len(shown)}: {', '.join(rows.columns.names)}",
        )
    fields = [replace(f, name=n) for f, n in zip(shown, names, strict=True)]
    table = rows.table.select([*rows.columns.names, *rows.hidden])
    renamed = table.rename_columns([*names, *rows.hidden])
    return ArrowRows(Schema(tuple(fields)), renamed)


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
    packed[LEFT_ROW if side == LEFT else RIGHT_ROW] = rows.structs
    packed[SIDE] = pa.repeat(pa.scalar(side, pa.int32()), len(rows))
    return pa.table(packed | {name: rows.table[name] for name in rows.hidden})


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


def needs_expressions(node: EventTime, columns: Schema) -> bool:
    """Tell whether Spark has to say what the times of rows are."""
    mark, per = node.watermark, node.per
    has_mark = mark is None or (isinstance(mark, str) and mark in columns.names)
    return not has_mark or (per is not None and columns[per].kind not in _PLAIN)


def _parts(rows: ArrowRows, node: EventTime) -> Any:
    """Return the partition of each row, as text; a null is one like any other."""
    if node.per is None:
        return pa.nulls(len(rows), pa.string())
    kind = rows.columns[node.per]
    if kind.kind not in _PLAIN:
        raise needs_spark(f"per of event_time {node.uid!r}", kind.ddl)
    return rows.table[node.per].cast(pa.string()).fill_null("")
