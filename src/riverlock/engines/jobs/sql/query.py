"""From the text of a query to streams."""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, Any

from pyspark.errors import ParseException
from pyspark.sql import DataFrame

from riverlock.core.errors import InvalidFlowError
from riverlock.engines.jobs.sql.grouping import Grouping
from riverlock.engines.jobs.sql.refusals import refused
from riverlock.engines.jobs.sql.scope import UNNAMED, Named, Rows, Scope, Spine
from riverlock.engines.jobs.sql.stage import ROW_BY_ROW, About, Step
from riverlock.flow.inside import node_of, program_of
from riverlock.flow.stream import Stream
from riverlock.program.graph import (
    EventTime,
    Keyed,
    Node,
    Output,
    Read,
    Relational,
    Union,
    event_times_of,
)
from riverlock.spark.plan_trees import Trees, below, children, kind, sequence
from riverlock.spark.session import local_session
from riverlock.spark.time_literals import check_literals

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import timedelta

    from riverlock.program.program import Program

__all__ = ["Query", "translate"]

# Nodes of a parsed plan that make no row of several.
_ROW_LOCAL = frozenset(
    {
        "Filter",
        "Generate",
        "Join",
        "LateralJoin",
        "Project",
        "SubqueryAlias",
        "UnresolvedHint",
        "UnresolvedSubqueryColumnAliases",
    }
)
_STATE = re.compile(r"\s*SQLSTATE: \w+")


def translate(
    flow: Program,
    query: str,
    given: Mapping[str, Any],
    *,
    uid: str | None,
    lateness: str | timedelta | None,
) -> Stream:
    """Return the rows of a query over streams of a flow.

    Raises:
        InvalidFlowError: Spark cannot parse it, or a stream cannot answer it.
    """
    trees = Trees(local_session())
    made = Query(flow, trees, uid, lateness)
    try:
        check_literals(query)
        plan = trees.parsed(query)
    except ParseException as error:
        raise _unparsable(error) from error
    scope = Scope()
    for name, thing in given.items():
        if isinstance(thing, Stream):
            scope = scope.with_stream(name.casefold(), made.source(name, thing))
        elif isinstance(thing, DataFrame) or callable(thing):
            scope = scope.with_table(name.casefold(), thing)
        else:
            raise InvalidFlowError(
                f"flow.sql({name}=)",
                expected="a stream, or a table: a DataFrame or a function from"
                " SparkSession to one",
                found=repr(thing),
            )
    if not made.has_stream(plan, scope):
        raise InvalidFlowError(
            "flow.sql()",
            expected="a query over a stream",
            found="a query over tables only",
            hint="pass the stream: flow.sql(query, events=stream)",
        )
    found = made.rows(plan, scope)
    made.check_options()
    return found.stream


def _unparsable(error: ParseException) -> InvalidFlowError:
    lines = [line for line in str(error).splitlines() if line.strip()]
    return InvalidFlowError(
        "flow.sql()",
        expected="SQL that Spark can parse",
        found=_STATE.sub("", lines[0]),
    )


