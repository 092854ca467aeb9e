"""A part of a query without aggregates: what Spark runs over the rows of an epoch."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from riverlock.core.errors import InvalidFlowError
from riverlock.core.hidden_columns import HIDDEN
from riverlock.engines.jobs.sql.refusals import refused
from riverlock.spark.plan_trees import Trees, children, kind, sequence

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["ROW_BY_ROW", "About", "SqlStage", "Step", "over_shown"]

# Tells the stream from all tables in Spark's analysed plan.
_MARK = "__rl_stream"
# Nodes of an analysed plan that make no row of several.
_ROW_LOCAL = frozenset(
    {
        "Filter",
        "Generate",
        "Join",
        "LateralJoin",
        "Project",
        "ResolvedHint",
        "SubqueryAlias",
        "WithCTE",
    }
)
# Nodes of a parsed plan that give each row once, with all that a sink needs to
# replace it.
ROW_BY_ROW = frozenset(
    {"Project", "SubqueryAlias", "UnresolvedHint", "UnresolvedSubqueryColumnAliases"}
)


@dataclass(frozen=True, kw_only=True)
class About:
    """What a query must know of rows that are no table."""

    # The columns that hold the event time, and the window, of each row.
    time: str | None = None
    window: str | None = None
    # Whether rows stand for earlier ones of their key: aggregates without window.
    is_updating: bool = False


@dataclass(frozen=True)
class Step:
    """A node of the parsed plan above the stream, and which child leads there."""

    node: Any
    child: int = 0


@dataclass(frozen=True, eq=False)
class SqlStage:
    """Nodes from the top of a query down to a stream, and the tables they read.

    Hidden columns are added to the analysed plan, where columns have numbers: no name
    and no ``*`` of the query can touch them.
    """

    steps: tuple[Step, ...]
    name: str
    # DataFrames, functions from SparkSession to one, or plans that Spark parsed.
    tables: Mapping[str, Any]
    # For queries over the rows of this one.
    about: About
    # Names that stand for something else, and so must not be columns below the top.
    absent: tuple[str, ...] = ()

    @property
    def is_row_by_row(self) -> bool:
        """Whether each row gives one row, whatever is in it."""
        return all(kind(step.node) in ROW_BY_ROW for step in self.steps)

    def __call__(self, frame: DataFrame) -> DataFrame:
        """Return the rows of the query, for the rows of an epoch.

        Raises:
            AnalysisException: Spark cannot make sense of the query.
            InvalidFlowError: It needs more than one row at a time.
        """
        found = over_shown(frame, self._query)
        _check_names(found)
        return found

    def _query(self, trees: Trees, shown: Any) -> Any:
        """Return the query over rows, analysed."""
        plan = trees.named(self.name, shown)
        for step in reversed(self.steps):
            changed = children(step.node)
            changed[step.child] = plan
            plan = trees.with_children(step.node, changed)
        if self.tables:
            tables = [(n, _plan(trees, t)) for n, t in self.tables.items()]
            plan = trees.with_tables(plan, tables)
        java: Any = trees.frame(plan)._jdf
        analysed = java.queryExecution().analyzed()
        _check_absent(analysed, self.absent)
        return analysed


def over_shown(frame: DataFrame, query: Callable[[Trees, Any], Any]) -> DataFrame:
    """Return a query over the columns that users see, with the hidden ones beside.

    Raises:
        InvalidFlowError: It needs more than one row at a time.
    """
    trees = Trees(frame.sparkSession)
    rows: Any = frame._jdf.logicalPlan()
    output = sequence(rows.output())
    hidden = [c for c in output if c.name() in HIDDEN]
    shown = trees.project([c for c in output if c.name() not in HIDDEN], rows)
    analysed = query(trees, trees.named(_MARK, shown))
    carried = _carried(trees, analysed, rows, hidden)
    assert carried is not None
    return trees.frame(carried)


def _plan(trees: Trees, table: Any) -> Any:
    found = table(trees.spark) if callable(table) else table
    if not isinstance(found, DataFrame):
        return found
    # Rows of the stream stay where they are, in their order.
    java: Any = F.broadcast(found)._jdf
    return java.logicalPlan()


def _carried(trees: Trees, plan: Any, rows: Any, hidden: list[Any]) -> Any:
    """Return an analysed plan with hidden columns; None if the stream is not in it."""
    name = kind(plan)
    if name == "SubqueryAlias" and plan.identifier().name() == _MARK:
        return rows
    changed = children(plan)
    for place, child in enumerate(changed):
        carried = _carried(trees, child, rows, hidden)
        if carried is None:
            continue
        if name not in _ROW_LOCAL:
            raise refused(name)
        if name == "Project":
            return trees.project([*sequence(plan.projectList()), *hidden], carried)
        changed[place] = carried
        return trees.with_children(plan, changed)
    return None


def _check_absent(plan: Any, absent: tuple[str, ...]) -> None:
    if not absent:
        return
    while kind(plan) != "Project":
        plan = children(plan)[-1]  # tables that the plan defines come first
    columns = {c.name().casefold() for c in sequence(plan.child().output())}
    for name in absent:
        if name.casefold() in columns:
            raise InvalidFlowError(
                f"{name!r} in GROUP BY of flow.sql",
                expected="the name of a column, or of an item of SELECT",
                found="the name of both",
                hint="repeat the expression in GROUP BY, or give it another name",
            )


def _check_names(frame: DataFrame) -> None:
    twice = [n for n, times in Counter(frame.columns).items() if times > 1]
    if twice:
        raise InvalidFlowError(
            "flow.sql()",
            expected="each column name once",
            found=f"{', '.join(twice)} twice",
            hint="name them: SELECT a.id AS order_id, ...",
        )
