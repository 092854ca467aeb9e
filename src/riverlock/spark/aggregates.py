"""Aggregate expressions, split into a part that Spark computes and one that we merge.

Spark combines the rows of a key within each partition, with its own code generation;
the partial rows, one per key and partition, are merged into state in Python, in the
order of the partitions, so that floating-point sums are added in a fixed order and an
epoch gives the same bits when it is run again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from riverlock.core.errors import InvalidFlowError
from riverlock.core.types import Type, type_of
from riverlock.flow.operators import Aggregate
from riverlock.runtime.columns import SEQ, SOURCE, TIME
from riverlock.spark.frames import as_column

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import Column

__all__ = ["Combine", "plan_aggregates"]

# Nodes of a physical plan that stand between an aggregate and its exchange.
_WRAPPERS = ("WholeStageCodegenExec", "InputAdapter", "SortExec")
_SUPPORTED = "count, sum, min, max, avg"


@dataclass(frozen=True)
class Combine:
    """The combining step before the exchange."""

    keys: tuple[str, ...]
    parts: Mapping[str, Any]

    def apply(self, frame: DataFrame) -> DataFrame:
        """Return one row per key and partition, with the partial aggregates."""
        grouping = list(self.keys)
        if SOURCE in frame.columns:
            grouping.append(SOURCE)
        parts = {n: as_column(c) for n, c in self.parts.items()}
        if TIME in frame.columns:
            parts[TIME] = F.max(TIME)
        columns = [c.alias(n) for n, c in parts.items()]
        partial = _partial(
            frame.groupBy(*grouping).agg(*columns), len(grouping), len(parts)
        )
        if partial is not None:
            named = partial.toDF(*grouping, *parts)
            return named.withColumn(SEQ, F.spark_partition_id().cast("bigint"))
        numbered = frame.withColumn(SEQ, F.spark_partition_id().cast("bigint"))
        return numbered.groupBy(*grouping, SEQ).agg(*columns)


def _partial(aggregated: DataFrame, keys: int, parts: int) -> DataFrame | None:
    """Return what Spark computes of an aggregate before its exchange.

    Spark aggregates twice, with an exchange between, which we do not need: state is
    where partial rows are merged, behind an exchange of our own. None if the plan is
    not of that form, or counts something on its way, which only whole plans do.
    """
    plan: Any = aggregated._jdf.queryExecution().executedPlan()
    exchange = _below(plan, through_aggregates=True)
    if _kind(exchange) != "ShuffleExchangeExec":
        return None
    combined = exchange.child()
    aggregate = _below(combined, through_aggregates=False)
    if not _kind(aggregate).endswith("AggregateExec"):
        return None
    # Columns are known by their place alone. Spark computes equal expressions once,
    # leaves out keys that are constant, and needs two columns for a sum of decimals.
    found = (
        aggregate.groupingExpressions().size(),
        aggregate.aggregateExpressions().size(),
        combined.output().size(),
    )
    if found != (keys, parts, keys + parts):
        return None
    if "CollectMetrics" in combined.toString():
        return None
    session: Any = aggregated.sparkSession
    is_streaming = False
    made = session._jsparkSession.internalCreateDataFrame(
        combined.execute(), combined.schema(), is_streaming
    )
    return DataFrame(made, session)


def _below(plan: Any, *, through_aggregates: bool) -> Any:
    """Go down through what only wraps or sorts; returns the first other node."""
    while True:
        kind = _kind(plan)
        is_passed = through_aggregates and kind.endswith("AggregateExec")
        if kind not in _WRAPPERS and not is_passed:
            return plan
        plan = plan.children().head()  # all of these have one


def _kind(plan: Any) -> str:
    name: str = plan.getClass().getSimpleName()
    return name


def plan_aggregates(
    frame: DataFrame, keys: tuple[str, ...], aggregates: Mapping[str, Any], uid: str
) -> tuple[Combine, Aggregate]:
    """Split aggregate expressions.

    Raises:
        InvalidFlowError: An expression is not one of the supported aggregates.
    """
    parts: dict[str, Any] = {}
    merges: dict[str, tuple[Type, str]] = {}
    results: dict[str, tuple[Type, str, tuple[str, ...]]] = {}
    for name, expression in aggregates.items():
        column = as_column(expression)
        function, argument = _function(frame, name, column, uid)
        kind = _type(frame, column)
        if function == "Average":
            total, n = f"{name}_sum", f"{name}_count"
            parts[total], parts[n] = f"sum({argument})", f"count({argument})"
            merges[total] = (_type(frame, as_column(parts[total])), "sum")
            merges[n] = (Type("long"), "sum")
            results[name] = (kind, "avg", (total, n))
        else:
            parts[name] = column
            how = {"Min": "min", "Max": "max"}.get(function, "sum")
            merges[name] = (kind, how)
            finish = "count" if function == "Count" else "same"
            results[name] = (kind, finish, (name,))
    return Combine(keys, parts), Aggregate(merges, results)


def _type(frame: DataFrame, column: Column) -> Type:
    found = frame.groupBy().agg(column.alias("x"))
    return type_of(found.schema["x"].dataType)


def _function(frame: DataFrame, name: str, column: Column, uid: str) -> tuple[str, str]:
    """Return the name of the aggregate function and the SQL text of its argument."""
    analyzed = frame.groupBy().agg(column.alias("x"))._jdf.queryExecution().analyzed()
    expression = analyzed.aggregateExpressions().head().child()
    kind = expression.getClass().getSimpleName()
    if kind == "AggregateExpression":
        function = expression.aggregateFunction()
        found = function.getClass().getSimpleName()
        plain = not expression.isDistinct() and expression.filter().isEmpty()
        if plain and found in ("Count", "Sum", "Min", "Max", "Average"):
            return found, function.children().head().sql()
    raise InvalidFlowError(
        f"aggregate {name!r} of operator {uid!r}",
        expected=f"one of {_SUPPORTED} of an expression",
        found=str(column),
        hint="compute around the aggregate with with_column afterwards,"
        " or write a Process",
    )
