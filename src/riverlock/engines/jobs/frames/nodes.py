"""From nodes to DataFrames: the stateless part of an epoch, run by Spark.

Every frame carries hidden columns: the position of the row in its input, and its event
time. Building frames over empty ranges is also how columns are checked before anything
runs.
"""

from __future__ import annotations

import re
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, assert_never

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StructType

from riverlock.core.errors import DefinitionError, InvalidFlowError
from riverlock.core.hidden_columns import (
    BRANCH,
    GAP,
    HIDDEN,
    MARK,
    PART,
    SEQ,
    SOURCE,
    TIME,
)
from riverlock.core.times import END_US, START_US
from riverlock.core.types import Field, Schema, schema_of
from riverlock.engines.jobs.frames.rowwise import row_wise
from riverlock.engines.jobs.frames.session_gaps import with_gap
from riverlock.engines.jobs.frames.static_tables import join_static
from riverlock.engines.jobs.frames.two_sides import connected
from riverlock.engines.jobs.frames.unaccepted import explaining
from riverlock.engines.jobs.sql.stage import over_shown
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
from riverlock.program.lateness import pane_lateness, session_lateness
from riverlock.program.windows import SessionWindows, TimeWindows
from riverlock.spark.sql_arithmetic import SqlNumber
from riverlock.spark.structs import struct_of
from riverlock.spark.time_literals import check_literals
from riverlock.stages.sharing import WholeRead

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from riverlock.connectors.base.source_reader import Reader
    from riverlock.connectors.channel.rows import Shares
    from riverlock.snapshot.format.records import InputRange
    from riverlock.spark.plan_trees import Trees
    from riverlock.stages.stage_tasks import LateRows

__all__ = [
    "Frames",
    "Rows",
    "as_column",
    "hidden_columns",
    "is_too_late",
    "known_columns",
    "pane_end",
    "visible",
]

# Positions of several sources must not meet: the source's number comes first. Spark's
# own number has 31 bits of partition above 33 bits of row; 23 of those are left.
_SOURCE_SHIFT = 56
# All columns, as in struct(*) or e.*; where two things are multiplied, one is before.
_STAR = re.compile(r"(?:^|[(,.'])\s*\*")


def as_column(expression: Any) -> Column:
    """Return SQL text or a Column as a Column.

    Raises:
        InvalidFlowError: It has a literal that would be another time whenever parsed.
    """
    check_literals(str(expression))
    return F.expr(expression) if isinstance(expression, str) else expression


def hidden_columns(frame: DataFrame) -> list[str]:
    """Return the hidden columns that a frame has."""
    return [c for c in frame.columns if c in HIDDEN]


def visible(frame: DataFrame) -> Schema:
    """Return the columns that users see."""
    struct = StructType([f for f in frame.schema.fields if f.name not in HIDDEN])
    return schema_of(struct)


def known_columns(frame: DataFrame) -> Schema:
    """Return the columns that users see, without those of types unknown to us.

    Spark may read more types than an operator can receive.
    """
    found: dict[str, Field] = {}
    for each in frame.schema.fields:
        with suppress(DefinitionError):
            found |= {f.name: f for f in schema_of(StructType([each])).fields}
    return Schema(tuple(f for f in found.values() if f.name not in HIDDEN))


class Rows(NamedTuple):
    """Rows that were staged: all their columns, and the files."""

    struct: StructType
    paths: Sequence[str] = ()


def pane_end(window: TimeWindows) -> Column:
    """Return the end of the pane that a row's event time lies in."""
    return F.expr(window.pane_of(SqlNumber(TIME)).text)


def is_too_late(window: TimeWindows | SessionWindows, closed_at: int | None) -> Column:
    """Return whether a row is left out by the windows, as tasks do it."""
    at = SqlNumber(TIME)
    if isinstance(window, SessionWindows):
        by_row = SqlNumber(f"least(ifnull({GAP}, 0L), {END_US}L)")
        gap = by_row if window.gap_us is None else SqlNumber.of(window.gap_us)
        is_late = session_lateness(at, gap, closed_at)
    else:
        _, is_late = pane_lateness(window, window.pane_of(at), closed_at)
    return F.expr(f"{TIME} IS NULL OR {is_late.text}")


