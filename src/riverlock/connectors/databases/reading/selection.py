"""What is selected from a table or query, and as which types."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from riverlock.connectors.databases.source import ORDERED
from riverlock.core.errors import InvalidFlowError, SourceError, SourceUnavailableError
from riverlock.core.types import Field, Schema, Type, type_of

if TYPE_CHECKING:
    from riverlock.connectors.databases.reading.questions import Database
    from riverlock.connectors.databases.source import Sql
    from riverlock.connectors.databases.table_layout import Column, Layout

__all__ = ["Selection", "select"]

_POSTGRES: Final = {
    "bool": "boolean",
    "int2": "smallint",
    "int4": "int",
    "int8": "bigint",
    "float4": "float",
    "float8": "double",
    "bytea": "binary",
    "date": "date",
    "timestamptz": "timestamp",
    "timestamp": "timestamp_ntz",
}
_MYSQL: Final = {
    "tinyint": "tinyint",
    "smallint": "smallint",
    "mediumint": "int",
    "int": "int",
    "bigint": "bigint",
    "year": "int",
    "float": "float",
    "double": "double",
    "date": "date",
    "timestamp": "timestamp",
    "datetime": "timestamp_ntz",
    **dict.fromkeys(("binary", "varbinary", "tinyblob", "blob", "bit"), "binary"),
    **dict.fromkeys(("mediumblob", "longblob"), "binary"),
}
_UNSIGNED: Final = {
    "tinyint": "smallint",
    "smallint": "int",
    "int": "bigint",
    "bigint": "decimal(20,0)",
}
# By parts of the declared type, the first that fits (SQLite's documentation, §3.1).
_SQLITE: Final = (
    ("bool", "boolean"),
    ("datetime", "timestamp_ntz"),
    ("timestamp", "timestamp_ntz"),
    ("date", "date"),
    ("int", "bigint"),
    ("char", "string"),
    ("clob", "string"),
    ("text", "string"),
    ("blob", "binary"),
    ("real", "double"),
    ("floa", "double"),
    ("doub", "double"),
)
_DECIMAL: Final = re.compile(r"(?:decimal|numeric)\((\d+)(?:,\s*(\d+))?\)")
_TEXT: Final = {"postgresql": "text", "mysql": "CHAR", "sqlite": "TEXT"}
# Of MySQL: sorted by number, compared as text.
_TWO_ORDERS: Final = ("enum", "set")
# Text in an order that tells all texts apart, whatever the column's collation.
_BYTES: Final = {
    "postgresql": 'CAST({} AS text) COLLATE "C"',
    "mysql": "CAST({} AS BINARY)",
    "sqlite": "CAST({} AS TEXT) COLLATE BINARY",
}
_UNSIGNED_COLUMNS: Final = """
SELECT column_name FROM information_schema.columns
WHERE table_schema = COALESCE(%s, DATABASE()) AND table_name = %s
  AND column_type LIKE '%%unsigned%%'
"""


@dataclass(frozen=True, kw_only=True)
class Selection:
    """Rows in their order, as SQL; picklable."""

    source: str  # what stands behind FROM
    column: str
    schema: Schema
    expressions: tuple[str, ...]
    # What rows of the same value are ordered by.
    ties: tuple[str, ...]

    @property
    def rows(self) -> str:
        """The part between SELECT and WHERE."""
        return f"{', '.join(self.expressions)} FROM {self.source}"

    @property
    def order(self) -> str:
        """An order that is the same every time: equal values by all of their rows."""
        return ", ".join([self.column, *self.ties])

    @property
    def is_unique(self) -> bool:
        """Whether no two rows have the same value."""
        return not self.ties


def select(database: Database, source: Sql, uid: str) -> Selection:
    """Examine a table, or a query, before anything is read.

    Raises:
        InvalidFlowError: Table or column do not exist, or cannot be used.
        SourceError: A file does not exist, or a query is refused.
        SourceUnavailableError: A table does not exist, and the source waits for it.
    """
    _check_file(source, uid)
    layout = None if source.table is None else _layout(database, source, uid)
    schema = source.schema
    if layout is not None:
        schema = _schema(database, source, layout, uid)
    assert schema is not None
    stored = _stored(database, layout)
    kind = schema[source.column]
    if kind.kind not in ORDERED or stored.get(source.column) in _TWO_ORDERS:
        raise InvalidFlowError(
            f"column {source.column!r} of source {uid!r}",
            expected="a whole number, decimal, text, date or time",
            found=kind.ddl if kind.kind not in ORDERED else stored[source.column],
        )
    quoted = database.dialect.column
    text = _TEXT[database.address.dialect]
    has_index = layout is not None and frozenset({source.column}) in layout.unique
    is_unique = has_index if source.unique is None else source.unique
    as_bytes = _BYTES[database.address.dialect]
    ties = [
        as_bytes.format(quoted(f.name)) if f.type.kind == "string" else quoted(f.name)
        for f in schema.fields
    ]
    chosen = Selection(
        # A line of its own ends a comment, should the query end with one.
        source=f"({source.query}\n) riverlock_rows"
        if source.table is None
        else database.dialect.quoted(source.table),
        column=quoted(source.column),
        schema=schema,
        expressions=tuple(
            _expression(quoted(f.name), f.type, stored.get(f.name), text)
            for f in schema.fields
        ),
        ties=() if is_unique else tuple(ties),
    )
    if layout is None:
        _check_query(database, chosen, uid)
    return chosen


def _check_query(database: Database, chosen: Selection, uid: str) -> None:
    """Check that a query can be run, and returns the columns.

    SQLite would take an unknown name for a text.
    """
    found = database.names(f"SELECT * FROM {chosen.source} WHERE 1 = 0")
    known = {name.casefold() for name in found}
    for name in chosen.schema.names:
        if name.casefold() not in known:
            raise InvalidFlowError(
                f"column {name!r} of source {uid!r}",
                expected=f"one of the query: {', '.join(found)}",
                found=repr(name),
            )


def _check_file(source: Sql, uid: str) -> None:
    """Check that a file of SQLite exists; for a server there is nothing to check."""
    file = Path(source.address.database)
    is_awaited = source.missing == "wait"
    if source.address.dialect == "sqlite" and not is_awaited and not file.exists():
        raise SourceError(
            uid,
            what=f"{file} does not exist",
            hint="correct the path; missing='wait' waits for it",
        )


def _expression(name: str, kind: Type, stored: str | None, text: str) -> str:
    """Return what is selected of a column."""
    if kind.kind == "string":
        return f"CAST({name} AS {text})"
    # As it is, a FLOAT is printed with six digits.
    return f"{name} + 0e0" if stored == "float" else name


def _stored(database: Database, layout: Layout | None) -> dict[str, str]:
    """Return the types of a table's columns; MySQL treats some in its own way."""
    if layout is None or database.address.dialect != "mysql":
        return {}
    return {name: column.type for name, column in layout.columns.items()}


