"""Streams: edges of the graph while it is being built."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any

from riverlock.connectors.base.sink import is_sink
from riverlock.core.errors import InvalidFlowError
from riverlock.core.times import duration_us
from riverlock.core.types import Field, Schema, SchemaLike, schema_of
from riverlock.flow.conditions import is_function
from riverlock.flow.dstream import KeyedWindowOperations, WindowOperations
from riverlock.flow.joinable import Joinable
from riverlock.flow.other_streams import Helpful
from riverlock.flow.static_join import StaticJoinable
from riverlock.flow.windowable import Windowable
from riverlock.operators.aggregates.aggregator import named_aggregates
from riverlock.operators.aggregates.whole_table import whole_table
from riverlock.operators.built_in import (
    BuiltIn,
    Count,
    MapWithState,
    Reduce,
    UpdateState,
)
from riverlock.operators.deduplicate import Deduplicate
from riverlock.operators.match.match_operator import Match
from riverlock.operators.output_modes import below_queries, in_mode
from riverlock.operators.top import Ranking, Top, ranked
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
    described,
)
from riverlock.program.pattern import Pattern
from riverlock.program.process import Process, check_process, side_outputs
from riverlock.program.time_basis import positive_duration, timing_of
from riverlock.program.two_inputs import refuse_two_inputs
from riverlock.program.windows import TIMED

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import timedelta

    from pyspark.sql import Column

    from riverlock.connectors.base.sink import Sink
    from riverlock.flow.flow import Flow

__all__ = ["KeyedStream", "Stream"]


class Stream(StaticJoinable, Windowable, WindowOperations, Helpful):
    """Rows on their way from a source to sinks.

    Methods that take an expression accept SQL text or a PySpark ``Column``.
    """

    def __init__(self, flow: Flow, node: Node, schema: Schema | None) -> None:
        """Wrap a node; made by ``flow.read`` and by streams, not by users."""
        self.flow = flow
        self.node = node
        # None: known only when Spark has analysed the expressions before.
        self.schema = schema

    def _next(self, node: Node, schema: Schema | None) -> Stream:
        return Stream(self.flow, node, schema)

    def _relational(self, operation: str, *arguments: Any) -> Relational:
        return Relational(
            input=self.node, operation=operation, arguments=tuple(arguments)
        )

    def _check_column(self, what: str, name: str) -> None:
        if self.schema is None or name in self.schema.names:
            return
        close = difflib.get_close_matches(name, self.schema.names, n=1)
        raise InvalidFlowError(
            f"column {name!r} of {what}",
            expected=f"one of {', '.join(self.schema.names)}",
            found=repr(name),
            hint=f"did you mean {close[0]!r}?" if close else "",
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
        """Declare the column that says when a row happened.

        Args:
            column: A timestamp column.
            delay: How late rows may come: the watermark stays so far behind the newest.
            idle_after: Do not let this input hold time back after so long without rows;
                with ``per``, nor any of its partitions.
            watermark: What of a row moves the watermark, instead of its time: an
                expression whose value says that all earlier rows are there, or null:
                ``"CASE WHEN kind = 'end of hour' THEN at END"``.
            per: A column that tells partitions of the input apart. The watermark is
                that of the slowest, so that one that is ahead makes no other late.
            uid: Name of the declaration; keep it when the code changes.
        """
        self._check_column("event_time", column)
        if per is not None:
            self._check_column("per of event_time", per)
        node = EventTime(
            uid=self.flow.take_uid(uid, "event_time"),
            input=self.node,
            column=column,
            delay_us=duration_us(delay),
            idle_us=None if idle_after is None else duration_us(idle_after),
            watermark=watermark,
            per=per,
        )
        declared = self._next(node, self.schema)
        self.flow.streams[node.uid] = declared
        return declared

    def select(self, *columns: Any) -> Stream:
        """Keep or compute columns, as ``DataFrame.selectExpr`` and ``select`` do."""
        known = None
        if self.schema and all(isinstance(c, str) for c in columns):
            plain = [c for c in columns if c in self.schema.names]
            if len(plain) == len(columns):
                known = Schema(tuple(Field(c, self.schema[c]) for c in plain))
        return self._next(self._relational("select", *columns), known)

    def where(self, condition: Any) -> Stream:
        """Keep the rows for which a SQL condition holds."""
        return self._next(self._relational("where", condition), self.schema)

    def with_column(self, name: str, expression: Any) -> Stream:
        """Add or replace a column."""
        return self._next(self._relational("with_column", name, expression), None)

    def transform(self, function: Callable[[Any], Any]) -> Stream:
        """Apply any stateless function from DataFrame to DataFrame.

        It sees the rows of one epoch at a time: joins with static data are fine,
        aggregates over the whole stream are not (use ``key_by``). It is called for
        each epoch, never twice at a time, but not always in the same thread.
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
        if not callable(function):
            raise InvalidFlowError(
                f"argument of {operation}", expected="a function", found=repr(function)
            )
        schema = self.schema if output is None else schema_of(output)
        node = RowWise(
            uid=self.flow.take_uid(uid, operation),
            input=self.node,
            operation=operation,
            function=function,
            output=None if output is None else schema_of(output),
            on_error=on_error or self.flow.on_error,
        )
        if node.on_error is not None:
            self.flow.writes.append(
                Write(
                    uid=self.flow.take_uid(f"{node.uid}-dead", "dead", of=node.uid),
                    input=Output(input=node, name="dead"),
                    sink=node.on_error,
                )
            )
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

        It is called once for each record of an epoch, whoever reads the rows, unless
        a task or the epoch is tried again.

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
            if self.schema and other.schema and self.schema != other.schema:
                raise InvalidFlowError(
                    "union",
                    expected=f"columns {self.schema.ddl}",
                    found=other.schema.ddl,
                )
        node = Union(inputs=(self.node, *(o.node for o in others)))
        return self._next(node, self.schema)

    def _same_flow(self, other: Stream, what: str) -> None:
        if getattr(other, "flow", None) is not self.flow:
            raise InvalidFlowError(
                what, expected="a stream of the same flow", found=repr(other)
            )

    def key_by(self, *columns: str) -> KeyedStream:
        """Partition the stream by one or more columns."""
        if not columns or not all(isinstance(c, str) for c in columns):
            raise InvalidFlowError(
                "key_by",
                expected="names of columns",
                found=repr(columns),
                hint="compute the key first: .with_column('k', ...).key_by('k')",
            )
        for column in columns:
            self._check_column("key_by", column)
        if len(set(columns)) != len(columns):
            raise InvalidFlowError(
                "key_by", expected="each column once", found=repr(columns)
            )
        return KeyedStream(self, columns)

    def _to_window(self) -> tuple[Stream, tuple[str, ...]]:
        return self, ()

    @property
    def late(self) -> Stream:
        """The records that came too late for the operator before, or without a time.

        Too late for a window is what comes when all of its windows are over.
        """
        _, found = below_queries(self.node)
        if found is not self.node:
            return self._next(found, None).late
        node = self.node.input if isinstance(self.node, Output) else None
        if isinstance(node, Keyed) and "late" in _sides(node.process):
            return self.side("late")
        windows = node.windows if isinstance(node, Keyed) else None
        if windows is None or not isinstance(windows.window, TIMED):
            raise InvalidFlowError(
                "late",
                expected="the output of a window, join, deduplicate or match",
                found=described(self.node),
                hint="ask the operator itself, before other steps",
            )
        assert isinstance(node, Keyed)
        return self._next(Late(input=node), None)

    @property
    def bad(self) -> Stream:
        """The rows of a source that could not be parsed.

        Of files: ``file, record``; of Kafka: ``topic, partition, offset, record``.
        """
        node = self.node
        columns = getattr(getattr(node, "source", None), "bad_columns", None)
        if not isinstance(node, Read) or columns is None:
            raise InvalidFlowError(
                "bad",
                expected="a stream directly from files or Kafka",
                found=described(node),
            )
        bad = Read(uid=node.uid, source=node.source, reads_bad_rows=True)
        return self._next(bad, schema_of(columns))

    def side(self, name: str) -> Stream:
        """Return a side output of the process before."""
        if not isinstance(self.node, Output) or not isinstance(self.node.input, Keyed):
            raise InvalidFlowError(
                f"side output {name!r}",
                expected="the output of process()",
                found="none",
            )
        keyed = self.node.input
        sides = _sides(keyed.process)
        if name not in sides:
            raise InvalidFlowError(
                f"side output {name!r} of operator {keyed.uid!r}",
                expected=f"one of {sorted(sides)}",
                found=repr(name),
            )
        return self._next(Output(input=keyed, name=name), sides[name])

    def write(
        self, sink: Sink, *, mode: str | None = None, uid: str | None = None
    ) -> Stream:
        """Send the stream to a sink; returns the stream, for more sinks.

        Args:
            sink: Something of ``rl.sinks``.
            mode: Of windows: ``append`` (default) gives a window when it ends, and when
                late records correct it; ``update`` gives it in every epoch in which it
                changes, to be taken for the row of the same key and window before;
                of sessions, rows that are taken back have ``gone`` true.
                Of aggregates: ``complete`` gives the whole table of results.
            uid: Stable name of the sink; keep it when the code changes.
        """
        if not is_sink(sink):
            raise InvalidFlowError(
                "sink of write", expected="something of rl.sinks", found=repr(sink)
            )
        _check_has_rows(self.node)
        taken = self.flow.take_uid(uid, sink.kind)
        is_whole = mode == "complete"
        if is_whole:
            node: Node = whole_table(self.flow, self.node, sink, taken)
        else:
            node = self.node if mode is None else in_mode(self.node, mode, sink)
        self.flow.writes.append(
            Write(uid=taken, input=node, sink=sink, replaces=is_whole)
        )
        return self


