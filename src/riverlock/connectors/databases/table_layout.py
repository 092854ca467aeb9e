"""What a table looks like, and whether the rows of a stream fit into it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from riverlock.core.errors import InvalidFlowError

if TYPE_CHECKING:
    from riverlock.connectors.databases.dialect import Dialect, Target
    from riverlock.core.types import Schema

__all__ = ["NESTED", "Column", "Layout", "check_layout", "misfits"]

NESTED = frozenset({"array", "map", "struct"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column of a table in a database."""

    type: str  # in the words of the database, lower case
    precision: int | None = None  # digits, or of a time those after the second
    scale: int | None = None
    is_required: bool = False  # has neither a default nor may it be null
    # How texts are compared, if some that differ are one for the table.
    merging: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """A table of a database."""

    columns: dict[str, Column]
    # The columns of each unique index without a condition.
    unique: tuple[frozenset[str], ...]
    # What keeps the rows, if it has no transactions.
    untransacted: str | None = None


def check_layout(layout: Layout, target: Target, of: Dialect) -> None:
    """Refuse a table that cannot hold the rows of a stream as they are.

    Raises:
        InvalidFlowError: With all differences at once.
    """
    schema, table, key = target.schema, target.table, target.key
    if layout.untransacted is not None:
        raise InvalidFlowError(
            f"table {table}",
            expected="a storage engine with transactions: rows of a commit that failed"
            " would stay, and come twice",
            found=layout.untransacted,
            hint=f"nothing was written; ALTER TABLE {table} ENGINE = InnoDB",
        )
    wrong = [
        *_missing(layout, schema, of, key),
        *misfits(layout, schema, of),
        *_unfilled(layout, schema),
    ]
    if wrong:
        raise InvalidFlowError(
            f"table {table}",
            expected=f"columns that hold {schema.ddl}",
            found="; ".join(wrong),
            hint="nothing was written; alter the table, or select other columns",
        )
    if key:
        _check_key(layout, schema, table, key, of)


def _missing(
    layout: Layout, schema: Schema, of: Dialect, key: tuple[str, ...]
) -> list[str]:
    return [
        f"no column {f.name!r} ({of.column_type(f.type, key=f.name in key)})"
        for f in schema.fields
        if f.name not in layout.columns
    ]


def misfits(layout: Layout, schema: Schema, of: Dialect) -> list[str]:
    """Return what is wrong with the types of columns, in words."""
    found = []
    for f in schema.fields:
        column = layout.columns.get(f.name)
        wanted = None if column is None else of.misfit(f.type, column)
        if column is not None and wanted is not None:
            found.append(
                f"column {f.name!r} is {_words(column)}, but {f.type.ddl} needs"
                f" {wanted}"
            )
    return found


def _words(column: Column) -> str:
    if column.precision is None:
        return column.type
    scale = "" if column.scale is None else f",{column.scale}"
    return f"{column.type}({column.precision}{scale})"


def _unfilled(layout: Layout, schema: Schema) -> list[str]:
    return [
        f"column {name!r} must be filled, and the stream has no such column"
        for name, column in layout.columns.items()
        if column.is_required and name not in schema.names
    ]


def _check_key(
    layout: Layout, schema: Schema, table: str, key: tuple[str, ...], of: Dialect
) -> None:
    if frozenset(key) not in layout.unique:
        raise InvalidFlowError(
            f"table {table} for how='upsert'",
            expected=f"a primary key or unique index of exactly {', '.join(key)}",
            found="none",
            hint=f"create unique index ... on {table} ({', '.join(key)})",
        )
    others = [
        u for u in layout.unique if u != frozenset(key) and u <= set(schema.names)
    ]
    if others and of.merges_by_any_unique_index:
        raise InvalidFlowError(
            f"table {table} for how='upsert'",
            expected=f"no unique index but that of {', '.join(key)}, since this"
            " database would replace rows by any of them",
            found=f"one of {', '.join(sorted(others[0]))}",
        )
