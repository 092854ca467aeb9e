"""Tables of databases as an input, read by a column that grows."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import TYPE_CHECKING, Final

from riverlock.connectors.base.source import check_missing
from riverlock.connectors.databases.address import Address, parse_address
from riverlock.core.errors import InvalidConfigError
from riverlock.core.keywords import told_keywords
from riverlock.core.times import duration_us
from riverlock.core.types import Schema, SchemaLike, schema_of

if TYPE_CHECKING:
    from datetime import datetime, timedelta

    After = int | str | Decimal | date | datetime

__all__ = ["ORDERED", "Sql", "sql"]

# Kinds of columns that can tell how far a table was read.
ORDERED: Final = (
    "byte",
    "short",
    "int",
    "long",
    "decimal",
    "string",
    "date",
    "timestamp",
    "timestamp_ntz",
)
_NESTED: Final = ("array", "map", "struct")


@dataclass(frozen=True, kw_only=True)
class Sql:
    """Rows of a database; see ``sql``. Prints without secrets."""

    address: Address
    table: str | None
    query: str | None
    column: str
    schema: Schema | None
    after: After | None
    # None: nobody said, so the database is asked.
    unique: bool | None
    delay_us: int | None
    bounded: bool
    missing: str = "fail"
    kind: str = "sql"

    @property
    def place(self) -> str:
        """What distinguishes it from others of its kind; nothing secret."""
        return f"{self.address} {self.table or self.query}"


@told_keywords
def sql(  # noqa: PLR0913 - keyword-only settings
    url: str,
    *,
    column: str,
    table: str | None = None,
    query: str | None = None,
    schema: SchemaLike | None = None,
    after: After | None = None,
    unique: bool | None = None,
    delay: str | timedelta | None = None,
    bounded: bool = False,
    missing: str = "fail",
) -> Sql:
    """Read the rows of a table, each exactly once, new ones as they appear.

    An epoch takes the rows whose ``column`` lies behind the last value that was read,
    up to a value that is fixed when the epoch begins; tasks share them. New rows must
    have greater values than those that could be seen before, or with ``unique=False``
    as great ones, and rows that were read must stay as they are.

    Args:
        url: ``sqlite:///file.db``, ``postgresql://user:password@host/database`` or
            ``mysql://user:password@host/database`` (also MariaDB).
        column: A number without fraction, a decimal, text, a date or a time; best with
            an index. A row in which it is null stops the flow.
        table: Its name, optionally with a schema before a dot; or else
        query: A SELECT, of which ``column`` is a column. Needs ``schema``.
        schema: The columns to read, and their types; by default those of the table.
        after: A new store begins with rows of greater values.
        unique: Whether no two rows have the same value; by default whether the table
            has such an index. If not, rows with the greatest value wait until there is
            a greater one, since more of them may come.
        delay: For how long a value must have been there before it counts: the longest
            time that a transaction may take. Without it, PostgreSQL is asked which
            transactions are open. MySQL and MariaDB need it.
        bounded: Read up to the greatest value as of the first start. Event time then
            ends with it, so that every window and timer is done.
        missing: What if the table, or SQLite's file, does not exist: ``fail``, when the
            flow is checked and at its start; or ``wait`` until it comes: nothing is
            read before, and ``check`` says what does not exist. Not with ``query``.

    Raises:
        InvalidConfigError: The URL or an argument does not fit.
    """
    address = parse_address(url)
    if (table is None) == (query is None):
        raise InvalidConfigError(
            "sql()",
            expected="either table= or query=",
            found="neither" if table is None else "both",
        )
    known = None if schema is None else schema_of(schema)
    if query is not None and known is None:
        raise InvalidConfigError(
            "sql(query=)",
            expected="a schema, since not every database reports the types of a query",
            found="none",
            hint='write schema="id bigint, amount double"',
        )
    if known is not None:
        _check_schema(known, column)
    _check_after(after, address.dialect)
    check_missing(missing)
    if missing == "wait" and table is None:
        raise InvalidConfigError(
            "sql(missing='wait')",
            expected="table=, which can be looked up",
            found="query=",
        )
    if address.dialect == "mysql" and delay is None and not bounded:
        raise InvalidConfigError(
            "sql() of MySQL or MariaDB",
            expected="delay=, the longest time that a writer's transaction takes",
            found="none",
            hint="rows of a transaction that commits later than one with greater"
            ' values would be missed; write delay="30 seconds", or "0 seconds" if'
            " only one transaction writes at a time",
        )
    return Sql(
        address=address,
        table=table,
        query=None if query is None else query.strip().rstrip(";"),
        column=column,
        schema=known,
        after=after,
        unique=unique,
        delay_us=None if delay is None else duration_us(delay),
        bounded=bounded,
        missing=missing,
    )


def _check_schema(schema: Schema, column: str) -> None:
    if column not in schema.names:
        raise InvalidConfigError(
            f"sql(column={column!r})",
            expected=f"one of the schema: {', '.join(schema.names)}",
            found=repr(column),
        )
    nested = [f.name for f in schema.fields if f.type.kind in _NESTED]
    if nested:
        raise InvalidConfigError(
            "sql(schema=)",
            expected="simple types; JSON is text, for Spark's from_json",
            found=f"a nested type of {', '.join(nested)}",
        )


def _check_after(after: object, dialect: str) -> None:
    kinds = (int, str) if dialect == "sqlite" else (int, str, Decimal, date)
    if after is None or (isinstance(after, kinds) and not isinstance(after, bool)):
        return
    raise InvalidConfigError(
        "sql(after=)",
        expected="a whole number or text; SQLite compares dates and times as text"
        if dialect == "sqlite"
        else "a whole number, Decimal, text, date or datetime",
        found=repr(after),
    )
