"""Which aggregates there are, and what Spark computes of each."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from riverlock.core.errors import InvalidFlowError
from riverlock.core.hidden_columns import SEQ, TIME
from riverlock.core.types import INTEGERS, Type, type_of
from riverlock.engines.jobs.frames.nodes import visible
from riverlock.operators.aggregates.aggregator import named_aggregator
from riverlock.operators.aggregates.sketches import DistinctCount, Percentiles

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from riverlock.operators.aggregates.aggregator import Aggregator
    from riverlock.operators.aggregates.partial import PythonAggregate

__all__ = ["Split", "split_aggregator", "split_expression"]

_SUPPORTED = (
    "count, count(DISTINCT x), count_if, sum, min, max, avg, stddev, variance,"
    " bool_and, bool_or, first, last, min_by and max_by of plain values, collect_list,"
    " collect_set, approx_count_distinct (rsd from 0.005 on), percentile_approx and"
    " median of numbers,"
)
# How many different values a median is computed of.
_MEDIAN_ACCURACY = 10_000
# Of the table below, which is about all types.
_UNKNOWN = Type("")
_NUMBERS = (*INTEGERS, "float", "double", "decimal")


@dataclass(frozen=True)
class Split:
    """How an aggregate is split: partial columns by suffix, their merge, the result.

    Both kinds of columns are SQL; None is the aggregate itself. In the table below
    it is over the arguments ``x`` and ``y`` and the event time ``t``.
    """

    columns: dict[str, str | None]
    # The same of a single row.
    rows: dict[str, str]
    merge: str | PythonAggregate
    result: str | PythonAggregate
    output: Type = _UNKNOWN
    needs_time: bool = False
    counts_rows: bool = False
    # Where values are compared in Python, which knows no order of nested ones.
    is_ordered: bool = False

    def merges(self, name: str) -> list[tuple[str | PythonAggregate, list[str]]]:
        """Return which columns are merged, together or each on its own."""
        names = [name + suffix for suffix in self.columns]
        if self.merge in _ALONE:
            return [(self.merge, [each]) for each in names]
        return [(self.merge, names)]

    def of(self, arguments: dict[str, str]) -> Split:
        """Fill the arguments in."""
        columns = {
            suffix: None if text is None else text.format(**arguments)
            for suffix, text in self.columns.items()
        }
        rows = {suffix: text.format(**arguments) for suffix, text in self.rows.items()}
        return replace(self, columns=columns, rows=rows)


def _arrived(value: str) -> str:
    """Return SQL for values that are not null in order of arrival.

    Spark's own list is in it only while a task has few keys (128, then it sorts).
    """
    numbered = f"if({value} is null, null, named_struct('n', {SEQ}, 'v', {value}))"
    order = "(a, b) -> cast(sign(a.n - b.n) as int)"
    return f"transform(array_sort(collect_list({numbered}), {order}), p -> p.v)"


def _collected(value: str, aggregate: PythonAggregate) -> Split:
    """Let Spark collect values that are not null, and Python do the rest."""
    rows = f"if({value} is null, array(), array({value}))"
    return Split({"": f"collect_list({value})"}, {"": rows}, aggregate, aggregate)


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
# Of equal y the x decides: the order of rows must not.
_PAIR = "if({y} is null, null, named_struct('y', {y}, 'x', {x}))"
_PAIRED = {"_by": "{y}", "": "if({y} is null, null, {x})"}
# Of equal times arrival decides; min_by alone would take any.
_ARRIVAL = f"if({{t}} is null, null, named_struct('t', {{t}}, 'n', {SEQ}))"
_SPLITS = {
    "Count": Split(_ITSELF, {"": _ONE}, "sum", "count"),
    "CountIf": Split(_ITSELF, {"": "if({x}, 1L, 0L)"}, "sum", "count"),
    "Sum": Split(_ITSELF, _VALUE, "sum", "same"),
    "Min": Split(_ITSELF, _VALUE, "min", "same"),
    "Max": Split(_ITSELF, _VALUE, "max", "same"),
    "BoolAnd": Split(_ITSELF, _VALUE, "min", "same"),
    "BoolOr": Split(_ITSELF, _VALUE, "max", "same"),
    "Average": Split(
        {"_sum": "sum({x})", "_count": "count({x})"},
        {"_sum": "{x}", "_count": _ONE},
        "sum",
        "avg",
    ),
    "StddevSamp": Split(_MOMENTS, _MOMENT, "moments", "stddev_samp"),
    "StddevPop": Split(_MOMENTS, _MOMENT, "moments", "stddev_pop"),
    "VarianceSamp": Split(_MOMENTS, _MOMENT, "moments", "var_samp"),
    "VariancePop": Split(_MOMENTS, _MOMENT, "moments", "var_pop"),
    "CollectList": Split({"": _arrived("{x}")}, _LIST, "concat", "list"),
    "CollectSet": Split(_ITSELF, _LIST, "distinct", "list"),
    "First": Split(
        {"_time": "min({t})", "": f"min_by({{x}}, {_ARRIVAL})"},
        {"_time": "{t}", "": "{x}"},
        "earliest",
        "second",
        needs_time=True,
    ),
    "Last": Split(
        {"_time": "max({t})", "": f"max_by({{x}}, {_ARRIVAL})"},
        {"_time": "{t}", "": "{x}"},
        "latest",
        "second",
        needs_time=True,
    ),
    "MinBy": Split(
        {"_by": "min({y})", "": f"min({_PAIR}).x"},
        _PAIRED,
        "by_least",
        "second",
        is_ordered=True,
    ),
    "MaxBy": Split(
        {"_by": "max({y})", "": f"max({_PAIR}).x"},
        _PAIRED,
        "by_greatest",
        "second",
        is_ordered=True,
    ),
}
_DISTINCT = Split({"": "collect_set({x})"}, _LIST, "distinct", "size")


def split_aggregator(frame: DataFrame, name: str, aggregator: Aggregator) -> Split:
    """Split an aggregate that is a Python class: Spark collects records for it."""
    aggregate = named_aggregator(name, aggregator, visible(frame))
    names = [f.name.replace("`", "``") for f in aggregate.collects.fields]
    record = f"struct({', '.join(f'`{n}`' for n in names)})"
    collected = _collected(record, aggregate)
    # What order makes of it is the user's affair.
    columns: dict[str, str | None] = {"": _arrived(record)}
    return replace(collected, columns=columns, output=aggregate.output)


def split_expression(frame: DataFrame, name: str, column: Column, uid: str) -> Split:
    """Split an aggregate expression.

    Raises:
        InvalidFlowError: It is not one of the supported aggregates.
    """
    analyzed: Any = frame.groupBy().agg(column.alias("x"))
    expression = analyzed._jdf.queryExecution().analyzed().aggregateExpressions()
    expression = expression.head().child()
    found = None
    if expression.getClass().getSimpleName() == "AggregateExpression":
        output = type_of(analyzed.schema["x"].dataType)
        found = _split(frame, expression, output)
    if found is None:
        raise InvalidFlowError(
            f"aggregate {name!r} of operator {uid!r}",
            expected=f"one of {_SUPPORTED} of an expression",
            found=str(column),
            hint="compute around the aggregate with with_column afterwards,"
            " or write an Aggregator or a Process",
        )
    if found.needs_time and TIME not in frame.columns:
        raise InvalidFlowError(
            f"aggregate {name!r} of operator {uid!r}",
            expected="a stream with event_time, which says what is first",
            found=str(column),
        )
    return replace(found, output=output)


def _split(frame: DataFrame, expression: Any, output: Type) -> Split | None:
    """Return the split of an analysed expression; None if it is not supported."""
    function = expression.aggregateFunction()
    kind = function.getClass().getSimpleName()
    children = function.children()
    arguments = [children.apply(n).sql() for n in range(children.size())]
    texts = _arguments(expression, kind, arguments)
    if expression.isDistinct():
        is_count = kind == "Count" and len(arguments) == 1
        return _DISTINCT.of(texts) if is_count else None
    if kind == "HyperLogLogPlusPlus":
        return _distinct_count(texts["x"], function.relativeSD())
    if kind in ("ApproximatePercentile", "Median"):
        return _percentiles(frame, kind, [texts["x"], *arguments[1:]], output)
    split = _SPLITS.get(kind)
    if split is None or (kind == "Count" and len(arguments) > 1):
        return None
    if split.is_ordered and not all(
        _is_simple(children.apply(n)) for n in range(children.size())
    ):
        return None
    return replace(
        split.of(texts), counts_rows=kind == "Count" and texts["x"] in ("1", "1L")
    )


def _arguments(expression: Any, kind: str, arguments: list[str]) -> dict[str, str]:
    """Return the arguments, null where the row is left out."""
    texts = {"x": arguments[0], "y": arguments[-1], "t": TIME}
    conditions = []
    if expression.filter().isDefined():
        conditions.append(expression.filter().get().sql())
    if kind in ("First", "Last") and expression.aggregateFunction().ignoreNulls():
        conditions.append(f"{arguments[0]} is not null")
    if not conditions:
        return texts
    condition = " and ".join(f"({c})" for c in conditions)
    return {n: f"if({condition}, {text}, null)" for n, text in texts.items()}


def _is_simple(child: Any) -> bool:
    return child.dataType().typeName() not in ("array", "map", "struct")


def _distinct_count(value: str, error: float) -> Split | None:
    # As Spark chooses it.
    precision = math.ceil(2 * math.log2(1.106 / error))
    if not 4 <= precision <= 16:
        return None
    sketch = DistinctCount(precision)
    return _collected(sketch.code(value), sketch)


def _percentiles(
    frame: DataFrame, kind: str, arguments: list[str], output: Type
) -> Split | None:
    single = output.element if output.kind == "array" else output
    if single is None or single.kind not in _NUMBERS:
        return None
    # Adding zero makes one of both zeros.
    value = f"(cast({arguments[0]} as double) + 0D)"
    if kind == "Median":
        return _collected(value, Percentiles(_MEDIAN_ACCURACY, None, output))
    wanted = "array<double>" if output.kind == "array" else "double"
    texts = f"cast({arguments[1]} as {wanted}) as p, cast({arguments[2]} as int) as a"
    percentages, accuracy = frame.sparkSession.sql(f"select {texts}").head()  # type: ignore[misc]
    return _collected(value, Percentiles(accuracy, percentages, output))
