"""Parts of SQL that a stream cannot have, and what to write instead."""

from __future__ import annotations

from riverlock.core.errors import InvalidFlowError

__all__ = ["refused"]

_TOP = "use .key_by(...).top(n, by=...), or sort what the sink has"
_OVER = "OVER"
_JOIN = (
    "key both streams and use .join(other, within=...), .join_latest(other) or"
    " .lookup(other)"
)
_ADD_WINDOW = "GROUP BY a key, window(at, '1 hour'), or both"

# By the class of Spark's node: how the text says it, and what to write.
_PARTS = {
    "Distinct": (
        "DISTINCT, or UNION without ALL",
        "use .key_by(...).deduplicate(within=...), or UNION ALL",
    ),
    "Sort": ("ORDER BY", _TOP),
    "GlobalLimit": ("LIMIT", _TOP),
    "LocalLimit": ("LIMIT", _TOP),
    "Offset": ("OFFSET", _TOP),
    "RepartitionByExpression": ("DISTRIBUTE BY", "leave it out"),
    "WithWindowDefinition": (_OVER, "use a Process, or .key_by(...).top(n, by=...)"),
    "WindowExpression": (_OVER, "use a Process, or .key_by(...).top(n, by=...)"),
    "Join": ("JOIN of two streams", _JOIN),
    "Except": ("EXCEPT", "use .join(other, how='anti', within=...)"),
    "Intersect": ("INTERSECT", "use .join(other, how='semi', within=...)"),
    "Sample": ("TABLESAMPLE", "filter by a hash: WHERE pmod(hash(id), 10) = 0"),
    "Pivot": ("PIVOT", "write sum(x) FILTER (WHERE y = ...) for each column"),
    "UnresolvedHaving": ("HAVING without GROUP BY", _ADD_WINDOW),
    "Cube": (
        "CUBE, ROLLUP or GROUPING SETS",
        "write a query for each set of keys, and UNION ALL them",
    ),
    "subquery": ("a stream in a sub-query of an expression", _JOIN),
    "aggregate": ("an aggregate without GROUP BY", _ADD_WINDOW),
    "nested": (
        "an aggregate within an aggregate",
        "compute the inner one in a sub-select with a window",
    ),
    "distinct": (
        "DISTINCT in an aggregate other than count(DISTINCT x) of one value",
        "compute it of collect_set(x)",
    ),
    "within": ("WITHIN GROUP", "use percentile_approx(x, 0.5)"),
    "star": ("* in SELECT with GROUP BY", "name the keys and aggregates"),
    "windows": ("more than one window in GROUP BY", "keep one"),
    "outer": (
        "an outer join that keeps rows of the table without a match",
        "keep those of the stream only, or use an inner join",
    ),
    "recursion": ("WITH RECURSIVE", "compute the table before, as a DataFrame"),
    "updating": (
        "rows of a GROUP BY without window, which change with every epoch, filtered,"
        " joined, united or aggregated",
        "add window(at, '1 hour') to GROUP BY, or keep the whole result in a sink",
    ),
    "having": (
        "HAVING over a GROUP BY without window",
        "a row that no longer fits could not be taken back: add a window to GROUP BY,"
        " or filter what the sink has",
    ),
}
for _same, _as in (
    ("UnresolvedWindowExpression", "WindowExpression"),
    ("Unpivot", "Pivot"),
    ("LateralJoin", "Join"),
    ("Rollup", "Cube"),
    ("GroupingSets", "Cube"),
):
    _PARTS[_same] = _PARTS[_as]


def refused(part: str) -> InvalidFlowError:
    """Return an error that says which part of a query is refused.

    Args:
        part: The class of Spark's node, or one of the situations named above.
    """
    found, hint = _PARTS.get(part, (part, "write this part with methods of the stream"))
    return InvalidFlowError(
        "flow.sql()",
        expected="what Spark can compute from one row at a time, or GROUP BY",
        found=found,
        hint=hint,
    )