class Frames:
    """The frames of one epoch, each built once."""

    def __init__(  # noqa: PLR0913 - what an epoch reads
        self,
        spark: SparkSession,
        readers: Mapping[str, Reader],
        ranges: Mapping[str, InputRange],
        event_times: Mapping[str, EventTime],
        staged: Mapping[tuple[str, str], tuple[Schema, list[str]]],
        late: Mapping[str, LateRows] | None = None,
        *,
        says_source: bool = False,
    ) -> None:
        """Take what the epoch reads.

        Args:
            spark: The session.
            readers: Readers by uid; their order numbers the sources.
            ranges: What to read of each.
            event_times: All event-time declarations of the flow, in order.
            staged: Columns and files of the outputs of stages that ran before.
            late: What windows that ran before say of records that came too late.
            says_source: Number the declaration of rows also if there is only one.
        """
        self._spark = spark
        self._readers = readers
        self._ranges = ranges
        self._event_times = event_times
        self._staged = staged
        self._late = late or {}
        self._shared: dict[Node, Rows] = {}
        # What stages have read whole, by uid of the source.
        self._whole: dict[str, WholeRead] = {}
        self._says_source = says_source or len(event_times) > 1
        self._made: dict[Node, DataFrame] = {}
        # A channel of whose rows each partition reads its own.
        self._shares: dict[str, Shares] = {}

    def shared_out(self, uid: str, shares: Shares) -> Frames:
        """Return frames in which each partition has read its own rows of a channel."""
        found = Frames(
            self._spark,
            self._readers,
            self._ranges,
            self._event_times,
            self._staged,
            self._late,
            says_source=self._says_source,
        )
        found._shares[uid] = shares
        return found

    def is_empty(self, node: Node) -> bool:
        """Tell whether a node can have no rows in this epoch."""
        if node in self._shared:
            return not self._shared[node].paths
        match node:
            case Read():
                span = self._ranges[node.uid]
                return bool(span.start == span.end)
            case Union():
                return all(self.is_empty(i) for i in node.inputs)
            case Connect():
                return self.is_empty(node.left) and self.is_empty(node.right)
            case Output(input=Keyed() as keyed):
                return not self._staged[(keyed.uid, node.name)][1]
            case Late():
                return not self._late[node.input.uid].rows
            case Output() | EventTime() | Relational() | RowWise() | Keyed():
                return self.is_empty(node.input)
            case _:
                assert_never(node)

    def frame(self, node: Node) -> DataFrame:
        """Return the frame of a node.

        Raises:
            InvalidFlowError: Spark cannot make sense of an expression.
        """
        if node not in self._made:
            what = getattr(node, "operation", type(node).__name__.lower())
            try:
                with explaining(f"{what}()", line=node.line):
                    shared = self._shared.get(node)
                    self._made[node] = (
                        self._make(node) if shared is None else self._stored(shared)
                    )
            except DefinitionError as error:
                error.place(node.line)
                raise
        return self._made[node]

    def share(self, node: Node, rows: Rows) -> None:
        """Use the rows of a node that a stage has evaluated, from now on."""
        self._shared[node] = rows
        if isinstance(node, WholeRead):
            self._whole[node.uid] = node
        self._made.pop(node, None)

    def _make(self, node: Node) -> DataFrame:
        match node:
            case Read():
                return self._read(node)
            case EventTime():
                return self._event_time(node)
            case Relational():
                return self._relational(node)
            case RowWise():
                return row_wise(self.frame(node.input), node)
            case Union():
                return self._union(node)
            case Connect():
                return connected(node, self.frame(node.left), self.frame(node.right))
            case Output():
                return self._of_output(node)
            case Late():
                return self._of_late(node.input)
            case Keyed():
                message = "a keyed node has outputs, not a frame"
                raise AssertionError(message)
            case _:
                assert_never(node)

    def _of_output(self, node: Output) -> DataFrame:
        work = node.input
        assert isinstance(work, Keyed), "dead letters come with the rows"
        schema, paths = self._staged[(work.uid, node.name)]
        hidden = f"{SEQ} bigint, {TIME} bigint"
        return self._stored(Rows(struct_of(f"{schema.ddl}, {hidden}"), paths))

    def _of_late(self, node: Keyed) -> DataFrame:
        """Return the records that the window left out."""
        assert node.windows is not None
        window, lateness_us = node.windows.window, node.windows.lateness_us
        assert isinstance(window, TimeWindows | SessionWindows)
        limit = self._late[node.uid].until_us
        closed_at = None if limit is None else limit - lateness_us
        too_late = is_too_late(window, closed_at)
        found = with_gap(self.frame(node.input), node).where(too_late)
        return found.drop(GAP)

    def _read(self, node: Read) -> DataFrame:
        reader: Any = self._readers[node.uid]
        if node.uid in self._whole:
            whole = self.frame(self._whole[node.uid])
            parted: DataFrame = reader.part(whole, bad=node.reads_bad_rows)
            return parted
        span = self._ranges[node.uid]
        read = reader.read_bad if node.reads_bad_rows else reader.read
        if isinstance(node, WholeRead):
            read = reader.read_whole
        if node.uid in self._shares:
            frame: DataFrame = reader.read_shares(self._shares[node.uid])
        else:
            frame = read(span.start, span.end)
        number = list(self._readers).index(node.uid)
        has_positions = (
            reader.gives_positions
            and not node.reads_bad_rows
            and span.start != span.end
        )
        if has_positions and number == 0:
            return frame
        position = F.col(SEQ) if has_positions else F.monotonically_increasing_id()
        if number:
            position = position + F.lit(number << _SOURCE_SHIFT)
        return frame.withColumn(SEQ, position)

    def _event_time(self, node: EventTime) -> DataFrame:
        frame = self.frame(node.input)
        if node.column is None:
            return frame
        if node.is_told:
            time = F.col(TIME)
        else:
            kind = frame.schema[node.column].dataType
            time = _micros(F.col(f"`{node.column}`"), kind, repr(node.column))
        declared = self._event_times
        found = {TIME: time}
        if any(d.watermark is not None for d in declared.values()):
            found[MARK] = time if node.watermark is None else _mark(frame, node)
        if any(d.per is not None for d in declared.values()):
            part = F.lit(None) if node.per is None else F.col(f"`{node.per}`")
            text = part.cast("string")
            # A null is a partition like any other.
            found[PART] = text if node.per is None else F.coalesce(text, F.lit(""))
        if self._says_source:
            found[SOURCE] = F.lit(list(declared).index(node.uid))
        return frame.withColumns(found)

    def _relational(self, node: Relational) -> DataFrame:
        frame = self.frame(node.input)
        match node.operation:
            case "select" | "where" | "with_column":
                return _with_expressions(frame, node)
            case "join_static":
                return join_static(self._spark, frame, *node.arguments)
            case _:
                return self._transform(frame, node.arguments[0])

    def _transform(self, frame: DataFrame, function: Any) -> DataFrame:
        result = function(frame)
        if not isinstance(result, DataFrame):
            raise InvalidFlowError(
                "transform()",
                expected="a function that returns a DataFrame",
                found=f"one that returns {type(result).__name__}",
            )
        if SEQ not in result.columns:
            # The function made new rows: their content decides the order.
            shown = [F.col(f"`{c}`") for c in result.columns if c not in HIDDEN]
            result = result.withColumn(SEQ, F.xxhash64(*shown))
        if TIME in frame.columns and TIME not in result.columns:
            result = result.withColumn(TIME, F.lit(None).cast("bigint"))
        return result

    def _union(self, node: Union) -> DataFrame:
        first, *rest = [self.frame(i) for i in node.inputs]
        expected = visible(first)
        if node.by_position:
            rest = [_renamed(other, expected.names) for other in rest]
        for other in [] if node.by_position else rest:
            if set(visible(other).fields) != set(expected.fields):
                raise InvalidFlowError(
                    "union()",
                    expected=f"columns {expected.ddl}",
                    found=visible(other).ddl,
                )
        width, whole = len(node.inputs), None
        for number, frame in enumerate([first, *rest]):
            before = F.col(BRANCH) if BRANCH in frame.columns else F.lit(0)
            branch = (before * width + number).cast("bigint")
            numbered = frame.withColumn(BRANCH, branch)
            whole = (
                numbered
                if whole is None
                else whole.unionByName(numbered, allowMissingColumns=True)
            )
        assert whole is not None
        return whole

    def _stored(self, rows: Rows) -> DataFrame:
        """Return rows that an earlier stage of the epoch has staged."""
        if not rows.paths:
            return self._spark.createDataFrame([], rows.struct)
        return self._spark.read.schema(rows.struct).parquet(*rows.paths)