def _layout(database: Database, source: Sql, uid: str) -> Layout:
    table = source.table
    assert table is not None
    found = database.use(lambda line: database.dialect.layout(line, table))
    if found is not None:
        return found
    if source.missing == "wait":
        said = f"there is no table {table} at {database.address} yet"
        raise SourceUnavailableError(uid, what=said)
    raise InvalidFlowError(
        f"source {uid!r}",
        expected=f"a table {table} at {database.address}",
        found="none",
        hint="correct the name, or create it; missing='wait' waits for it",
    )


def _schema(database: Database, source: Sql, layout: Layout, uid: str) -> Schema:
    names = layout.columns if source.schema is None else source.schema.names
    for name in (source.column, *names):
        if name not in layout.columns:
            raise InvalidFlowError(
                f"column {name!r} of source {uid!r}",
                expected=f"one of {source.table}: {', '.join(layout.columns)}",
                found=repr(name),
            )
    if source.schema is not None:
        return source.schema
    unsigned = _unsigned(database, source)
    fields = []
    for name, column in layout.columns.items():
        kind = _type(database.address.dialect, column, is_unsigned=name in unsigned)
        if kind is None:
            raise InvalidFlowError(
                f"column {name!r} of source {uid!r}",
                expected="a declared type that determines its values",
                found=repr(column.type),
                hint="name the columns to read and their types: schema=...",
            )
        fields.append(Field(name, kind))
    return Schema(tuple(fields))


def _unsigned(database: Database, source: Sql) -> set[str]:
    if database.address.dialect != "mysql" or source.table is None:
        return set()
    schema, _, name = source.table.rpartition(".")
    execute = database.dialect.execute
    found: list[Any] = database.use(
        lambda line: execute(line, _UNSIGNED_COLUMNS, schema or None, name)
    )
    return {name for (name,) in found}


def _type(dialect: str, column: Column, *, is_unsigned: bool) -> Type | None:
    match dialect:
        case "postgresql" if column.type == "numeric":
            return _decimal(column)
        case "postgresql":
            return type_of(_POSTGRES.get(column.type, "string"))
        case "mysql" if column.type == "decimal":
            return _decimal(column)
        case "mysql":
            name = _MYSQL.get(column.type, "string")
            return type_of(_UNSIGNED.get(name, name) if is_unsigned else name)
        case _:
            return _sqlite_type(column.type)


def _decimal(column: Column) -> Type:
    """Return a decimal; text if no decimal of ours has that many digits."""
    if column.precision is None:
        return Type("decimal", precision=38, scale=18)
    scale = column.scale or 0
    if not (column.precision <= 38 and 0 <= scale <= column.precision):
        return Type("string")
    return Type("decimal", precision=column.precision, scale=scale)


def _sqlite_type(declared: str) -> Type | None:
    number = _DECIMAL.match(declared)
    if number is not None:
        return type_of(f"decimal({number[1]},{number[2] or 0})")
    found = next((kind for part, kind in _SQLITE if part in declared), None)
    return None if found is None else type_of(found)
