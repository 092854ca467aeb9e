"""Aggregate expressions, split into a part that Spark computes and one that we merge.

Spark combines the rows of a key within each partition, with its own code generation;
the partial rows, one per key and partition, are merged into state in Python, in the
order of the partitions, so that floating-point sums are added in a fixed order and an
epoch that is run again produces the same bits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from riverlock.core.errors import InvalidFlowError
from riverlock.core.hidden_columns import MARK, PART, ROWS, SEQ, SOURCE, TIME, WINDOW
from riverlock.core.types import Type, type_of
from riverlock.engines.jobs.frames.nodes import as_column, hidden_columns, pane_end
from riverlock.engines.jobs.frames.splits import split_aggregator, split_expression
from riverlock.engines.jobs.frames.unaccepted import explaining
from riverlock.operators.aggregates.aggregator import Aggregator
from riverlock.operators.aggregates.partial import (
    Merge,
    PartialAggregate,
    PythonAggregate,
)
from riverlock.program.windows import TimeWindows
from riverlock.spark.epoch_clock import at_time, has_clock

if TYPE_CHECKING:
    from collections.abc import Mapping

    from riverlock.engines.jobs.frames.splits import Split
    from riverlock.operators.windows.window_operator import Gathering

__all__ = ["Combine", "Planned", "Singles", "plan_aggregates"]

# Which partition a row is in, until the position of its partial row says it.
_TASK = "__rl_task"
# Nodes of a physical plan that stand between an aggregate and its exchange.
_WRAPPERS = ("WholeStageCodegenExec", "InputAdapter", "SortExec")


@dataclass(frozen=True)
class Combine:
    """The combining step before the exchange."""

    keys: tuple[str, ...]
    parts: Mapping[str, Any]
    window: TimeWindows | None = None
    # A part that counts all rows, if there is one: Spark computes it once.
    counts: str | None = None

    def apply(self, frame: DataFrame, now_us: int | None = None) -> DataFrame:
        """Return one row per key, pane and partition, with the partial aggregates.

        Expressions that ask for the time of day get ``now_us``: a part that Spark has
        planned can no longer be changed.
        """
        grouping, parts, frame = self._grouped(frame)
        columns = [c.alias(n) for n, c in parts.items()]
        made = self._within(frame, grouping, parts, now_us)
        if made is None:
            # Aggregates may look at the position of a row: it keeps its name.
            numbered = frame.withColumn(_TASK, F.spark_partition_id().cast("bigint"))
            made = numbered.groupBy(*grouping, _TASK).agg(*columns)
            made = made.withColumnRenamed(_TASK, SEQ)
        return self._counted(made)

    def in_place(self, frame: DataFrame, now_us: int | None = None) -> DataFrame | None:
        """Return the same if no row leaves its partition; None: Spark moves rows."""
        grouping, parts, frame = self._grouped(frame)
        made = self._within(frame, grouping, parts, now_us)
        return None if made is None else self._counted(made)

    def _grouped(
        self, frame: DataFrame
    ) -> tuple[list[str], dict[str, Column], DataFrame]:
        """Return by what rows are grouped, the partial aggregates, and the rows."""
        grouping = list(self.keys)
        if self.window is not None:
            frame = frame.withColumn(WINDOW, pane_end(self.window))
            grouping.append(WINDOW)
        grouping += [c for c in (SOURCE, PART) if c in frame.columns]
        if any(isinstance(c, str) and SEQ in c for c in self.parts.values()):
            # Rows that were one have one position, and must be told apart, too.
            frame = frame.withColumn(SEQ, F.monotonically_increasing_id())
        parts = {n: as_column(c) for n, c in self.parts.items()}
        parts |= {c: F.max(c) for c in (TIME, MARK) if c in frame.columns}
        if self.window is not None and self.counts is None:
            parts[ROWS] = F.count(F.lit(1))
        return grouping, parts, frame

    def _within(
        self,
        frame: DataFrame,
        grouping: list[str],
        parts: dict[str, Column],
        now_us: int | None,
    ) -> DataFrame | None:
        """Return what Spark computes before an exchange, if that can be had alone."""
        columns = [c.alias(n) for n, c in parts.items()]
        aggregated = frame.groupBy(*grouping).agg(*columns)
        if now_us is not None:
            aggregated = at_time(aggregated, now_us)
        partial = _partial(aggregated, len(grouping), len(parts))
        if partial is None:
            return None
        named = partial.toDF(*grouping, *parts)
        return named.withColumn(SEQ, F.spark_partition_id().cast("bigint"))

    def _counted(self, made: DataFrame) -> DataFrame:
        if self.window is None or self.counts is None:
            return made
        return made.withColumn(ROWS, F.col(f"`{self.counts}`"))

    def has_clock(self, frame: DataFrame) -> bool:
        """Tell whether the rows, or the aggregates, ask for the time of day."""
        return has_clock(frame.agg(*map(as_column, self.parts.values())))


@dataclass(frozen=True)
class Singles:
    """Partial aggregates of each row by itself, for windows that only state knows."""

    keys: tuple[str, ...]
    parts: Mapping[str, str]

    def apply(self, frame: DataFrame, now_us: int | None = None) -> DataFrame:
        """Return the partial aggregates of every row."""
        parts = [F.expr(text).alias(name) for name, text in self.parts.items()]
        keys = [F.col(f"`{k}`") for k in self.keys]
        return frame.select(*keys, *parts, *hidden_columns(frame))

    def in_place(self, frame: DataFrame, now_us: int | None = None) -> DataFrame:
        """Return the same: no row leaves its partition."""
        return self.apply(frame, now_us)

    def has_clock(self, frame: DataFrame) -> bool:
        """Tell whether the rows, or the aggregates, ask for the time of day."""
        return has_clock(self.apply(frame))


def _partial(aggregated: DataFrame, keys: int, parts: int) -> DataFrame | None:
    """Return what Spark computes of an aggregate before its exchange.

    Spark aggregates twice, with an exchange between, which we do not need: state is
    where partial rows are merged, behind an exchange of our own. None if the plan does
    not have that form, or counts something on its way, which only whole plans do.
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
    """Go down through what only wraps or sorts; return the first other node."""
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
    planned = Planned.of(frame, aggregates, uid)
    if windows is not None and not windows.has_panes:
        return Singles(keys, planned.singles), planned.aggregates
    splits = planned.splits.items()
    counts = next((n for n, split in splits if split.counts_rows), None)
    window = None if windows is None else windows.window
    assert window is None or isinstance(window, TimeWindows)
    return Combine(keys, planned.parts, window, counts), planned.aggregates


