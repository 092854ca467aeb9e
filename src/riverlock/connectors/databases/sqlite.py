"""SQLite: one file, one writer. Rows are staged in the store, not in the file."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import quote

from riverlock.connectors.databases.dialect import (
    RefusedRowError,
    Trouble,
    name_in,
    with_marks,
)
from riverlock.connectors.databases.row_values import (
    deletions,
    described,
    refuse_numbers,
    rows_of,
)
from riverlock.connectors.databases.table_layout import NESTED, Column, Layout

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    import pyarrow as pa

    from riverlock.connectors.databases.address import Address
    from riverlock.connectors.databases.dialect import Target
    from riverlock.core.types import Type

__all__ = ["SqliteDialect"]

_QUOTE = '"'
# Other writers hold the one lock for the length of their transactions.
_PATIENCE_SECONDS = 30
_AWAY = ("SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_CANTOPEN", "SQLITE_IOERR")
_FULL = ("SQLITE_FULL", "SQLITE_READONLY", "SQLITE_NOMEM")
_TYPES = {
    "boolean": "INTEGER",
    "byte": "INTEGER",
    "short": "INTEGER",
    "int": "INTEGER",
    "long": "INTEGER",
    "float": "REAL",
    "double": "REAL",
    "binary": "BLOB",
}
# Types that a column of numbers would alter: '007', 1.10.
_TEXTS = frozenset({"string", "decimal", *NESTED})


def _instant(value: datetime) -> str:
    return value.isoformat(sep=" ", timespec="microseconds")


class SqliteDialect:
    """A file beside the flow, also read by others."""

    stages_in_database = False
    merges_by_any_unique_index = False
    _FIXES: ClassVar[dict[str, Callable[[Any], Any]]] = {
        "boolean": int,
        "decimal": lambda v: format(v, "f"),
        "date": lambda v: v.isoformat(),
        "timestamp": _instant,
        "timestamp_ntz": _instant,
    }

    def __init__(self, address: Address) -> None:
        """Nothing is opened yet."""
        self.address = address

    def connect(self, *, creates: bool = False) -> sqlite3.Connection:
        """Open the file; a new one gets a write-ahead log, for its readers' sake."""
        path = Path(self.address.database)
        is_new = creates and not path.exists()
        if is_new:
            path.parent.mkdir(parents=True, exist_ok=True)
        mode = "rwc" if creates else "rw"
        connection = sqlite3.connect(
            f"file:{quote(str(path))}?mode={mode}",
            uri=True,
            timeout=_PATIENCE_SECONDS,
            isolation_level=None,
        )
        if is_new:
            connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        return connection

    def trouble(self, error: Exception) -> Trouble | None:
        """Tell a file that is locked or away from a statement that is wrong."""
        if not isinstance(error, sqlite3.Error):
            return None
        name = getattr(error, "sqlite_errorname", None) or ""
        return Trouble.AWAY if name.startswith(_AWAY + _FULL) else Trouble.REFUSED

    def execute(
        self, connection: sqlite3.Connection, sql: str, *values: Any
    ) -> list[Any]:
        """Run a statement."""
        marked = with_marks(sql, _QUOTE, value="?", percent="%")
        return connection.execute(marked, values).fetchall()

    def lock(self, connection: sqlite3.Connection) -> str:
        """Take the file's one write lock."""
        connection.execute("BEGIN IMMEDIATE")
        return ""

    def quoted(self, name: str) -> str:
        """Quote each part of a name."""
        return ".".join(map(self.column, name.split(".")))

    def column(self, name: str) -> str:
        """Quote a name."""
        return name_in(_QUOTE, name)

    def column_type(self, kind: Type, *, key: bool) -> str:
        """Return a type whose affinity leaves values as they are."""
        return _TYPES.get(kind.kind, "TEXT")

    def table_options(self, connection: sqlite3.Connection) -> str:
        """None are needed."""
        return ""

    def misfit(self, kind: Type, column: Column) -> str | None:
        """Refuse columns whose affinity would turn text into numbers."""
        affinity = _affinity(column.type)
        if kind.kind in _TEXTS and affinity not in ("text", "none"):
            return "TEXT"
        if kind.kind in ("float", "double") and affinity in ("integer", "text"):
            return "REAL"
        is_integer = _TYPES.get(kind.kind) == "INTEGER"
        return "INTEGER" if is_integer and affinity in ("text", "real") else None

    def layout(self, connection: sqlite3.Connection, table: str) -> Layout | None:
        """Look the table up in the pragmas."""
        name = table.rpartition(".")[2]
        found = connection.execute(
            'SELECT name, type, "notnull", dflt_value, pk FROM pragma_table_info(?)',
            (name,),
        ).fetchall()
        if not found:
            return None
        columns = {
            column: Column(
                type=kind.lower() or "none",
                is_required=bool(required) and default is None and not in_key,
            )
            for column, kind, required, default, in_key in found
        }
        primary = frozenset(column for column, *_, in_key in found if in_key)
        unique = [primary] if primary else []
        merging: dict[str, str] = {}
        for (index,) in connection.execute(
            'SELECT name FROM pragma_index_list(?) WHERE "unique" AND NOT partial',
            (name,),
        ).fetchall():
            of = connection.execute(
                "SELECT name, coll FROM pragma_index_xinfo(?) WHERE key", (index,)
            ).fetchall()
            unique.append(frozenset(column for column, _ in of))
            merging |= {c: by for c, by in of if c and by.upper() != "BINARY"}
        told = {c: replace(columns[c], merging=by) for c, by in merging.items()}
        return Layout(columns={**columns, **told}, unique=tuple(unique))

    def staged(
        self, connection: sqlite3.Connection, target: Target, prefix: str
    ) -> list[str]:
        """Nothing is staged in the file."""
        return []

    def stage(self, connection: Any, name: str, target: Target, rows: pa.Table) -> None:
        """Look for values that the commit could not take; they stay in the store."""
        refuse_numbers(rows, target.schema, ("nan",))  # it would store null

    def move(self, connection: Any, name: str, target: Target) -> None:
        """Nothing is staged in the file."""

    def try_staging(self, connection: Any, target: Target, name: str) -> None:
        """Nothing is staged in the file."""

    def try_altering(self, connection: Any, table: str) -> None:
        """Nobody is asked for rights."""

    def right_to_stage(self, target: Target) -> str:
        """Nobody is asked for rights."""
        return ""

    def drop(self, connection: Any, target: Target, names: list[str]) -> None:
        """Nothing is staged in the file."""

    def delete(
        self, connection: sqlite3.Connection, target: Target, keys: pa.Table
    ) -> None:
        """Delete some hundred rows by one statement."""
        marks = {self.column(f.name): "%s" for f in target.keys.fields}
        values = rows_of(keys, target.keys, self._FIXES)
        for sql, found in deletions(self.quoted(target.table), marks, values):
            self.execute(connection, sql, *found)

    def insert(
        self, connection: sqlite3.Connection, target: Target, rows: pa.Table
    ) -> None:
        """Insert or replace, row by row, in their order: the last of a key wins."""
        values = rows_of(rows, target.schema, self._FIXES)
        sql = self._insertion(target)
        with closing(connection.cursor()) as cursor:
            cursor.execute("SAVEPOINT riverlock_rows")
            try:
                cursor.executemany(sql, values)
            except sqlite3.IntegrityError:
                cursor.execute("ROLLBACK TO riverlock_rows")
                self._find_refused(cursor, sql, values, rows)
                raise
            cursor.execute("RELEASE riverlock_rows")

    @staticmethod
    def _find_refused(
        cursor: sqlite3.Cursor, sql: str, values: list[Any], rows: pa.Table
    ) -> None:
        for place, row in enumerate(values):
            try:
                cursor.execute(sql, row)
            except sqlite3.IntegrityError as error:
                message = f"{error}: {described(rows, place)}"
                raise RefusedRowError(message) from error

    def _insertion(self, target: Target) -> str:
        names = ", ".join(map(self.column, target.names))
        marks = ", ".join("?" for _ in target.names)
        sql = f"INSERT INTO {self.quoted(target.table)} ({names}) VALUES ({marks})"
        if not target.key:
            return sql
        key = ", ".join(map(self.column, target.key))
        rest = [self.column(n) for n in target.names if n not in target.key]
        if not rest:
            return f"{sql} ON CONFLICT ({key}) DO NOTHING"
        changes = ", ".join(f"{n} = excluded.{n}" for n in rest)
        return f"{sql} ON CONFLICT ({key}) DO UPDATE SET {changes}"


def _affinity(declared: str) -> str:
    """Return what SQLite makes of a declared type (its documentation, §3.1)."""
    rules = (
        (("int",), "integer"),
        (("char", "clob", "text"), "text"),
        (("blob", "none", "any"), "none"),
        (("real", "floa", "doub"), "real"),
    )
    for parts, affinity in rules:
        if any(part in declared for part in parts):
            return affinity
    return "numeric"
