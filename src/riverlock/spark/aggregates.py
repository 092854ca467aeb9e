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
from riverlock.flow.partial import Merge, PartialAggregate
from riverlock.flow.windows import TimeWindows
from riverlock.runtime.columns import ROWS, SEQ, SOURCE, TIME, WINDOW
from riverlock.spark.frames import as_column, hidden_columns, pane_end

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import Column

    from riverlock.flow.gathering import Gathering

__all__ = ["Combine", "Singles", "plan_aggregates"]

# Nodes of a physical plan that stand between an aggregate and its exchange.
_WRAPPERS = ("WholeStageCodegenExec", "InputAdapter", "SortExec")
_SUPPORTED = (
    "count, sum, min, max, avg, stddev, variance, first, last, collect_list,"
    " collect_set"
)


@dataclass(frozen=True)
class Combine:
    """The combining step before the exchange."""

    keys: tuple[str, ...]
    parts: Mapping[str, Any]
    window: TimeWindows | None = None
    # A part that counts all rows, if there is one: Spark computes it once.
    counts: str | None = None

    def apply(self, frame: DataFrame) -> DataFrame:
        """Return one row per key, pane and partition, with the partial aggregates."""
        grouping = list(self.keys)
        if self.window is not None:
            frame = frame.withColumn(WINDOW, pane_end(self.window))
            grouping.append(WINDOW)
        if SOURCE in frame.columns:
            grouping.append(SOURCE)
        parts = {n: as_column(c) for n, c in self.parts.items()}
        if TIME in frame.columns:
            parts[TIME] = F.max(TIME)
        if self.window is not None and self.counts is None:
            parts[ROWS] = F.count(F.lit(1))
        columns = [c.alias(n) for n, c in parts.items()]
        partial = _partial(
            frame.groupBy(*grouping).agg(*columns), len(grouping), len(parts)
        )
        if partial is not None:
            named = partial.toDF(*grouping, *parts)
            made = named.withColumn(SEQ, F.spark_partition_id().cast("bigint"))
        else:
            numbered = frame.withColumn(SEQ, F.spark_partition_id().cast("bigint"))
            made = numbered.groupBy(*grouping, SEQ).agg(*columns)
        if self.window is not None and self.counts is not None:
            made = made.withColumn(ROWS, F.col(f"`{self.counts}`"))
        return made


@dataclass(frozen=True)
class Singles:
    """Partial aggregates of each row by itself, for windows that only state knows."""

    keys: tuple[str, ...]
    parts: Mapping[str, str]

    def apply(self, frame: DataFrame) -> DataFrame:
        """Return the partial aggregates of every row."""
        parts = [F.expr(text).alias(name) for name, text in self.parts.items()]
        keys = [F.col(f"`{k}`") for k in self.keys]
        return frame.select(*keys, *parts, *hidden_columns(frame))


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
    # Some aggregates, such as collect_list, are bytes of Spark's own until they end.
    types = [f.dataType() for f in combined.schema().fields()]
    if types != [f.dataType() for f in aggregated._jdf.schema().fields()]:
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
    frame: DataFrame,
    keys: tuple[str, ...],
    aggregates: Mapping[str, Any],
    uid: str,
    windows: Gathering | None = None,
) -> tuple[Combine | Singles, dict[str, PartialAggregate]]:
    """Split aggregate expressions.

    Raises:
        InvalidFlowError: An expression is not one of the supported aggregates.
    """
    parts: dict[str, Any] = {}
    singles: dict[str, str] = {}
    counts: str | None = None
    found: dict[str, PartialAggregate] = {}
    for name, expression in aggregates.items():
        column = as_column(expression)
        function, argument = _function(frame, name, column, uid)
        how = _SPLITS[function]
        if (function, argument) == ("Count", "1"):
            counts = name
        if how.needs_time and TIME not in frame.columns:
            raise InvalidFlowError(
                f"aggregate {name!r} of operator {uid!r}",
                expected="a stream with event_time, which says what is first",
                found=str(column),
            )
        named = {
            name + suffix: column if text is None else text.format(x=argument, t=TIME)
            for suffix, text in how.columns.items()
        }
        types = {n: _type(frame, as_column(c)) for n, c in named.items()}
        merges = [
            Merge(columns={n: types[n] for n in names}, how=merge)
            for merge, names in how.merges(name)
        ]
        for twice in named.keys() & parts.keys():
            raise InvalidFlowError(
                f"aggregate {name!r} of operator {uid!r}",
                expected="names that what is kept of other aggregates does not have",
                found=f"{twice!r} twice",
                hint="an average named x keeps x_sum and x_count, a deviation x_mean"
                " and x_squares: give one of them another name",
            )
        parts |= named
        singles |= {
            name + suffix: f"cast({how.rows[suffix].format(x=argument, t=TIME)}"
            f" as {types[name + suffix].ddl})"
            for suffix in how.columns
        }
        found[name] = PartialAggregate(
            type=_type(frame, column), merges=tuple(merges), result=how.result
        )
    if windows is not None and not windows.has_panes:
        return Singles(keys, singles), found
    window = None if windows is None else windows.window
    assert window is None or isinstance(window, TimeWindows)
    return Combine(keys, parts, window, counts), found