def _sides(process: Process | None) -> dict[str, Schema | None]:
    """Return the side outputs; columns of a built-in operator's are told later."""
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


class KeyedStream(Joinable, Windowable, KeyedWindowOperations, Helpful):
    """A stream partitioned by key: where state lives."""

    def __init__(self, stream: Stream, keys: tuple[str, ...]) -> None:
        """Made by ``key_by``."""
        self.stream = stream
        self.keys = keys

    def process(
        self,
        process: Process,
        *,
        uid: str | None = None,
        broadcast: Stream | None = None,
        initial: Any = None,
        on_error: Sink | None = None,
    ) -> Stream:
        """Run a ``Process`` over each key.

        Args:
            process: An instance of your class.
            uid: Stable name of its state; keep it when the code changes.
            broadcast: A stream that every task sees whole, through ``on_broadcast``.
            initial: A DataFrame (or a function from SparkSession to one) with the key
                columns, given row by row to ``on_initial`` in the first epoch.
            on_error: A sink for records that make the process raise.
        """
        flow = self.stream.flow
        taken = flow.take_uid(uid, "process")
        output = check_process(process, taken)
        refuse_two_inputs(process, taken)
        if broadcast is not None:
            self.stream._same_flow(broadcast, "broadcast")
        node = Keyed(
            uid=taken,
            input=self.stream.node,
            keys=self.keys,
            process=process,
            broadcast=None if broadcast is None else broadcast.node,
            initial=initial,
            on_error=on_error or flow.on_error,
        )
        return self._keyed(node, output)

    def _keyed(self, node: Keyed, output: Schema | None) -> Stream:
        flow = self.stream.flow
        return Stream(flow, flow.add(node), output)

    def _built_in(
        self,
        kind: str,
        process: Process,
        uid: str | None,
        *,
        output: Schema | None = None,
        visits_all: bool = False,
    ) -> Stream:
        flow = self.stream.flow
        node = Keyed(
            uid=flow.take_uid(uid, kind),
            input=self.stream.node,
            keys=self.keys,
            process=process,
            on_error=flow.on_error,
            visits_all=visits_all,
        )
        # None: its columns begin with the key's, whose types Spark tells later.
        return self._keyed(node, output)

    def _to_window(self) -> tuple[Stream, tuple[str, ...]]:
        return self.stream, self.keys

    def agg(
        self,
        aggregates: Mapping[str, Any] | None = None,
        *,
        uid: str | None = None,
        **named: Any,
    ) -> Stream:
        """Keep running aggregates: ``agg(n="count(*)", total=F.sum("amount"))``.

        Each epoch gives one row per changed key: the key columns, then the aggregates.
        Spark combines the rows of a key before they are shuffled.
        """
        every = named_aggregates(aggregates, named)
        node = Keyed(
            uid=self.stream.flow.take_uid(uid, "agg"),
            input=self.stream.node,
            keys=self.keys,
            process=None,
            aggregates=every,
        )
        return self._keyed(node, None)

    def count(self, *, uid: str | None = None) -> Stream:
        """Count the rows of each key: key columns and ``count``."""
        return self._built_in("count", Count(), uid)

    def reduce(
        self, function: Callable[[Any, Any], Any], *, uid: str | None = None
    ) -> Stream:
        """Fold the records of each key: ``function(old, new)`` returns a record or row.

        Gives one row per record: the fold so far, with the columns of the input.
        """
        return self._built_in("reduce", Reduce(function), uid)

    def map_with_state(
        self,
        function: Callable[..., Any],
        state: Any,
        output: SchemaLike,
        *,
        uid: str | None = None,
        timeout: str | timedelta | None = None,
    ) -> Stream:
        """Call ``function(record, state)`` per record; cost follows the input.

        The function returns ``(row or None, new state)``; a state of None forgets the
        key. With a ``timeout`` (processing time without records) it is called once more
        with a record of None, and the key is forgotten.
        """
        process = MapWithState(function, state, output, timeout)
        return self._built_in("map_with_state", process, uid)

    def update_state_by_key(
        self, function: Callable[..., Any], state: Any, *, uid: str | None = None
    ) -> Stream:
        """Call ``function(records, state)`` for every key in every epoch.

        Also for keys without new records, so its cost follows the size of the state;
        ``map_with_state`` costs what it touches. Returns the new state, None forgets
        the key. Each epoch gives the whole state: key columns and ``state``.
        """
        return self._built_in(
            "update_state_by_key", UpdateState(function, state), uid, visits_all=True
        )

    def deduplicate(
        self, within: str | timedelta = "1 hour", *, uid: str | None = None
    ) -> Stream:
        """Keep the first record of each key, and further ones ``within`` away from it.

        A record is dropped if one of its key was kept whose event time is less than
        ``within`` away, on either side. What comes first is kept, so the result depends
        on the order of arrival, but not on where epochs end; no two kept records of a
        key are closer than ``within``. Records that are late, and no duplicates of what
        is still remembered, or have no event time, go to the side output ``late``.

        Without event time the time is the clock's, which is one instant per epoch.
        """
        distance = positive_duration("within of deduplicate", within)
        timing = timing_of(self.stream.node, "deduplicate", self.stream.schema)
        process = Deduplicate(distance, timing)
        return self._built_in("deduplicate", process, uid, output=self.stream.schema)

    def top(
        self, n: int, by: str, *, descending: bool = True, uid: str | None = None
    ) -> Stream:
        """Keep the ``n`` best records of each key by a column.

        Gives the input's columns and ``rank`` (1 is the best). Each epoch gives the
        ranks that have another record than before: written as upserts by key and rank,
        they are the ranking. Of equal records the earlier one is better; null is worse
        than any value.
        """
        process = Top(Ranking(n, by, descending=descending))
        self.stream._check_column("top", by)
        schema = self.stream.schema
        output = None if schema is None else ranked(schema, by)
        return self._built_in("top", process, uid, output=output)

    def match(
        self,
        pattern: Pattern,
        output: SchemaLike,
        select: Callable[[dict[str, Any]], Any],
        *,
        uid: str | None = None,
    ) -> Stream:
        """Look for a pattern in the events of each key.

        Events are looked at in the order of their times, those of one instant in the
        order of arrival, once the watermark reaches them: the result depends neither
        on the order of arrival nor on where epochs end. Late records are not looked
        at; they go to the side output ``late``. Without event time, events are looked
        at as they come, and times are the clock's.

        A match ends all others that had begun before its last event: no event is in two
        matches.

        Args:
            pattern: What ``rl.pattern(...)`` began; it has a ``within``.
            output: Columns of what ``select`` returns.
            select: A function from the events of a match, by name, to a row. Optional
                events that did not come are not among them.
            uid: Stable name of its state; keep it when the code changes.
        """
        if not isinstance(pattern, Pattern):
            raise InvalidFlowError(
                "pattern of match", expected="rl.pattern(...)", found=repr(pattern)
            )
        if pattern.span is None:
            raise InvalidFlowError(
                "pattern of match",
                expected="a bound on its time: state must not grow for ever",
                found="none",
                hint="end the pattern with .within('10 minutes')",
            )
        if not callable(select):
            raise InvalidFlowError(
                "select of match", expected="a function", found=repr(select)
            )
        columns = schema_of(output)
        timing = timing_of(self.stream.node, "match", self.stream.schema)
        process = Match(pattern, columns, select, timing)
        return self._built_in("match", process, uid, output=columns)
