"""PostgreSQL, with psycopg 3: rows are staged with COPY."""

from __future__ import annotations

import contextlib
import re
from typing import TYPE_CHECKING, Any

from riverlock.connectors.databases.dialect import (
    RefusedRowError,
    Trouble,
    name_in,
    with_marks,
)
from riverlock.connectors.databases.postgres_copy import as_text, csv_of, refused
from riverlock.connectors.databases.postgres_types import column_type, misfit
from riverlock.connectors.databases.row_values import deletions, rows_of
from riverlock.connectors.databases.table_layout import Column, Layout
from riverlock.core.errors import InvalidConfigError

try:
    import psycopg
except ImportError as _error:
    raise InvalidConfigError(
        "a PostgreSQL database",
        expected="psycopg 3",
        found=str(_error),
        hint="pip install 'riverlock[postgres]'",
    ) from _error

if TYPE_CHECKING:
    import pyarrow as pa

    from riverlock.connectors.databases.address import Address
    from riverlock.connectors.databases.dialect import Target
    from riverlock.core.types import Type

__all__ = ["PostgresDialect"]

_QUOTE = '"'
_CONNECT_SECONDS = "10"
_DROPS = 32  # in one transaction
# A driver that sleeps in the middle of a commit must not hold its successor up: the
# server ends such a transaction before others have waited for too long.
_SETTINGS = (
    "SET idle_in_transaction_session_timeout = '60s';"
    "SET lock_timeout = '75s';"
    "SET TimeZone = 'UTC';"
    "SET DateStyle = 'ISO';"
    # What the server says is committed must be so after a crash, too.
    "SELECT set_config('synchronous_commit', 'on', false)"
    " WHERE current_setting('synchronous_commit') = 'off'"
)
_AWAY = ("08", "53", "57P", "58", "25006")
# While a connection is made, its client gives no state, only words of the server.
_NOT_LET_IN = (
    "authentication failed",
    "no password supplied",
    "no pg_hba.conf entry",
    "is not permitted to log in",
    "permission denied for database",
)
_UNKNOWN = re.compile(r'(database|role) ".*" does not exist')
_AGAIN = ("40", "55P03", "25P03", "57014")