@dataclass(frozen=True)
class _Split:
    """How an aggregate is split: partial columns by suffix, their merge, the result.

    Both kinds of columns are SQL over the argument ``x`` and the event time ``t``; None
    is the aggregate itself.
    """

    columns: dict[str, str | None]
    # The same of a single row.
    rows: dict[str, str]
    merge: str
    result: str
    needs_time: bool = False

    def merges(self, name: str) -> list[tuple[str, list[str]]]:
        """Return which columns are merged, together or each on its own."""
        names = [name + suffix for suffix in self.columns]
        if self.merge in _ALONE:
            return [(self.merge, [each]) for each in names]
        return [(self.merge, names)]


_ALONE = ("sum", "min", "max", "concat", "distinct")
_ITSELF: dict[str, str | None] = {"": None}
_VALUE = {"": "{x}"}
_ONE = "if({x} is null, 0L, 1L)"
_LIST = {"": "if({x} is null, array(), array({x}))"}
_MOMENTS: dict[str, str | None] = {
    "_count": "count(cast({x} as double))",
    "_mean": "avg(cast({x} as double))",
    "_squares": "var_pop(cast({x} as double)) * count(cast({x} as double))",
}
_MOMENT = {"_count": _ONE, "_mean": "{x}", "_squares": "if({x} is null, null, 0D)"}
_SPLITS = {
    "Count": _Split(_ITSELF, {"": _ONE}, "sum", "count"),
    "Sum": _Split(_ITSELF, _VALUE, "sum", "same"),
    "Min": _Split(_ITSELF, _VALUE, "min", "same"),
    "Max": _Split(_ITSELF, _VALUE, "max", "same"),
    "Average": _Split(
        {"_sum": "sum({x})", "_count": "count({x})"},
        {"_sum": "{x}", "_count": _ONE},
        "sum",
        "avg",
    ),
    "StddevSamp": _Split(_MOMENTS, _MOMENT, "moments", "stddev_samp"),
    "StddevPop": _Split(_MOMENTS, _MOMENT, "moments", "stddev_pop"),
    "VarianceSamp": _Split(_MOMENTS, _MOMENT, "moments", "var_samp"),
    "VariancePop": _Split(_MOMENTS, _MOMENT, "moments", "var_pop"),
    "CollectList": _Split(_ITSELF, _LIST, "concat", "list"),
    "CollectSet": _Split(_ITSELF, _LIST, "distinct", "list"),
    "First": _Split(
        {"_time": "min({t})", "": "min_by({x}, {t})"},
        {"_time": "{t}", "": "{x}"},
        "earliest",
        "second",
        needs_time=True,
    ),
    "Last": _Split(
        {"_time": "max({t})", "": "max_by({x}, {t})"},
        {"_time": "{t}", "": "{x}"},
        "latest",
        "second",
        needs_time=True,
    ),
}


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
        is_single = found != "Count" or function.children().size() == 1
        if plain and is_single and found in _SPLITS:
            return found, function.children().head().sql()
    raise InvalidFlowError(
        f"aggregate {name!r} of operator {uid!r}",
        expected=f"one of {_SUPPORTED} of an expression",
        found=str(column),
        hint="compute around the aggregate with with_column afterwards,"
        " or write a Process",
    )
