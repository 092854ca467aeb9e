"""Streams: edges of the graph while it is being built."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from riverlock.connectors.base.sink import check_dead_letter_sink, check_sink
from riverlock.core.errors import InvalidFlowError
from riverlock.core.keywords import told_methods
from riverlock.core.suggestions import did_you_mean
from riverlock.core.times import duration_us
from riverlock.core.types import Field, Schema, SchemaLike, schema_of
from riverlock.flow.conditions import is_function
from riverlock.flow.dstream import WindowOperations
from riverlock.flow.keyed_stream import KeyedStream
from riverlock.flow.other_streams import Helpful
from riverlock.flow.regional import Regional
from riverlock.flow.static_join import StaticJoinable
from riverlock.flow.windowable import Windowable
from riverlock.operators.aggregates.whole_table import whole_table
from riverlock.operators.base import BuiltIn
from riverlock.operators.output_modes import below_queries, in_mode
from riverlock.program.graph import (
    EventTime,
    Keyed,
    Late,
    Node,
    Output,
    Read,
    Relational,
    RowWise,
    Union,
    Write,
    comes_round,
    described,
)
from riverlock.program.process import KeyedLogic, side_outputs
from riverlock.program.signatures import check_function
from riverlock.program.time_basis import check_timestamp
from riverlock.program.windows import TIMED

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import timedelta

    from pyspark.sql import Column

    from riverlock.connectors.base.sink import Sink
    from riverlock.program.program import Program

__all__ = ["Stream"]


@told_methods
class Stream(Regional, StaticJoinable, Windowable, WindowOperations, Helpful):
    """Rows on their way from a source to sinks.

    Methods that take an expression accept SQL text or a PySpark ``Column``.
    """

    def __init__(self, program: Program, node: Node, schema: Schema | None) -> None:
        """Wrap a node; made by ``flow.read`` and by streams, not by users."""
        self._program = program
        self._node = node
        # None: known only when Spark has analysed the expressions before.
        self._schema = schema

    def _next(self, node: Node, schema: Schema | None) -> Stream:
        return Stream(self._program, node, schema)

    def _relational(self, operation: str, *arguments: Any) -> Relational:
        return Relational(
            input=self._node, operation=operation, arguments=tuple(arguments)
        )

    def _check_column(self, what: str, name: str) -> None:
        if self._schema is None or name in self._schema.names:
            return
        raise InvalidFlowError(
            f"{what}()",
            expected=f"one of the columns {', '.join(self._schema.names)}",
            found=repr(name),
            hint=did_you_mean(name, self._schema.names),
        )

    def event_time(  # noqa: PLR0913 - keywords, each with a default
        self,
        column: str,
        *,
        delay: str | timedelta = "0 seconds",
        idle_after: str | timedelta | None = None,
        watermark: Any = None,
        per: str | None = None,
        uid: str | None = None,
    ) -> Stream:
        """Declare the column with the event time of a row.

        Args:
            column: A timestamp column.
            delay: How far the watermark stays behind the newest time: how far out of
                order rows may come without being late.
            idle_after: After this long without rows, the input no longer holds time
                back; with ``per``, nor does any of its partitions.
            watermark: An expression that moves the watermark instead of the row's time:
                its value says that all earlier rows have come, or is null: ``"CASE WHEN
                kind = 'end of hour' THEN at END"``.
            per: A column that tells partitions of the input apart. The watermark is
                that of the slowest, so that a fast one makes no other late.
            uid: Name of the declaration; keep it when the code changes.
        """
        self._check_column("event_time", column)
        check_timestamp(column, self._schema)
        if per is not None:
            self._check_column("per of event_time", per)
        node = EventTime(
            uid=self._program.take_uid(uid, "event_time"),
            input=self._node,
            column=column,
            delay_us=duration_us(delay),
            idle_us=None if idle_after is None else duration_us(idle_after),
            watermark=watermark,
            per=per,
            comes_round=comes_round(self._node),
        )
        declared = self._next(node, self._schema)
        self._program.streams[node.uid] = declared
        return declared

    def select(self, *columns: Any) -> Stream:
        """Keep or compute columns, as ``DataFrame.selectExpr`` and ``select`` do."""
        known = None
        if self._schema and all(isinstance(c, str) for c in columns):
            plain = [c for c in columns if c in self._schema.names]
            if len(plain) == len(columns):
                known = Schema(tuple(Field(c, self._schema[c]) for c in plain))
        return self._next(self._relational("select", *columns), known)

    def where(self, condition: Any) -> Stream:
        """Keep the rows for which a SQL condition holds."""
        return self._next(self._relational("where", condition), self._schema)

    def with_column(self, name: str, expression: Any) -> Stream:
        """Add or replace a column."""
        return self._next(self._relational("with_column", name, expression), None)

    def transform(self, function: Callable[[Any], Any]) -> Stream:
        """Apply any stateless function from DataFrame to DataFrame.

        It sees the rows of one epoch at a time: joins with static data are fine,
        aggregates over the whole stream are not (use ``key_by``). It is called in each
        epoch, never twice at a time, but not always in the same thread.
        """
        return self._next(self._relational("transform", function), None)

    def _row_wise(
        self,
        operation: str,
        function: Callable[[Any], Any],
        output: SchemaLike | None,
        uid: str | None,
        on_error: Sink | None,
    ) -> Stream:
        of = "one record, SQL text or a Column" if operation == "filter" else None
        check_function(f"{operation}()", function, 1, of=of)
        check_dead_letter_sink(f"{operation}(on_error=)", on_error)
        schema = self._schema if output is None else schema_of(output)
        node = RowWise(
            uid=self._program.take_uid(uid, operation),
            input=self._node,
            operation=operation,
            function=function,
            output=None if output is None else schema_of(output),
            on_error=on_error or self._program.on_error,
        )
        self._program.add_dead_letters(node)
        return self._next(node, schema)

    def map(
        self,
        function: Callable[[Any], Any],
        output: SchemaLike,
        *,
        uid: str | None = None,
        on_error: Sink | None = None,
    ) -> Stream:
        """Turn each record into one row (tuple or dict) with a Python function.

        It is called once for each record of an epoch, however many readers the rows
        have, unless a task or the epoch is tried again.

        Args:
            function: From a record to a row.
            output: Columns of the rows.
            uid: Stable name, for errors.
            on_error: A sink for records that make it raise, or whose rows do not fit.
        """
        return self._row_wise("map", function, output, uid, on_error)

    def flat_map(
        self,
        function: Callable[[Any], Any],
        output: SchemaLike,
        *,
        uid: str | None = None,
        on_error: Sink | None = None,
    ) -> Stream:
        """Turn each record into any number of rows with a Python function."""
        return self._row_wise("flat_map", function, output, uid, on_error)

    def filter(
        self,
        condition: str | Column | Callable[[Any], Any],
        *,
        uid: str | None = None,
        on_error: Sink | None = None,
    ) -> Stream:
        """Keep the records for which a SQL condition, or a Python function, holds."""
        if is_function(condition, uid=uid, on_error=on_error):
            return self._row_wise("filter", condition, None, uid, on_error)
        return self.where(condition)

    def union(self, *others: Stream) -> Stream:
        """Join streams that have the same columns into one."""
        for other in others:
            self._same_flow(other, "union")
            if self._schema and other._schema and self._schema != other._schema:
                raise InvalidFlowError(
                    "union()",
                    expected=f"columns {self._schema.ddl}",
                    found=other._schema.ddl,
                )
        node = Union(inputs=(self._node, *(o._node for o in others)))
        return self._next(node, self._schema)

    def _same_flow(self, other: object, what: str) -> None:
        if getattr(other, "_program", None) is not self._program:
            raise InvalidFlowError(
                what, expected="a stream of the same flow", found=repr(other)
            )

    def key_by(self, *columns: str) -> KeyedStream:
        """Partition the stream by one or more columns."""
        if not columns or not all(isinstance(c, str) for c in columns):
            raise InvalidFlowError(
                "key_by()",
                expected="names of columns",
                found=repr(columns),
                hint=_how_to_key(columns),
            )
        for column in columns:
            self._check_column("key_by", column)
        if len(set(columns)) != len(columns):
            raise InvalidFlowError(
                "key_by()", expected="each column once", found=repr(columns)
            )
        return KeyedStream(self, columns)

    def _to_window(self) -> tuple[Stream, tuple[str, ...]]:
        return self, ()

    @property
    def late(self) -> Stream:
        """The records that came too late for the preceding operator, or without a time.

        A record is too late for a window if all of its windows are over.
        """
        _, found = below_queries(self._node)
        if found is not self._node:
            return self._next(found, None).late
        node = self._node.input if isinstance(self._node, Output) else None
        if isinstance(node, Keyed) and "late" in _sides(node.process):
            return self.side("late")
        windows = node.windows if isinstance(node, Keyed) else None
        if windows is None or not isinstance(windows.window, TIMED):
            raise InvalidFlowError(
                ".late",
                expected="the output of a window, join, deduplicate or match",
                found=described(self._node),
                hint="ask the operator itself, before other steps",
            )
        assert isinstance(node, Keyed)
        return self._next(Late(input=node), None)

    @property
    def bad(self) -> Stream:
        """The rows of a source that could not be parsed.

        For files: ``file, record``; for Kafka: ``topic, partition, offset, record``.
        """
        node = self._node
        columns = getattr(getattr(node, "source", None), "bad_columns", None)
        if not isinstance(node, Read) or columns is None:
            raise InvalidFlowError(
                ".bad",
                expected="a stream directly from files or Kafka",
                found=described(node),
            )
        bad = Read(uid=node.uid, source=node.source, reads_bad_rows=True)
        return self._next(bad, schema_of(columns))

    def side(self, name: str) -> Stream:
        """Return a side output of the preceding process."""
        if not isinstance(self._node, Output) or not isinstance(
            self._node.input, Keyed
        ):
            raise InvalidFlowError(
                f"side({name!r})",
                expected="the output of process()",
                found="none",
            )
        keyed = self._node.input
        sides = _sides(keyed.process)
        if name not in sides:
            known = ", ".join(sorted(sides)) or "none"
            raise InvalidFlowError(
                f"side({name!r}) of operator {keyed.uid!r}",
                expected=f"one of its side outputs ({known})",
                found=repr(name),
            )
        return self._next(Output(input=keyed, name=name), sides[name])

    def write(
        self, sink: Sink, *, mode: str | None = None, uid: str | None = None
    ) -> Stream:
        """Send the stream to a sink; return the stream, for more sinks.

        Args:
            sink: A sink from ``rl.sinks``.
            mode: For windows: ``append`` (default) emits a window when it ends, and
                when late records correct it; ``update`` emits it in every epoch in
                which it changes, to replace the earlier row of the same key and window;
                for sessions, rows that are taken back have ``gone`` true. For
                aggregates: ``complete`` emits the whole table of results.
            uid: Stable name of the sink; keep it when the code changes.
        """
        check_sink("write()", sink)
        self._check_has_rows()
        taken = self._program.take_uid(uid, sink.kind)
        is_whole = mode == "complete"
        if is_whole:
            node: Node = whole_table(self._program, self._node, sink, taken)
        else:
            node = self._node if mode is None else in_mode(self._node, mode, sink)
        self._program.writes.append(
            Write(uid=taken, input=node, sink=sink, replaces=is_whole)
        )
        return self

    def _check_has_rows(self) -> None:
        _check_has_rows(self._node)


def _how_to_key(given: tuple[object, ...]) -> str:
    names = given[0] if given and isinstance(given[0], list | tuple) else ()
    if names and all(isinstance(name, str) for name in names):
        return f"write key_by({', '.join(map(repr, names))})"
    return "compute the key first: .with_column('k', ...).key_by('k')"


def _sides(process: KeyedLogic[Any] | None) -> dict[str, Schema | None]:
    """Return the side outputs; the columns of a built-in operator's are known later."""
    if isinstance(process, BuiltIn):
        return dict.fromkeys(process.sides)
    return {n: s.schema for n, s in side_outputs(type(process)).items()}


def _check_has_rows(node: Node) -> None:
    if not isinstance(node, Output) or not isinstance(node.input, Keyed):
        return
    process = node.input.process
    is_silent = process is not None and process.output is None
    if node.name == "main" and is_silent and not isinstance(process, BuiltIn):
        raise InvalidFlowError(
            f"output of operator {node.input.uid!r}",
            expected=f"columns declared in {type(process).__name__}.output",
            found="none",
            hint='write output = "user string, spent double" in the class',
        )
