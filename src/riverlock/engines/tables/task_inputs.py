"""What tasks that live long need to make the input of every stage by themselves.

For engines that bring rows to tasks without frames. In the driver, once a flow is
compiled (by ``engines.jobs.compiled``, which has Spark for analysing)::

    inputs = TaskInputs.of(compiled, computed)
    blob = cloudpickle.dumps(inputs)  # once; every task gets the same

and for each epoch, for each task its share, small and picklable::

    for task, pieces in enumerate(shares(readers, planned.inputs, parallelism)):
        ...

In a task, for each epoch, one ``Tables`` for **all** stages of the epoch: a node is
evaluated once, so that all who read it see the same rows::

    tables = inputs.tables(pieces, now_us=planned.now_us)

    # A keyed stage: rows by the task that owns them, this one included. They have the
    # hidden columns that KeyedTask expects; hand each to its owner.
    by_task = inputs.sent(stage, tables, parallelism, initial)

    # When the operator has run: outputs that later stages read (``inputs.staged``),
    # with SEQ and TIME, and what its windows have left out.
    tables.take_output(stage, name, inputs.made(stage, name, table))
    tables.take_late(stage, LateRows(rows, until_us))

    # A stage without keys: what StageTask.staged is given.
    found, read = inputs.outputs(stage, tables)

``initial`` is given to one task, in the epoch in which ``needs_initial`` says so.
Rows of ``by_task`` for one task have the same columns in the same order whatever rows
there are, but a stage may get other columns from another task if an input of a union
has no rows there: receivers concatenate with ``promote_options="default"``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from riverlock.connectors.base.splits import Divided, without_spark
from riverlock.engines.tables.exchange import KeyedInput, exchanged
from riverlock.engines.tables.nodes import Tables
from riverlock.engines.tables.reading import bad_columns
from riverlock.engines.tables.rows import Computed, Given, Stored
from riverlock.operators.shipped import DEAD, MAIN
from riverlock.program.graph import (
    Connect,
    EventTime,
    Keyed,
    Late,
    Output,
    Read,
    Relational,
    RowWise,
    Union,
    declared_behind_keyed,
)
from riverlock.stages.compiled import KeyedStage

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from riverlock.connectors.base.source_reader import Reader
    from riverlock.core.types import Schema
    from riverlock.engines.tables.reading import Pieces
    from riverlock.engines.tables.rows import ArrowRows
    from riverlock.program.graph import Node
    from riverlock.stages.compiled import CompiledFlow, WriteStage

__all__ = ["TaskInputs"]


@dataclass(frozen=True, kw_only=True)
class TaskInputs:
    """All stages of a flow; picklable by cloudpickle, without sources, sinks, state.

    Attributes:
        sources: The columns of each source, and those of its bad rows.
        event_times: The declarations of the flow, in order.
        says_source: Whether rows say which declaration their time is of.
        staged: The columns of outputs that later stages read, by operator and name.
        computed: Steps that are expressions.
        keyed: How rows get to the tasks of a keyed stage, by its id.
        writes: What tasks of the other stages stage, by their ids and outputs.
    """

    sources: Mapping[str, tuple[Schema, Schema | None]]
    event_times: Mapping[str, EventTime]
    says_source: bool
    staged: Mapping[tuple[str, str], Schema]
    computed: Computed
    keyed: Mapping[str, KeyedInput]
    writes: Mapping[str, Mapping[str, Node]]

    @classmethod
    def of(
        cls,
        compiled: CompiledFlow,
        readers: Mapping[str, Reader],
        computed: Computed | None = None,
    ) -> TaskInputs:
        """Return what tasks need of a flow.

        Args:
            compiled: Its stages.
            readers: Readers by uid, all of them ``Divided``.
            computed: Steps that are expressions, if it has any.

        Raises:
            InvalidFlowError: Only Spark can read a source.
        """
        for read in compiled.flow.find(Read):
            if not isinstance(readers[read.uid], Divided):
                raise without_spark(f"source {read.uid!r}", read.source.kind)
        flow, bare = compiled.flow, _Bare()
        given, bad = computed or Computed(), bad_columns(compiled.flow)
        columns: Mapping[str, Any] = readers
        return cls(
            sources={u: (r.schema, bad.get(u)) for u, r in columns.items()},
            event_times={u: bare.of(n) for u, n in compiled.event_times.items()},
            says_source=any(map(declared_behind_keyed, flow.keyed)),
            staged=compiled.staged,
            computed=replace(
                given,
                steps={
                    bare.of(node): (bare.of(base), steps)
                    for node, (base, steps) in given.steps.items()
                },
            ),
            keyed={
                stage.id: replace(
                    KeyedInput.of(stage, flow.key_groups), node=bare.of(stage.node)
                )
                for stage in compiled.keyed
            },
            writes={
                stage.id: {n: bare.of(each) for n, each in _written(stage).items()}
                for stage in compiled.stages
                if not isinstance(stage, KeyedStage)
            },
        )

    def tables(self, pieces: Pieces, *, now_us: int) -> Tables:
        """Return the tables of an epoch over what a task reads of it."""
        given = {
            uid: Given(columns, bad, pieces.get(uid, ()))
            for uid, (columns, bad) in self.sources.items()
        }
        return Tables(
            self.event_times,
            given,
            {place: Stored.output(columns) for place, columns in self.staged.items()},
            {},
            says_source=self.says_source,
            computed=self.computed,
            now_us=now_us,
        )

    def sent(
        self,
        stage: str,
        tables: Tables,
        tasks: int,
        initial: ArrowRows | None = None,
    ) -> dict[int, pa.Table]:
        """Return rows of a keyed stage by the task that owns them; others get none.

        Raises:
            UserCodeError: A function or an expression of the user raised.
            SourceError: A piece is not what it was.
        """
        return exchanged(self.keyed[stage], tables, tasks, initial)

    def outputs(self, stage: str, tables: Tables) -> tuple[dict[str, pa.Table], int]:
        """Return what a task of another stage stages, and of how many rows it is made.

        Raises:
            UserCodeError: A function or an expression of the user raised.
            SourceError: A piece is not what it was.
        """
        nodes = self.writes[stage]
        found = {name: tables.rows(node).table for name, node in nodes.items()}
        source = nodes[MAIN]
        if DEAD in nodes and isinstance(source, RowWise):
            source = source.input
        return found, len(tables.rows(source))

    def made(self, stage: str, name: str, table: pa.Table) -> Stored:
        """Return rows of an output that are in this process; they have SEQ and TIME."""
        columns = self.staged[(stage, name)]
        return replace(Stored.output(columns), tables=(table,))


def _written(stage: WriteStage) -> dict[str, Node]:
    if stage.function is None:
        return {MAIN: stage.node}
    assert isinstance(stage.node, RowWise)
    return {MAIN: stage.node, DEAD: Output(input=stage.node, name=DEAD)}


@dataclass(frozen=True)
class _Origin:
    """What is left of a source or a sink: tasks neither open nor commit it."""

    kind: str = ""
    schema: Schema | None = None


class _Bare:
    """Copies of nodes without what tasks do not need, or cannot get."""

    def __init__(self) -> None:
        self._made: dict[Node, Any] = {}

    def of(self, node: Node) -> Any:
        """Return the copy; the same one each time."""
        if node not in self._made:
            self._made[node] = self._copy(node)
        return self._made[node]

    def _copy(self, node: Node) -> Node:
        match node:
            case Read():
                return replace(node, source=_Origin())
            case EventTime():
                mark = node.watermark if isinstance(node.watermark, str) else None
                return replace(node, input=self.of(node.input), watermark=mark)
            case Relational():
                return replace(node, input=self.of(node.input), arguments=())
            case RowWise():
                dead = None if node.on_error is None else _Origin()
                return replace(node, input=self.of(node.input), on_error=dead)
            case Union():
                return replace(node, inputs=tuple(map(self.of, node.inputs)))
            case Connect():
                both = {"left": self.of(node.left), "right": self.of(node.right)}
                return replace(node, **both)
            case Output() | Late():
                return replace(node, input=self.of(node.input))
            case Keyed():
                others = node.broadcast
                return replace(
                    node,
                    input=self.of(node.input),
                    process=None,
                    aggregates={},
                    broadcast=None if others is None else self.of(others),
                    initial=None,
                    on_error=None,
                )
