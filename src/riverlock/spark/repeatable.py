"""What Spark surely computes again just as before.

Only such rows may be computed by several stages of an epoch. When in doubt they are
not: a plan that is not known here, a function whose code Spark does not know.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from riverlock.spark.sql.tree import children, kind

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["has_clock", "is_repeatable"]

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
    """Tell whether a frame over given rows gives the same whenever it is computed.

    Its leaves count as given. The time of day does too: it is the epoch's.
    """
    plan = _analysed(frame)
    doubtful = any(_contains(frame, plan, pattern) for pattern in _DOUBTFUL)
    return not doubtful and bool(plan.deterministic()) and _is_plain(plan)


def has_clock(frame: DataFrame) -> bool:
    """Tell whether a frame asks what time it is (or who asks)."""
    return _contains(frame, _analysed(frame), "CURRENT_LIKE")


def _is_plain(plan: Any) -> bool:
    return kind(plan) in _PLAIN and all(map(_is_plain, children(plan)))


def _analysed(frame: DataFrame) -> Any:
    java: Any = frame._jdf
    return java.queryExecution().analyzed()


def _contains(frame: DataFrame, plan: Any, pattern: str) -> bool:
    jvm: Any = frame.sparkSession._jvm
    patterns = jvm.org.apache.spark.sql.catalyst.trees.TreePattern
    return bool(plan.containsPattern(getattr(patterns, pattern)()))