@dataclass(frozen=True)
class Planned:
    """Aggregates of an operator.

    Attributes:
        splits: How each is split, by name.
        parts: What Spark computes of rows, by partial column.
        types: The types of these columns.
    """

    splits: Mapping[str, Split]
    parts: Mapping[str, Any]
    types: Mapping[str, Type]

    @classmethod
    def of(cls, frame: DataFrame, aggregates: Mapping[str, Any], uid: str) -> Planned:
        """Split aggregates over the rows of a frame.

        Raises:
            InvalidFlowError: An expression is not one of the supported aggregates.
        """
        splits = {n: _split(frame, n, each, uid) for n, each in aggregates.items()}
        parts: dict[str, Any] = {}
        for name, split in splits.items():
            named = {
                name + suffix: aggregates[name] if text is None else text
                for suffix, text in split.columns.items()
            }
            for twice in named.keys() & parts.keys():
                raise InvalidFlowError(
                    f"aggregate {name!r} of operator {uid!r}",
                    expected="a name whose columns of state no other aggregate has",
                    found=f"{twice!r} twice",
                    hint="an average named x keeps x_sum and x_count, a deviation"
                    " x_mean and x_squares: give one of them another name",
                )
            parts |= named
        return cls(splits, parts, _types(frame, parts))

    @property
    def aggregates(self) -> dict[str, PartialAggregate]:
        """How partial columns are merged and shown."""
        found = self.splits.items()
        return {n: _partial_aggregate(n, split, self.types) for n, split in found}

    @property
    def singles(self) -> dict[str, str]:
        """The partial columns of a row by itself, as SQL."""
        return {
            n + suffix: f"cast({row} as {self.types[n + suffix].ddl})"
            for n, split in self.splits.items()
            for suffix, row in split.rows.items()
        }


def _split(frame: DataFrame, name: str, expression: Any, uid: str) -> Split:
    if isinstance(expression, Aggregator):
        return split_aggregator(frame, name, expression)
    with explaining(f"aggregate {name!r} of operator {uid!r}"):
        return split_expression(frame, name, as_column(expression), uid)


def _partial_aggregate(
    name: str, split: Split, types: Mapping[str, Type]
) -> PartialAggregate:
    if isinstance(split.merge, PythonAggregate):
        types = {name: split.merge.kept}
    merges = tuple(
        Merge(columns={n: types[n] for n in names}, how=merge)
        for merge, names in split.merges(name)
    )
    return PartialAggregate(type=split.output, merges=merges, result=split.result)


def _types(frame: DataFrame, parts: Mapping[str, Any]) -> dict[str, Type]:
    """Return the types of all partial columns at once: Spark is slow."""
    columns = [as_column(text).alias(name) for name, text in parts.items()]
    fields = frame.groupBy().agg(*columns).schema.fields
    return {f.name: type_of(f.dataType) for f in fields}
