"""What the parts of a query stand for: streams, tables, and the way down to them."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from py4j.java_gateway import JavaObject

from riverlock.engines.jobs.sql.stage import About, SqlStage, Step
from riverlock.flow.inside import node_of, program_of
from riverlock.flow.stream import Stream
from riverlock.program.graph import Relational
from riverlock.spark.plan_trees import children, kind, names, sequence

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["UNNAMED", "Named", "Rows", "Scope", "Spine", "is_column"]

# What a query calls rows that have no name of their own.
UNNAMED = "__rl_rows"


@dataclass(frozen=True, kw_only=True)
class Rows:
    """A stream that a query, or a part of it, gives."""

    stream: Stream
    about: About


@dataclass(eq=False)
class Named:
    """A part of a query that has a name: translated when it is used."""

    translated: Callable[[], Rows]

    @cached_property
    def rows(self) -> Rows:
        """Return its rows: the same each time, so that its state exists once."""
        return self.translated()


@dataclass(frozen=True, eq=False)
class Scope:
    """What names stand for: streams, and tables that are read whole."""

    streams: Mapping[str, Rows | Named] = field(default_factory=dict)
    tables: Mapping[str, Any] = field(default_factory=dict)

    def with_stream(self, name: str, rows: Rows | Named) -> Scope:
        """Return a scope in which a name stands for a stream."""
        tables = {n: t for n, t in self.tables.items() if n != name}
        return Scope({**self.streams, name: rows}, tables)

    def with_table(self, name: str, table: Any) -> Scope:
        """Return a scope in which a name stands for a table."""
        streams = {n: s for n, s in self.streams.items() if n != name}
        return Scope(streams, {**self.tables, name: table})


@dataclass(frozen=True, kw_only=True)
class Spine:
    """The nodes from the top of a plan down to where its rows come from."""

    steps: tuple[Step, ...]
    name: str
    rows: Rows
    tables: Mapping[str, Any]

    def stream(
        self, *more: Any, about: About | None = None, absent: tuple[str, ...] = ()
    ) -> Stream:
        """Return the rows of the plan, with further nodes on top, lowest first.

        Args:
            more: Nodes of one child, which stands for the node before.
            about: What a query over these rows must know of them.
            absent: Names that must not be columns of the plan.
        """
        before = self.rows.stream
        steps = (*(Step(node) for node in reversed(more)), *self.steps)
        stage = SqlStage(
            steps, self.name, self._tables(steps), about or About(), absent
        )
        node = Relational(input=node_of(before), operation="sql", arguments=(stage,))
        return Stream(program_of(before), node, None)

    @property
    def about(self) -> About:
        """What a query over the rows of the plan must know of them."""
        below = self.rows.about
        return About(
            time=self._renamed(below.time),
            window=self._renamed(below.window),
            is_updating=below.is_updating,
        )

    def _tables(self, steps: tuple[Step, ...]) -> dict[str, Any]:
        """Return the tables that nodes read, and those that these are made of."""
        used: set[str] = set()
        plans = [
            plan
            for step in steps
            for place, child in enumerate(children(step.node))
            for plan in ([] if place == step.child else [child])
        ]
        plans += [p for step in steps for p in sequence(step.node.subqueries())]
        while plans:
            name, inner = _read(plans.pop())
            plans += inner
            if name is not None and name in self.tables and name not in used:
                used.add(name)
                table = self.tables[name]
                plans += [table] if isinstance(table, JavaObject) else []
        return {n: t for n, t in self.tables.items() if n in used}

    def _renamed(self, column: str | None) -> str | None:
        """Return what the plan calls a column of its rows; None if it has it not."""
        for step in reversed(self.steps):
            if column is None or kind(step.node) == "UnresolvedSubqueryColumnAliases":
                return None
            if kind(step.node) == "Project":
                column = _chosen(sequence(step.node.projectList()), column)
        return column


def _read(plan: Any) -> tuple[str | None, list[Any]]:
    """Return the table that a node reads, if it does, and the plans right below it."""
    if kind(plan) == "UnresolvedRelation":
        return str(plan.multipartIdentifier().last()).casefold(), []
    inner = [*children(plan), *sequence(plan.subqueries())]
    if kind(plan) == "UnresolvedWith":
        inner += [pair._2() for pair in sequence(plan.cteRelations())]
    return None, inner


def _chosen(items: list[Any], column: str) -> str | None:
    """Return what a SELECT calls a column."""
    kept = None
    for item in items:
        if kind(item) == "Alias" and is_column(item.child(), column):
            return str(item.name())
        if kind(item).startswith("UnresolvedStar") or is_column(item, column):
            kept = column
    taken = {i.name().casefold() for i in items if kind(i) == "Alias"}
    return None if column.casefold() in taken else kept


def is_column(expression: Any, column: str) -> bool:
    """Tell whether an expression is a column of that name."""
    if kind(expression) != "UnresolvedAttribute":
        return False
    return names(expression)[-1].casefold() == column.casefold()