class Query:
    """A query on its way to streams."""

    def __init__(
        self,
        flow: Program,
        trees: Trees,
        uid: str | None,
        lateness: str | timedelta | None,
    ) -> None:
        """Take the flow that gets the operators, and the options of the query."""
        self.flow, self.trees, self.lateness = flow, trees, lateness
        self._uid = uid
        self._groupings = 0
        self.windows = 0

    def take_uid(self) -> str | None:
        """Return the uid of an aggregate: that of the query, further ones numbered."""
        self._groupings += 1
        is_first = self._uid is None or self._groupings == 1
        return self._uid if is_first else f"{self._uid}-{self._groupings}"

    def check_options(self) -> None:
        """Refuse options that nothing of the query uses."""
        unused = {
            "uid": self._uid is not None and not self._groupings,
            "lateness": self.lateness is not None and not self.windows,
        }
        for name, is_unused in unused.items():
            if is_unused:
                needs = "GROUP BY" if name == "uid" else "GROUP BY window(...)"
                raise InvalidFlowError(
                    f"flow.sql({name}=)",
                    expected=f"a query with {needs}",
                    found="none",
                    hint=f"leave {name}= out",
                )

    def source(self, name: str, stream: Stream) -> Rows:
        """Return a stream of the flow as rows that a query can name."""
        if program_of(stream) is not self.flow:
            raise InvalidFlowError(
                f"stream {name!r} of flow.sql",
                expected=f"a stream of flow {self.flow.name!r}",
                found=f"one of flow {program_of(stream).name!r}",
            )
        return Rows(stream=stream, about=_about(node_of(stream)))

    def rows(self, plan: Any, scope: Scope) -> Rows:
        """Return the rows of a plan over a stream."""
        name = kind(plan)
        if name == "UnresolvedRelation":
            return self._relation(plan, scope)
        if name == "SubqueryAlias":
            # At the top of a part of a query, a name serves nobody.
            return self.rows(plan.child(), scope)
        if name == "UnresolvedWith":
            return self.rows(plan.child(), self._defined(plan, scope))
        if name == "Union":
            return self._union(plan, scope)
        if name == "Aggregate":
            return Grouping(self, plan, None, scope).rows()
        if name == "UnresolvedHaving":
            return self._having(plan, scope)
        spine = self.spine(plan, scope)
        return Rows(stream=spine.stream(about=spine.about), about=spine.about)

    def _having(self, plan: Any, scope: Scope) -> Rows:
        if kind(plan.child()) != "Aggregate":
            raise refused(kind(plan))
        self.check_subqueries(plan, scope)
        return Grouping(self, plan.child(), plan.havingCondition(), scope).rows()

    def spine(self, plan: Any, scope: Scope) -> Spine:
        """Go down from the top of a plan to where its rows come from."""
        steps: list[Step] = []
        while kind(plan) in _ROW_LOCAL:
            place = self._toward_stream(plan, scope)
            self._check_expressions(plan, scope)
            steps.append(Step(plan, place))
            plan = children(plan)[place]
        if kind(plan) not in _CUTS:
            raise refused(kind(plan))
        rows = self.rows(plan, scope)
        if rows.about.is_updating and {kind(s.node) for s in steps} - ROW_BY_ROW:
            raise refused("updating")
        is_named = kind(plan) == "UnresolvedRelation"
        name = sequence(plan.multipartIdentifier())[-1] if is_named else UNNAMED
        return Spine(steps=tuple(steps), name=name, rows=rows, tables=scope.tables)

    def _toward_stream(self, plan: Any, scope: Scope) -> int:
        places = [i for i, c in enumerate(children(plan)) if self.has_stream(c, scope)]
        if len(places) != 1:
            raise refused("subquery" if not places else kind(plan))
        if kind(plan) == "Join":
            _check_join(plan, places[0])
        return places[0]

    def check_subqueries(self, plan: Any, scope: Scope) -> None:
        """Refuse streams in sub-queries of expressions."""
        for subquery in sequence(plan.subqueries()):
            if self.has_stream(subquery, scope):
                is_lateral = kind(plan) == "LateralJoin"
                raise refused("LateralJoin" if is_lateral else "subquery")

    def _check_expressions(self, plan: Any, scope: Scope) -> None:
        self.check_subqueries(plan, scope)
        for expression in sequence(plan.expressions()):
            for each in below(expression):
                if kind(each) in ("WindowExpression", "UnresolvedWindowExpression"):
                    raise refused(kind(each))
                if self.trees.is_aggregate(each):
                    raise refused("aggregate")

    def has_stream(self, plan: Any, scope: Scope) -> bool:
        """Tell whether rows of a stream are in a plan."""
        if kind(plan) == "UnresolvedRelation":
            return self._find(plan, scope) is not None
        if kind(plan) == "UnresolvedWith":
            scope = self._defined(plan, scope)
        inner = [*children(plan), *sequence(plan.subqueries())]
        # All are looked at: a name that stands for nothing is told in any case.
        found = [self.has_stream(each, scope) for each in inner]
        return any(found)

    def _defined(self, plan: Any, scope: Scope) -> Scope:
        """Return a scope with the tables of a WITH."""
        if plan.allowRecursion():
            raise refused("recursion")
        for pair in sequence(plan.cteRelations()):
            name, table = str(pair._1()).casefold(), pair._2()
            if self.has_stream(table, scope):
                scope = scope.with_stream(name, Named(partial(self.rows, table, scope)))
            else:
                scope = scope.with_table(name, table)
        return scope

    def _relation(self, plan: Any, scope: Scope) -> Rows:
        found = self._find(plan, scope)
        assert found is not None
        return found.rows if isinstance(found, Named) else found

    def _find(self, plan: Any, scope: Scope) -> Rows | Named | None:
        """Return the stream that a name stands for; None if it is a table.

        Raises:
            InvalidFlowError: It is neither.
        """
        parts = [str(p) for p in sequence(plan.multipartIdentifier())]
        name = parts[-1]
        if len(parts) == 1:
            if name.casefold() in scope.streams:
                return scope.streams[name.casefold()]
            if name.casefold() in scope.tables:
                return None
            if name in self.flow.streams:
                return self.source(name, self._read(name))
        text = ".".join(f"`{p}`" for p in parts)
        if self.trees.spark.catalog.tableExists(text):
            return None
        known = sorted({*scope.streams, *scope.tables, *self.flow.streams})
        raise InvalidFlowError(
            f"name {'.'.join(parts)!r} of flow.sql",
            expected=f"one of {', '.join(known)}, or a table that Spark knows",
            found="neither",
            hint=f"pass the stream: flow.sql(query, {name}=stream)",
        )

    def _read(self, name: str) -> Stream:
        """Return the stream of a source, with the event time declared right on it."""
        stream = self.flow.streams[name]
        read = node_of(stream)
        if not isinstance(read, Read):
            return stream
        timed = [
            s
            for s in self.flow.streams.values()
            if isinstance(at := node_of(s), EventTime) and at.input is read
        ]
        if len(timed) > 1:
            raise InvalidFlowError(
                f"name {name!r} of flow.sql",
                expected="a source with at most one event time",
                found=f"{len(timed)} of them",
                hint=f"pass the one that is meant: flow.sql(query, {name}=stream)",
            )
        return timed[0] if timed else stream

    def _union(self, plan: Any, scope: Scope) -> Rows:
        branches = children(plan)
        if not all(self.has_stream(each, scope) for each in branches):
            raise refused("UNION ALL of a stream and a table")
        found = [self.rows(each, scope) for each in branches]
        if any(each.about.is_updating for each in found):
            raise refused("updating")
        node = Union(inputs=tuple(node_of(r.stream) for r in found), by_position=True)
        return Rows(stream=Stream(self.flow, node, None), about=_about(node))


def _about(node: Node) -> About:
    """Return what a query must know of the rows of a node."""
    match node:
        case Relational(operation="sql"):
            about: About = node.arguments[0].about
            return about
        case Union(by_position=True):
            every = [_about(each) for each in node.inputs]
            return About(
                time=_common({a.time for a in every}),
                window=_common({a.window for a in every}),
            )
        case Output(input=Keyed(process=None, windows=None)):
            return About(is_updating=True)
        case _:
            return About(time=_common({t.column for t in event_times_of(node)}))


def _common(found: set[Any]) -> Any:
    """Return the only one of a set; None if there is none, or more."""
    return found.pop() if len(found) == 1 else None


# Where a plan is cut: each gives a stream of its own.
_CUTS = (
    "UnresolvedRelation",
    "UnresolvedWith",
    "Union",
    "Aggregate",
    "UnresolvedHaving",
)


def _check_join(plan: Any, place: int) -> None:
    """Refuse joins whose rows do not follow from one row of the stream each."""
    words = set(plan.joinType().sql().split())
    if "FULL" in words:
        raise refused("outer")
    refused_side = {"RIGHT"} if place == 0 else {"LEFT", "SEMI", "ANTI"}
    if words & refused_side:
        raise refused("outer")
