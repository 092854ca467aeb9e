"""Initial state of an operator without Spark: columns and rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from riverlock.core.types import schema_of
from riverlock.engines.tables.refusals import needs_spark
from riverlock.engines.tables.rows import ArrowRows
from riverlock.state.columns.python_rows import rows_table

if TYPE_CHECKING:
    from riverlock.program.graph import Keyed

__all__ = ["initial_rows"]


def initial_rows(node: Keyed) -> ArrowRows:
    """Return the initial state of an operator.

    Raises:
        InvalidFlowError: It is a DataFrame, or a function that makes one.
    """
    if not isinstance(node.initial, tuple):
        raise needs_spark(
            f"initial state of operator {node.uid!r}",
            "a DataFrame, not columns and rows: initial=('k string, n long', [...])",
        )
    columns, rows = node.initial
    schema = schema_of(columns)
    return ArrowRows(schema, rows_table(list(rows), schema))
