"""What differs from one database to the next."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pyarrow as pa

    from riverlock.connectors.databases.address import Address
    from riverlock.connectors.databases.table_layout import Column, Layout
    from riverlock.core.types import Schema, Type

__all__ = [
    "Dialect",
    "RefusedRowError",
    "Target",
    "Trouble",
    "dialect_of",
    "name_in",
    "with_marks",
]


def name_in(quote: str, name: str) -> str:
    """Return one name in quotes, whatever characters it has.

    >>> name_in('"', 'a"b')
    '"a""b"'
    """
    return f"{quote}{name.replace(quote, quote * 2)}{quote}"


def with_marks(sql: str, quote: str, *, value: str, percent: str) -> str:
    """Return a statement as a client takes it; names may contain look-alikes of marks.

    Args:
        sql: A statement with ``%s`` for values, and quoted names.
        quote: The quote character of names.
        value: The placeholder for a value.
        percent: The escape for a percent sign.

    >>> with_marks('SELECT "a%s" WHERE b = %s', '"', value="%s", percent="%%")
    'SELECT "a%%s" WHERE b = %s'
    """
    # Names are every second part: a quote in a name is two, with nothing between.
    parts = sql.split(quote)
    parts[::2] = [p.replace("%s", value) for p in parts[::2]]
    parts[1::2] = [p.replace("%", percent) for p in parts[1::2]]
    return quote.join(parts)


class Trouble(enum.Enum):
    """What an error of a database means for us."""

    AWAY = "does not answer"
    AGAIN = "gave way to others"
    REFUSED = "refuses"


class RefusedRowError(Exception):
    """A database refuses a row; says which, in words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The table that rows go to."""

    table: str  # optionally with a schema before a dot
    schema: Schema
    key: tuple[str, ...]  # what rows are replaced by; empty: they are added

    @property
    def names(self) -> tuple[str, ...]:
        """The columns that we fill."""
        return self.schema.names

    @property
    def keys(self) -> Schema:
        """The columns of the key."""
        return self.schema.select(self.key)

    def beside(self, name: str) -> str:
        """Return the name of a table in the same schema."""
        schema, dot, _ = self.table.rpartition(".")
        return f"{schema}{dot}{name}"


class Dialect(Protocol):
    """How to talk to one kind of database.

    Connections are those of the database's own client (PEP 249), never shared between
    threads or processes, never kept for longer than one call of a stager or committer.
    SQL is written with ``%s`` for values.
    """

    address: Address
    # Whether tasks load rows into the database; else they stage in the store.
    stages_in_database: bool
    # Whether an upsert looks at other unique indexes than that of the key.
    merges_by_any_unique_index: bool

    def connect(self, *, creates: bool = False) -> Any:
        """Return a new connection, in a transaction as soon as it is used."""
        ...

    def trouble(self, error: Exception) -> Trouble | None:
        """Return what an error means; None if the database's client did not raise."""
        ...

    def execute(self, connection: Any, sql: str, *values: Any) -> list[Any]:
        """Run a statement; return its rows."""
        ...

    def lock(self, connection: Any) -> str:
        """Begin a transaction that may lock; return what selects add to do so."""
        ...

    def quoted(self, name: str) -> str:
        """Return the name of a table, optionally with a schema, as SQL."""
        ...

    def column(self, name: str) -> str:
        """Return the name of a column as SQL."""
        ...

    def column_type(self, kind: Type, *, key: bool) -> str:
        """Return the column type that holds a type exactly."""
        ...

    def table_options(self, connection: Any) -> str:
        """How a CREATE TABLE ends."""
        ...

    def misfit(self, kind: Type, column: Column) -> str | None:
        """Return what a type needs if a column would alter its values."""
        ...

    def layout(self, connection: Any, table: str) -> Layout | None:
        """Return the layout of a table; None if there is none."""
        ...

    def staged(self, connection: Any, target: Target, prefix: str) -> Iterable[str]:
        """Return the names of staging tables."""
        ...

    def stage(self, connection: Any, name: str, target: Target, rows: pa.Table) -> None:
        """Load rows into a new staging table and commit.

        Raises:
            RefusedRowError: A row cannot be held; says which.
        """
        ...

    def move(self, connection: Any, name: str, target: Target) -> None:
        """Put the rows of a staging table into the target, in the same transaction."""
        ...

    def insert(self, connection: Any, target: Target, rows: pa.Table) -> None:
        """Put rows into the target, in the same transaction.

        Raises:
            RefusedRowError: A row cannot be held; says which.
        """
        ...

    def delete(self, connection: Any, target: Target, keys: pa.Table) -> None:
        """Delete the rows of keys from the target, in the same transaction."""
        ...

    def try_staging(self, connection: Any, target: Target, name: str) -> None:
        """Create a staging table and leave none: if that works, we have the rights."""
        ...

    def try_altering(self, connection: Any, table: str) -> None:
        """Check whether columns may be added to a table; leave it as it is."""
        ...

    def right_to_stage(self, target: Target) -> str:
        """Return the SQL that grants the right to create staging tables."""
        ...

    def drop(self, connection: Any, target: Target, names: list[str]) -> None:
        """Drop staging tables without waiting for anybody, and commit."""
        ...


def dialect_of(address: Address) -> Dialect:
    """Return how to talk to a database.

    Raises:
        InvalidConfigError: Its client is not installed.
    """
    match address.dialect:
        case "sqlite":
            from riverlock.connectors.databases.sqlite import SqliteDialect

            return SqliteDialect(address)
        case "postgresql":
            from riverlock.connectors.databases.postgres import PostgresDialect

            return PostgresDialect(address)
        case _:
            from riverlock.connectors.databases.mysql import MysqlDialect

            return MysqlDialect(address)