class PostgresDialect:
    """A PostgreSQL server."""

    stages_in_database = True
    merges_by_any_unique_index = False

    def __init__(self, address: Address) -> None:
        """Nothing is opened yet."""
        self.address = address

    def connect(self, *, creates: bool = False) -> psycopg.Connection[Any]:
        """Connect; parts that the URL leaves out come from the environment (PGHOST)."""
        at = self.address
        known = {
            "host": at.host,
            "port": None if at.port is None else str(at.port),
            "user": at.user,
            "password": at.password,
            "dbname": at.database,
            "application_name": "riverlock",
            "connect_timeout": _CONNECT_SECONDS,
            "keepalives_idle": "10",
            "tcp_user_timeout": "60000",
        }
        options: dict[str, Any] = {k: v for k, v in known.items() if v is not None}
        options |= dict(at.options)
        connection = psycopg.connect(**options, prepare_threshold=None)
        try:
            connection.execute(_SETTINGS)
            connection.commit()
        except BaseException:
            connection.close()
            raise
        return connection

    def trouble(self, error: Exception) -> Trouble | None:
        """Decide by the SQL state of the server, if there is one."""
        if not isinstance(error, psycopg.Error):
            return None
        state = error.sqlstate
        if state is None:
            lost = isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
            words = str(error)
            if any(w in words for w in _NOT_LET_IN) or _UNKNOWN.search(words):
                return Trouble.REFUSED
            return Trouble.AWAY if lost else Trouble.REFUSED
        if state.startswith(_AGAIN):
            return Trouble.AGAIN
        return Trouble.AWAY if state.startswith(_AWAY) else Trouble.REFUSED

    def execute(
        self, connection: psycopg.Connection[Any], sql: str, *values: Any
    ) -> list[Any]:
        """Run a statement."""
        if values:
            sql = with_marks(sql, _QUOTE, value="%s", percent="%%")
        cursor = connection.execute(sql.encode(), values or None)
        return [] if cursor.description is None else cursor.fetchall()

    def lock(self, connection: psycopg.Connection[Any]) -> str:
        """Rows are locked as they are read."""
        return " FOR UPDATE"

    def quoted(self, name: str) -> str:
        """Quote each part of a name."""
        return ".".join(map(self.column, name.split(".")))

    def column(self, name: str) -> str:
        """Quote a name."""
        return name_in(_QUOTE, name)

    def column_type(self, kind: Type, *, key: bool) -> str:
        """Return the type of the same name, or of the same values."""
        return column_type(kind)

    def table_options(self, connection: psycopg.Connection[Any]) -> str:
        """None are needed."""
        return ""

    def misfit(self, kind: Type, column: Column) -> str | None:
        """Refuse types that would round, wrap, or move instants."""
        return misfit(kind, column)

    def layout(self, connection: psycopg.Connection[Any], table: str) -> Layout | None:
        """Look the table up in the catalogue."""
        found = self.execute(connection, _COLUMNS, self.quoted(table))
        if not found:
            return None
        unique = self.execute(connection, _UNIQUE, self.quoted(table))
        columns = {
            name: Column(
                type=kind,
                precision=precision,
                scale=scale,
                is_required=is_required,
            )
            for name, kind, precision, scale, is_required in found
        }
        return Layout(
            columns=columns, unique=tuple(frozenset(names) for (names,) in unique)
        )

    def staged(
        self, connection: psycopg.Connection[Any], target: Target, prefix: str
    ) -> list[str]:
        """List staging tables in the schema of the target."""
        schema = target.table.rpartition(".")[0]
        found = self.execute(connection, _STAGED, prefix + "%", schema, schema)
        return [name for (name,) in found]

    def stage(
        self,
        connection: psycopg.Connection[Any],
        name: str,
        target: Target,
        rows: pa.Table,
    ) -> None:
        """Create and fill the table in one transaction: it exists whole or not."""
        self._load(connection, target.beside(name), target, rows, temporary=False)
        connection.commit()

    def _load(
        self,
        connection: psycopg.Connection[Any],
        name: str,
        target: Target,
        rows: pa.Table,
        *,
        temporary: bool,
    ) -> None:
        """Copy checks and NOT NULL too, so that rows are refused here and now."""
        what = "TEMPORARY TABLE" if temporary else "TABLE"
        table = self.quoted(target.table)
        others = self.execute(
            connection, _OTHERS, self.quoted(target.table), list(target.names)
        )
        self.execute(
            connection,
            f"CREATE {what} {self.quoted(name)} (LIKE {table} INCLUDING CONSTRAINTS)",
        )
        if others:
            drops = ", ".join(
                f"DROP COLUMN {self.column(other)} CASCADE" for (other,) in others
            )
            self.execute(connection, f"ALTER TABLE {self.quoted(name)} {drops}")
        names = ", ".join(map(self.column, target.names))
        sql = f"COPY {self.quoted(name)} ({names}) FROM STDIN (FORMAT csv)"
        plain = as_text(rows, target)
        try:
            with (
                connection.cursor() as cursor,
                cursor.copy(sql.encode()) as copy,
            ):
                for data in csv_of(plain):
                    copy.write(data)
        except (psycopg.DataError, psycopg.IntegrityError) as error:
            raise RefusedRowError(refused(error, plain, rows, target)) from error

    def move(
        self, connection: psycopg.Connection[Any], name: str, target: Target
    ) -> None:
        """Insert or replace the rows of a staging table with one statement."""
        staged = self.quoted(target.beside(name))
        self._move(connection, staged, target)

    def _move(
        self, connection: psycopg.Connection[Any], staged: str, target: Target
    ) -> None:
        names = ", ".join(map(self.column, target.names))
        into = f"INSERT INTO {self.quoted(target.table)} ({names})"
        if not target.key:
            self.execute(connection, f"{into} SELECT {names} FROM {staged}")
            return
        if not self._has_any_key(connection, staged, target):
            # Half the work of a merge, which looks each key up and marks each row.
            # Others may add keys meanwhile, or the server may tell fewer keys apart.
            with (
                contextlib.suppress(psycopg.errors.UniqueViolation),
                connection.transaction(),
            ):
                self.execute(connection, f"{into} SELECT {names} FROM {staged}")
                return
        merge = self._merge(target)
        try:
            with connection.transaction():
                self.execute(connection, f"{into} SELECT {names} FROM {staged} {merge}")
        except psycopg.errors.CardinalityViolation:
            # Keys that differ for us but not for the server, as by its collation.
            # Rows lie in the order in which one COPY has filled a new table.
            key = ", ".join(map(self.column, target.key))
            last = (
                f"SELECT DISTINCT ON ({key}) {names} FROM {staged}"
                f" ORDER BY {key}, ctid DESC"
            )
            self.execute(connection, f"{into} {last} {merge}")

    def _has_any_key(
        self, connection: psycopg.Connection[Any], staged: str, target: Target
    ) -> bool:
        """Tell whether the target has a staged key; stop at the first one."""
        table, keys = self.quoted(target.table), [*map(self.column, target.key)]
        same = " AND ".join(f"t.{name} = s.{name}" for name in keys)
        # OFFSET 0 keeps it from becoming a join, which might read all of the target.
        has_any = (
            f"EXISTS (SELECT FROM {staged} s WHERE EXISTS"
            f" (SELECT FROM {table} t WHERE {same} OFFSET 0))"
        )
        if len(keys) == 1:
            # Keys that grow, like numbers of orders, lie behind the greatest: that
            # takes a tenth of the time. The unique index has it at its end.
            (key,) = keys
            greatest = (
                f"SELECT {key} FROM {table} WHERE {key} IS NOT NULL"
                f" ORDER BY {key} DESC LIMIT 1"
            )
            reaches = f"EXISTS (SELECT FROM {staged} WHERE {key} <= ({greatest}))"
            has_any = f"{reaches} AND {has_any}"
        found = self.execute(connection, f"SELECT {has_any}")
        return bool(found[0][0])

    def _merge(self, target: Target) -> str:
        key = ", ".join(map(self.column, target.key))
        rest = [self.column(n) for n in target.names if n not in target.key]
        if not rest:
            return f"ON CONFLICT ({key}) DO NOTHING"
        changes = ", ".join(f"{n} = EXCLUDED.{n}" for n in rest)
        return f"ON CONFLICT ({key}) DO UPDATE SET {changes}"

    def insert(
        self, connection: psycopg.Connection[Any], target: Target, rows: pa.Table
    ) -> None:
        """Go through a temporary table, which ends with the connection."""
        name = "riverlock_rows"
        self.execute(connection, f"DROP TABLE IF EXISTS pg_temp.{name}")
        self._load(connection, name, target, rows, temporary=True)
        self._move(connection, f"pg_temp.{name}", target)

    def delete(
        self, connection: psycopg.Connection[Any], target: Target, keys: pa.Table
    ) -> None:
        """Delete a few hundred rows with one statement."""
        marks = {
            self.column(f.name): "%s"  # the server takes text for any type
            if f.type.kind == "string"
            else f"%s::{self.column_type(f.type, key=True)}"
            for f in target.keys.fields
        }
        self._delete(connection, target, marks, rows_of(keys, target.keys, {}))

    def _delete(
        self,
        connection: psycopg.Connection[Any],
        target: Target,
        marks: dict[str, str],
        keys: list[tuple[Any, ...]],
    ) -> None:
        """Leave out keys that the columns cannot have: there is no such row."""
        try:
            with connection.transaction():
                for sql, found in deletions(self.quoted(target.table), marks, keys):
                    self.execute(connection, sql, *found)
        except psycopg.DataError:
            half = len(keys) // 2
            for part in (keys[:half], keys[half:]) if half else ():
                self._delete(connection, target, marks, part)

    def try_staging(
        self, connection: psycopg.Connection[Any], target: Target, name: str
    ) -> None:
        """Create one, and roll back."""
        table = self.quoted(target.beside(name))
        self.execute(connection, f"CREATE TABLE {table} (n INT)")
        connection.rollback()

    def try_altering(self, connection: psycopg.Connection[Any], table: str) -> None:
        """Add a column, and roll back."""
        adding = f"ALTER TABLE {self.quoted(table)} ADD COLUMN riverlock_try INT"
        self.execute(connection, adding)
        connection.rollback()

    def right_to_stage(self, target: Target) -> str:
        """Tables belong to schemas."""
        schema = self.quoted(target.table.rpartition(".")[0] or "public")
        return f"GRANT CREATE ON SCHEMA {schema} TO {self.address.user}"

    def drop(
        self, connection: psycopg.Connection[Any], target: Target, names: list[str]
    ) -> None:
        """Drop tables; those that somebody reads wait for another time."""
        tables = [self.quoted(target.beside(name)) for name in names]
        # Several at once, since each transaction that drops one waits for the disk;
        # not all that may have piled up, since the server has room for so many locks.
        for first in range(0, len(tables), _DROPS):
            some = ", ".join(tables[first : first + _DROPS])
            self.execute(connection, "SET LOCAL lock_timeout = '1s'")
            self.execute(connection, f"DROP TABLE IF EXISTS {some}")
            connection.commit()


