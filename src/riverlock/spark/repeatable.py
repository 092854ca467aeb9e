"""What Spark is certain to compute identically again.

Only such rows may be computed by several stages of an epoch. In doubt they are not: an
unknown plan, a function whose code Spark does not know.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from riverlock.spark.plan_trees import children, kind

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["is_repeatable", "is_sure"]

# Nodes of an analysed plan that look at one row at a time, and what they stand on.
_PLAIN: Final = frozenset(
    {
        *("Project", "Filter", "Generate", "Union", "SubqueryAlias", "ResolvedHint"),
        *("LogicalRDD", "LocalRelation", "Range", "OneRowRelation"),
    }
)
# Functions of users, which Spark takes for deterministic unless told, and tables.
_DOUBTFUL: Final = ("PYTHON_UDF", "SCALA_UDF", "PLAN_EXPRESSION")


def is_repeatable(frame: DataFrame) -> bool:
    """Tell whether a frame over given rows is the same whenever it is computed.

    Its leaves count as given. So does the time of day: it is the epoch's.
    """
    java: Any = frame._jdf
    return is_sure(frame.sparkSession, java.queryExecution().analyzed())


def is_sure(spark: SparkSession, plan: Any) -> bool:
    """Tell the same for an analysed plan."""
    jvm: Any = spark._jvm
    patterns = jvm.org.apache.spark.sql.catalyst.trees.TreePattern
    is_doubtful = any(plan.containsPattern(getattr(patterns, p)()) for p in _DOUBTFUL)
    return not is_doubtful and bool(plan.deterministic()) and _is_plain(plan)


def _is_plain(plan: Any) -> bool:
    return kind(plan) in _PLAIN and all(map(_is_plain, children(plan)))
