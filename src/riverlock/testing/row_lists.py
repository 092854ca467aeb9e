"""A list as a source of a flow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from riverlock.connectors.rows.source import Rows
from riverlock.core.types import schema_of

if TYPE_CHECKING:
    from riverlock.core.types import SchemaLike

__all__ = ["rows"]


def rows(columns: SchemaLike, rows: list[Any], *, bounded: bool = False) -> Rows:
    """Read the rows of a list, on any engine: ``flow.read(rows("n long", [(1,)]))``.

    The list is the source: it may only grow, and must be there, with the same rows at
    its beginning, when the flow is started again. All rows of an epoch pass through the
    driver: it is for tests.

    Args:
        columns: Names and types.
        rows: Tuples or dictionaries; rows that are appended later come later.
        bounded: Whether no more rows will come. Event time then ends with the last of
            them, so that every window and timer is done.
    """
    return Rows(schema=schema_of(columns), rows=rows, bounded=bounded)