def _with_expressions(frame: DataFrame, node: Relational) -> DataFrame:
    """Apply a step that is made of expressions."""
    if not any(_STAR.search(str(argument)) for argument in node.arguments):
        return _step(frame, node, hidden_columns(frame))

    def query(trees: Trees, shown: Any) -> Any:
        java: Any = _step(trees.frame(shown), node, [])._jdf
        return java.queryExecution().analyzed()

    # A star stands for the columns that users see.
    return over_shown(frame, query)


def _step(frame: DataFrame, node: Relational, hidden: list[str]) -> DataFrame:
    match node.operation:
        case "select":
            return frame.select(*map(as_column, node.arguments), *hidden)
        case "where":
            return frame.where(as_column(node.arguments[0]))
        case _:
            name, expression = node.arguments
            return frame.withColumn(name, as_column(expression))


def _renamed(frame: DataFrame, names: Sequence[str]) -> DataFrame:
    """Return a frame whose visible columns have other names, in order."""
    shown = visible(frame).names
    if len(shown) != len(names):
        raise InvalidFlowError(
            "union()",
            expected=f"{len(names)} columns",
            found=f"{len(shown)}: {', '.join(shown)}",
        )
    columns = [F.col(f"`{c}`").alias(n) for c, n in zip(shown, names, strict=True)]
    return frame.select(*columns, *hidden_columns(frame))


def _mark(frame: DataFrame, node: EventTime) -> Column:
    column = as_column(node.watermark)
    kind = frame.select(column).schema.fields[0].dataType
    return _micros(column, kind, "watermark=")


def _micros(column: Column, kind: DataType, what: str) -> Column:
    """Return a timestamp in microseconds."""
    if kind.simpleString() not in ("timestamp", "timestamp_ntz"):
        raise InvalidFlowError(
            f"event_time({what})",
            expected="a timestamp",
            found=kind.simpleString(),
            hint="make it one before: with_column(name, 'to_timestamp(...)')",
        )
    found = F.unix_micros(column.cast("timestamp"))
    # A time that Python cannot name is none: it moves no watermark, and is late.
    return F.when(found.between(START_US, END_US), found)
