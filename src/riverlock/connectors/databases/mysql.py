"""MySQL and MariaDB, with PyMySQL: rows are staged with multi-row inserts."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

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
from riverlock.core.errors import InvalidConfigError

try:
    import pymysql
except ImportError as _error:
    raise InvalidConfigError(
        "a MySQL or MariaDB database",
        expected="PyMySQL",
        found=str(_error),
        hint="pip install 'riverlock[mysql]'",
    ) from _error

if TYPE_CHECKING:
    import pyarrow as pa

    from riverlock.connectors.databases.address import Address
    from riverlock.connectors.databases.dialect import Target
    from riverlock.core.types import Type

__all__ = ["MysqlDialect"]

_QUOTE = "`"
_CONNECT_SECONDS = 10
# Longer than the longest commit, shorter than for ever.
_ANSWER_SECONDS = 900
_ROWS = 1000  # of one insert
_NUMBER = "riverlock_n"
_SETTINGS = (
    # Values that do not fit are refused, never cut; instants are in UTC.
    "SET SESSION sql_mode = 'STRICT_ALL_TABLES,NO_ZERO_DATE,NO_ZERO_IN_DATE,"
    "ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION', time_zone = '+00:00',"
    # As for PostgreSQL: a driver that sleeps must not hold its successor up.
    " wait_timeout = 60, innodb_lock_wait_timeout = 75, lock_wait_timeout = 75"
)
_AWAY = frozenset(
    (1021, 1040, 1041, 1053, 1077, 1078, 1079, 1080, 1114, 1152, 1158, 1159, 1160)
) | frozenset((1161, 1203, 1226, 1290, 1836, 1927, 2002, 2003, 2006, 2013, 2014, 2055))
_AGAIN = frozenset((1205, 1213, 1317, 3024, 3572))
_TYPES = {
    "boolean": "BOOLEAN",
    "byte": "TINYINT",
    "short": "SMALLINT",
    "int": "INT",
    "long": "BIGINT",
    "float": "DOUBLE",  # FLOAT prints six digits
    "double": "DOUBLE",
    "string": "LONGTEXT",
    "binary": "LONGBLOB",
    "date": "DATE",
    "timestamp": "DATETIME(6)",  # in UTC; TIMESTAMP ends in 2038
    "timestamp_ntz": "DATETIME(6)",
}
_KEY_TYPES = {"string": "VARCHAR(255)", "binary": "VARBINARY(255)"}
_TEXT_TYPES = frozenset(
    ("char", "varchar", "tinytext", "text", "mediumtext", "longtext", "json", "enum")
) | frozenset(("uuid", "inet4", "inet6", "set"))
_BYTES_TYPES = frozenset(
    ("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob")
)
_INTEGERS = ("tinyint", "smallint", "mediumint", "int", "bigint")
_HOLDERS = {
    "boolean": frozenset((*_INTEGERS, "bit")),
    "byte": frozenset(_INTEGERS),
    "short": frozenset(_INTEGERS[1:]),
    "int": frozenset(_INTEGERS[3:]),
    "long": frozenset(("bigint",)),
    "float": frozenset(("double",)),
    "double": frozenset(("double",)),
    "decimal": frozenset(("decimal",)),
    "string": _TEXT_TYPES,
    "binary": _BYTES_TYPES,
    "date": frozenset(("date",)),
    "timestamp": frozenset(("datetime", "timestamp")),
    "timestamp_ntz": frozenset(("datetime",)),
}


class MysqlDialect:
    """A MySQL or MariaDB server."""

    stages_in_database = True
    merges_by_any_unique_index = True

    def __init__(self, address: Address) -> None:
        """Nothing is opened yet."""
        self.address = address

    def connect(self, *, creates: bool = False) -> pymysql.connections.Connection[Any]:
        """Connect, with settings that never cut values silently."""
        at = self.address
        known: dict[str, Any] = {
            "host": at.host,
            "port": at.port,
            "user": at.user,
            "password": at.password,
            "database": at.database,
        }
        options: dict[str, Any] = dict(at.options)
        if "unix_socket" in options:
            # The client would load all certificates of the system, for nothing.
            options.setdefault("ssl_disabled", True)
        return pymysql.connect(
            **{k: v for k, v in known.items() if v is not None},
            **options,
            charset="utf8mb4",
            init_command=_SETTINGS,
            connect_timeout=_CONNECT_SECONDS,
            read_timeout=_ANSWER_SECONDS,
            write_timeout=_ANSWER_SECONDS,
        )

    def trouble(self, error: Exception) -> Trouble | None:
        """Decide by the error number of the server or the client."""
        if not isinstance(error, pymysql.err.MySQLError):
            return None
        number = error.args[0] if error.args else None
        if number in _AGAIN:
            return Trouble.AGAIN
        if number in _AWAY or isinstance(error, pymysql.err.InterfaceError):
            return Trouble.AWAY
        return Trouble.REFUSED

    def execute(
        self,
        connection: pymysql.connections.Connection[Any],
        sql: str,
        *values: Any,
    ) -> list[Any]:
        """Run a statement."""
        if values:
            sql = with_marks(sql, _QUOTE, value="%s", percent="%%")
        with closing(connection.cursor()) as cursor:
            cursor.execute(sql, values or None)
            return list(cursor.fetchall())

    def lock(self, connection: pymysql.connections.Connection[Any]) -> str:
        """Rows are locked as they are read."""
        connection.begin()
        return " FOR UPDATE"

    def quoted(self, name: str) -> str:
        """Quote each part of a name."""
        return ".".join(map(self.column, name.split(".")))

    def column(self, name: str) -> str:
        """Quote a name."""
        return name_in(_QUOTE, name)

    def column_type(self, kind: Type, *, key: bool) -> str:
        """Return the type of the same values; keys must be short to have an index."""
        if kind.kind == "decimal":
            return f"DECIMAL({kind.precision},{kind.scale})"
        if key and kind.kind in _KEY_TYPES:
            return _KEY_TYPES[kind.kind]
        return _TYPES.get(kind.kind, "JSON")

    def table_options(self, connection: pymysql.connections.Connection[Any]) -> str:
        """Compare text as it is; by default 'a', 'A' and 'a ' would be one key."""
        is_mariadb = "MariaDB" in connection.get_server_info()
        collation = "utf8mb4_nopad_bin" if is_mariadb else "utf8mb4_0900_bin"
        return f"ENGINE = InnoDB CHARACTER SET utf8mb4 COLLATE {collation}"

    def misfit(self, kind: Type, column: Column) -> str | None:
        """Refuse types that would round, cut, or move instants."""
        wanted = self.column_type(kind, key=False)
        name = "string" if kind.kind in NESTED else kind.kind
        if column.type not in _HOLDERS[name]:
            return wanted
        if name.startswith("timestamp"):
            return wanted if column.precision != 6 else None
        if name != "decimal":
            return None
        precision, scale = column.precision or 0, column.scale or 0
        is_narrow = (
            scale < kind.scale or precision - scale < kind.precision - kind.scale
        )
        return wanted if is_narrow else None

    def layout(
        self, connection: pymysql.connections.Connection[Any], table: str
    ) -> Layout | None:
        """Look the table up in the catalogue."""
        schema, _, name = table.rpartition(".")
        found = self.execute(connection, _COLUMNS, schema or None, name)
        if not found:
            return None
        columns = {
            column: Column(
                type=kind.lower(),
                precision=digits if digits is not None else after,
                scale=scale,
                is_required=bool(is_required),
                merging=None if _tells_apart(collation) else collation,
            )
            for column, kind, digits, scale, after, collation, is_required in found
        }
        indexes: dict[str, set[str | None]] = {}
        for index, column in self.execute(connection, _UNIQUE, schema or None, name):
            indexes.setdefault(index, set()).add(column)
        unique = tuple(
            frozenset(n for n in names if n is not None)
            for names in indexes.values()
            if None not in names
        )
        engines = self.execute(connection, _ENGINE, schema or None, name)
        return Layout(
            columns=columns,
            unique=unique,
            untransacted=next((e for e, has in engines if has == "NO"), None),
        )

    def staged(
        self,
        connection: pymysql.connections.Connection[Any],
        target: Target,
        prefix: str,
    ) -> list[str]:
        """List staging tables in the schema of the target."""
        schema = target.table.rpartition(".")[0]
        pattern = prefix.replace("_", r"\_") + "%"
        found = self.execute(connection, _STAGED, schema or None, pattern)
        return [name for (name,) in found]

    def stage(
        self,
        connection: pymysql.connections.Connection[Any],
        name: str,
        target: Target,
        rows: pa.Table,
    ) -> None:
        """Create the table, then fill it in one transaction.

        A crash between leaves an empty table that nobody votes for, to be swept.
        """
        self._load(connection, target.beside(name), target, rows, temporary=False)
        connection.commit()

    def _load(
        self,
        connection: pymysql.connections.Connection[Any],
        name: str,
        target: Target,
        rows: pa.Table,
        *,
        temporary: bool,
    ) -> None:
        refuse_numbers(rows, target.schema, ("nan", "inf"))
        what = "TEMPORARY TABLE" if temporary else "TABLE"
        names = ", ".join(map(self.column, target.names))
        table = self.quoted(name)
        self.execute(
            connection,
            f"CREATE {what} {table} ({_NUMBER} BIGINT NOT NULL DEFAULT 0 PRIMARY KEY)"
            f" ENGINE = InnoDB"
            f" SELECT {names} FROM {self.quoted(target.table)} WHERE FALSE",
        )
        marks = ", ".join("%s" for _ in target.names)
        sql = with_marks(
            f"INSERT INTO {table} ({_NUMBER}, {names}) VALUES (%s, {marks})",
            _QUOTE,
            value="%s",
            percent="%%",
        )
        values = [
            (number, *row)
            for number, row in enumerate(rows_of(rows, target.schema, {}))
        ]
        with closing(connection.cursor()) as cursor:
            for begin in range(0, len(values), _ROWS):
                self._load_part(cursor, sql, values[begin : begin + _ROWS], rows)

    def _load_part(
        self, cursor: Any, sql: str, values: list[Any], rows: pa.Table
    ) -> None:
        try:
            cursor.executemany(sql, values)
        except pymysql.err.MySQLError as error:
            if self.trouble(error) is not Trouble.REFUSED:
                raise
            self._find_refused(cursor, sql, values, rows)
            raise

    @staticmethod
    def _find_refused(cursor: Any, sql: str, values: list[Any], rows: pa.Table) -> None:
        """Try row by row; the transaction is abandoned anyway."""
        cursor.connection.rollback()
        for row in values:
            try:
                cursor.execute(sql, row)
            except pymysql.err.MySQLError as error:
                message = f"{error.args[-1]}: {described(rows, row[0])}"
                raise RefusedRowError(message) from error

    def move(
        self,
        connection: pymysql.connections.Connection[Any],
        name: str,
        target: Target,
    ) -> None:
        """Insert or replace the rows of a staging table, in their order."""
        self._move(connection, self.quoted(target.beside(name)), target)

    def _move(
        self,
        connection: pymysql.connections.Connection[Any],
        staged: str,
        target: Target,
    ) -> None:
        names = ", ".join(map(self.column, target.names))
        sql = (
            f"INSERT INTO {self.quoted(target.table)} ({names})"
            f" SELECT {names} FROM {staged} ORDER BY {_NUMBER}"
        )
        if target.key:
            rest = [n for n in target.names if n not in target.key] or target.key[:1]
            changed = ", ".join(
                f"{self.column(n)} = VALUES({self.column(n)})" for n in rest
            )
            sql += f" ON DUPLICATE KEY UPDATE {changed}"
        self.execute(connection, sql)

    def insert(
        self,
        connection: pymysql.connections.Connection[Any],
        target: Target,
        rows: pa.Table,
    ) -> None:
        """Go through a temporary table, which does not end the transaction."""
        name = "riverlock_rows"
        dropped = f"DROP TEMPORARY TABLE IF EXISTS {name}"
        self.execute(connection, dropped)
        self._load(connection, name, target, rows, temporary=True)
        self._move(connection, name, target)
        self.execute(connection, dropped)

    def delete(
        self,
        connection: pymysql.connections.Connection[Any],
        target: Target,
        keys: pa.Table,
    ) -> None:
        """Delete a few hundred rows with one statement."""
        marks = {self.column(f.name): "%s" for f in target.keys.fields}
        values = rows_of(keys, target.keys, {})
        for sql, found in deletions(self.quoted(target.table), marks, values):
            self.execute(connection, sql, *found)

    def try_staging(
        self,
        connection: pymysql.connections.Connection[Any],
        target: Target,
        name: str,
    ) -> None:
        """Create one and drop it; if that fails, the next commit does."""
        table = self.quoted(target.beside(name))
        self.execute(connection, f"CREATE TABLE {table} (n INT)")
        self.execute(connection, f"DROP TABLE {table}")

    def try_altering(
        self, connection: pymysql.connections.Connection[Any], table: str
    ) -> None:
        """Drop a column that does not exist: rights are checked first."""
        dropping = f"ALTER TABLE {self.quoted(table)} DROP COLUMN riverlock_try"
        try:
            self.execute(connection, dropping)
        except pymysql.err.MySQLError as error:
            if error.args[0] != pymysql.constants.ER.CANT_DROP_FIELD_OR_KEY:
                raise

    def right_to_stage(self, target: Target) -> str:
        """Tables belong to databases."""
        schema = target.table.rpartition(".")[0] or self.address.database
        return (
            f"GRANT CREATE, DROP, SELECT, INSERT ON {self.quoted(schema)}.*"
            f" TO {self.address.user}"
        )

    def drop(
        self,
        connection: pymysql.connections.Connection[Any],
        target: Target,
        names: list[str],
    ) -> None:
        """Drop tables; those that somebody reads wait for another time."""
        self.execute(connection, "SET SESSION lock_wait_timeout = 1")
        for name in names:
            table = self.quoted(target.beside(name))
            self.execute(connection, f"DROP TABLE IF EXISTS {table}")


def _tells_apart(collation: str | None) -> bool:
    """Tell whether texts that differ are never one; 'a' and 'a ' are for most."""
    return collation is None or collation.endswith(("_nopad_bin", "_0900_bin"))


_COLUMNS = """
SELECT column_name, data_type, numeric_precision, numeric_scale, datetime_precision,
  collation_name, is_nullable = 'NO' AND column_default IS NULL
  AND extra NOT LIKE '%%auto_increment%%' AND extra NOT LIKE '%%GENERATED%%'
FROM information_schema.columns
WHERE table_schema = COALESCE(%s, DATABASE()) AND table_name = %s
ORDER BY ordinal_position
"""
_UNIQUE = """
SELECT index_name, CASE WHEN sub_part IS NULL THEN column_name END
FROM information_schema.statistics
WHERE table_schema = COALESCE(%s, DATABASE()) AND table_name = %s
  AND non_unique = 0
"""
_ENGINE = """
SELECT t.engine, e.transactions
FROM information_schema.tables t
JOIN information_schema.engines e ON e.engine = t.engine
WHERE t.table_schema = COALESCE(%s, DATABASE()) AND t.table_name = %s
"""
_STAGED = """
SELECT table_name FROM information_schema.tables
WHERE table_schema = COALESCE(%s, DATABASE()) AND table_name LIKE %s
"""
