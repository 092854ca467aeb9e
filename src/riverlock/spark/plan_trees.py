"""Spark's trees of plans and expressions: reading, making and changing them.

Nodes live in the JVM and are never changed: a change is a new node.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame
from pyspark.sql.classic.column import _to_seq

from riverlock.spark.remote import unlogged
from riverlock.spark.session import ZONE, job_conf

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import SparkSession

__all__ = ["Trees", "below", "children", "kind", "names", "normal", "sequence"]

_QUOTED = re.compile(r"('(?:[^'\\]|\\.)*')")


def kind(node: Any) -> str:
    """Return the name of a node's class."""
    found: str = node.getClass().getSimpleName()
    return found


def sequence(items: Any) -> list[Any]:
    """Return a Scala sequence as a list."""
    return [items.apply(i) for i in range(items.size())]


def children(node: Any) -> list[Any]:
    """Return the nodes right below a node."""
    return sequence(node.children())


def below(expression: Any) -> Iterator[Any]:
    """Yield an expression and all its parts."""
    yield expression
    for child in children(expression):
        yield from below(child)


def names(attribute: Any) -> list[str]:
    """Return the parts of a name such as ``e.action``."""
    return [str(part) for part in sequence(attribute.nameParts())]


def normal(expression: Any) -> str:
    """Return the same text for expressions that SQL takes for the same.

    Case does not matter, except in what is quoted.
    """
    text = expression.sql()
    if kind(expression) == "UnresolvedFunction":
        # The text of a call leaves these out.
        text += f" {expression.isDistinct()} {expression.filter().isDefined()}"
        text += f" {expression.ignoreNulls().toString()}"
    parts = _QUOTED.split(text)
    return "".join(p if p.startswith("'") else p.casefold() for p in parts)


class Trees:
    """Makes nodes with the JVM of a session."""

    def __init__(self, spark: SparkSession) -> None:
        """Take the session that parses and analyses."""
        self.spark = spark
        jvm: Any = spark._jvm
        catalyst = jvm.org.apache.spark.sql.catalyst
        self._jvm, self._catalyst = jvm, catalyst
        self._logical = catalyst.plans.logical
        self._state: Any = spark._jsparkSession.sessionState()

    def seq(self, items: Sequence[Any]) -> Any:
        """Return a list as a Scala sequence."""
        return _to_seq(self.spark.sparkContext, items)

    def parsed(self, query: str) -> Any:
        """Return the plan of a query, as the parser sees it."""
        # The parser is who reads literals of time.
        with unlogged(), job_conf(self.spark, ZONE):
            return self._state.sqlParser().parsePlan(query)

    def expression(self, text: str) -> Any:
        """Return an expression given as SQL."""
        return self._state.sqlParser().parseExpression(text)

    def attribute(self, *parts: str) -> Any:
        """Return the name of a column as an expression."""
        return self._catalyst.analysis.UnresolvedAttribute(self.seq(parts))

    def field(self, expression: Any, name: str) -> Any:
        """Return a field of a struct."""
        quoted = name.replace("\\", "\\\\").replace("'", "\\'")
        key = self.expression(f"'{quoted}'")
        return self._catalyst.analysis.UnresolvedExtractValue(expression, key)

    def only_if(self, condition: Any, value: Any) -> Any:
        """Return a value, or null where a condition does not hold."""
        null = self.expression("null")
        return self._catalyst.expressions.If(condition, value, null)

    def alias(self, expression: Any, name: str) -> Any:
        """Return an expression with a name."""
        expressions = self._catalyst.expressions
        nothing = self._jvm.scala.Option.empty()
        number = expressions.NamedExpression.newExprId()
        return expressions.Alias(
            expression, name, number, self.seq([]), nothing, self.seq([])
        )

    def project(self, columns: Sequence[Any], child: Any) -> Any:
        """Return a plan that yields these columns."""
        return self._logical.Project(self.seq(columns), child)

    def where(self, condition: Any, child: Any) -> Any:
        """Return a plan that keeps the rows for which a condition holds."""
        return self._logical.Filter(condition, child)

    def named(self, name: str, child: Any) -> Any:
        """Return a plan that a query knows under a name."""
        identifier = self._catalyst.AliasIdentifier(name, self.seq([]))
        return self._logical.SubqueryAlias(identifier, child)

    def with_tables(self, plan: Any, tables: Sequence[tuple[str, Any]]) -> Any:
        """Return a plan in which names stand for other plans."""
        unbounded = self._jvm.scala.Option.empty()
        defined = [
            self._jvm.scala.Tuple3(name, self.named(name, table), unbounded)
            for name, table in tables
        ]
        allow_recursion = False
        return self._logical.UnresolvedWith(plan, self.seq(defined), allow_recursion)

    def with_children(self, node: Any, changed: Sequence[Any]) -> Any:
        """Return a node with other children."""
        return node.withNewChildren(self.seq(changed))

    def frame(self, plan: Any) -> DataFrame:
        """Return a plan, analysed, as a DataFrame.

        Raises:
            AnalysisException: Spark cannot make sense of it.
        """
        session: Any = self.spark
        rows = self._jvm.org.apache.spark.sql.classic.Dataset.ofRows(
            session._jsparkSession, plan
        )
        return DataFrame(rows, session)

    def window_us(self, at: Any, size: Any, slide: Any, start: Any) -> tuple[int, ...]:
        """Return size, slide and start of windows as Spark reads them."""
        with unlogged():
            window = self._catalyst.expressions.TimeWindow(at, size, slide, start)
        return window.windowDuration(), window.slideDuration(), window.startTime()

    def as_call(self, aggregate: Any) -> Any:
        """Return an aggregate as a call by name, which the parser makes of most."""
        if kind(aggregate) != "AggregateExpression":
            return aggregate
        # first(x), last(x) and any_value(x) have rules of their own.
        function = aggregate.aggregateFunction()
        nulls = "IGNORE" if function.ignoreNulls() else "RESPECT"
        name = function.prettyName()
        return self.expression(f"{name}({children(function)[0].sql()}) {nulls} NULLS")

    def is_aggregate(self, expression: Any) -> bool:
        """Tell whether an expression is the call of an aggregate function."""
        if kind(expression) == "AggregateExpression":
            return True
        if kind(expression) != "UnresolvedFunction":
            return False
        parts = names(expression)
        if len(parts) != 1:
            return False
        identifier = self._catalyst.FunctionIdentifier(parts[0])
        try:
            with unlogged():
                info = self._state.catalog().lookupFunctionInfo(identifier)
        except AnalysisException:
            return False  # Spark will say that there is no such function
        return bool(info.getGroup() == "agg_funcs")