_COLUMNS = """
SELECT a.attname, t.typname,
  CASE
    WHEN a.atttypmod < 0 THEN NULL
    WHEN t.typname = 'numeric' THEN ((a.atttypmod - 4) >> 16) & 65535
    WHEN t.typname IN ('timestamp', 'timestamptz') THEN a.atttypmod
    WHEN t.typname IN ('varchar', 'bpchar') THEN a.atttypmod - 4
  END,
  CASE
    WHEN t.typname = 'numeric' AND a.atttypmod >= 0
    THEN (((a.atttypmod - 4) & 2047) # 1024) - 1024
  END,
  a.attnotnull AND NOT a.atthasdef AND a.attidentity = ''
FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
WHERE a.attrelid = to_regclass(%s) AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY a.attnum
"""
_UNIQUE = """
SELECT array_agg(a.attname::text)
FROM pg_index i
JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey)
WHERE i.indrelid = to_regclass(%s) AND i.indisunique AND i.indisvalid
  AND i.indimmediate AND i.indpred IS NULL AND i.indexprs IS NULL
  AND i.indnatts = i.indnkeyatts
GROUP BY i.indexrelid
"""
_STAGED = """
SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind = 'r' AND c.relname LIKE %s
  AND CASE WHEN %s = '' THEN pg_table_is_visible(c.oid) ELSE n.nspname = %s END
"""
_OTHERS = """
SELECT attname FROM pg_attribute
WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped
  AND attname <> ALL (%s)
"""
