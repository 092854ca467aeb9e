"""Queries a database: statements, their values, and what its errors mean for us."""

from __future__ import annotations

import threading
from contextlib import closing
from typing import TYPE_CHECKING, Any, Final, TypeVar

from riverlock.connectors.databases.dialect import Trouble, dialect_of
from riverlock.core.errors import SourceError, SourceUnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from riverlock.connectors.databases.address import Address
    from riverlock.connectors.databases.dialect import Dialect
    from riverlock.core.errors import RiverlockError

__all__ = ["VALUE", "Database"]

T = TypeVar("T")
# Stands for a value in a statement; a query of the user's may have "%s" or "?".
VALUE: Final = "\0"
_FETCHED_ROWS: Final = 10_000
# A task reads as fast as its rows are taken: the server must not lose patience.
_PATIENCE: Final = {
    "postgresql": "SET idle_in_transaction_session_timeout = 0",
    "mysql": "SET SESSION net_write_timeout = 3600, wait_timeout = 3600",
}


class Database:
    """One connection to a database, opened when it is needed; threads take turns.

    Every method raises ``SourceUnavailableError`` if the database does not answer, in
    which case the run waits, and ``SourceError`` for errors that would only recur.
    """

    def __init__(self, address: Address, uid: str) -> None:
        """Nothing is opened yet.

        Raises:
            InvalidConfigError: The database's client is not installed.
        """
        self.address, self._uid = address, uid
        self.dialect: Dialect = dialect_of(address)
        self._connection: Any = None
        # What the next epoch needs is asked for ahead, by another thread.
        self._turn = threading.RLock()

    def ask(self, text: str, *values: Any) -> list[Any]:
        """Run a statement in a transaction of its own; return its rows."""
        return self.use(lambda line: self._answers(line, text, values))

    def names(self, text: str) -> list[str]:
        """Return the columns that a statement returns."""

        def described(line: Any) -> list[str]:
            with closing(line.cursor()) as cursor:
                self._execute(cursor, text, ())
                return [str(column[0]) for column in cursor.description]

        return self.use(described)

    def use(self, action: Callable[[Any], T]) -> T:
        """Do something with a connection, in a transaction of its own."""
        with self._turn:
            is_kept = self._connection is not None
            try:
                return self._once(action)
            except Exception as error:
                self.close()
                match self.dialect.trouble(error):
                    case None:
                        raise
                    case Trouble.AWAY if is_kept:
                        pass  # it was cut while nobody asked
                    case trouble:
                        raise self._failed(error, trouble) from None
            return self.use(action)

    def _once(self, action: Callable[[Any], T]) -> T:
        if self.address.dialect == "sqlite":
            # Its connections cost little, and must stay in their thread.
            with closing(self.dialect.connect()) as line:
                return action(line)
        if self._connection is None:
            self._connection = self.dialect.connect()
        found = action(self._connection)
        # The next question must see what has been written since.
        self._connection.rollback()
        return found

    def _answers(self, line: Any, text: str, values: tuple[Any, ...]) -> list[Any]:
        with closing(line.cursor()) as cursor:
            self._execute(cursor, text, values)
            return list(cursor.fetchall())

    def _execute(self, cursor: Any, text: str, values: tuple[Any, ...]) -> None:
        if self.address.dialect == "sqlite":
            cursor.execute(text.replace(VALUE, "?"), values)
        elif values:
            escaped = text.replace("%", "%%").replace(VALUE, "%s")
            cursor.execute(escaped, tuple(map(self._bound, values)))
        else:
            cursor.execute(text)

    def _bound(self, value: Any) -> Any:
        """MySQL has no zones: its client would drop them, whichever they are."""
        is_time = self.address.dialect == "mysql" and hasattr(value, "tzinfo")
        return value.replace(tzinfo=None) if is_time else value

    def stream(self, text: str, *values: Any) -> Iterator[list[Any]]:
        """Yield the rows of a statement, some at a time, on their own connection."""
        try:
            with closing(self.dialect.connect()) as line:
                if self.address.dialect in _PATIENCE:
                    self.dialect.execute(line, _PATIENCE[self.address.dialect])
                with closing(self._streaming(line)) as cursor:
                    self._execute(cursor, text, values)
                    while rows := cursor.fetchmany(_FETCHED_ROWS):
                        yield rows
                # Else the transaction stays open until the server finds nobody there.
                line.rollback()
        except Exception as error:
            trouble = self.dialect.trouble(error)
            if trouble is None:
                raise
            raise self._failed(error, trouble) from None

    def _streaming(self, line: Any) -> Any:
        """Return a cursor that does not read all rows into memory."""
        match self.address.dialect:
            case "postgresql":
                return line.cursor("riverlock", binary=True)
            case "mysql":
                from pymysql.cursors import SSCursor

                return line.cursor(SSCursor)
            case _:
                return line.cursor()

    def _failed(self, error: Exception, trouble: Trouble) -> RiverlockError:
        text = self.address.masked(f"{type(error).__name__}: {error}".strip())
        if trouble is Trouble.REFUSED:
            return SourceError(self._uid, what=f"{self.address} refuses: {text}")
        return SourceUnavailableError(
            self._uid, what=f"{self.address} does not answer: {text}"
        )

    def close(self) -> None:
        """Disconnect."""
        with self._turn:
            line, self._connection = self._connection, None
            if line is None:
                return
            try:
                line.close()
            except Exception as error:
                # It may be broken, and is no longer needed either way.
                if self.dialect.trouble(error) is None:
                    raise
