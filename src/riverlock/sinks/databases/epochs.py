"""The table in which a database remembers which epochs it has.

One row per sink of a flow: the newest run that opened it, which fences all older ones,
and the newest epoch whose rows were moved, in the same transaction as the rows. So the
row answers what a lost acknowledgement left open.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from riverlock.core.errors import CommitRejectedError, FencedError
from riverlock.sinks.committer import of_the_origin

if TYPE_CHECKING:
    from riverlock.sinks.committer import Owner
    from riverlock.sinks.databases.dialect import Dialect, Target

__all__ = ["EPOCHS", "EpochTable"]

EPOCHS = "riverlock_epochs"
_COLUMNS = (
    "flow VARCHAR(64) NOT NULL, sink VARCHAR(255) NOT NULL, run BIGINT NOT NULL,"
    " epoch BIGINT, PRIMARY KEY (flow, sink)"
)


class EpochTable:
    """Our row in the table of epochs, beside the target."""

    def __init__(self, dialect: Dialect, target: Target, owner: Owner) -> None:
        """Name the row; nothing is read yet."""
        self._dialect, self._owner = dialect, owner
        self._target = target.table
        self._name = target.beside(EPOCHS)
        self._table = dialect.quoted(self._name)

    def create(self, connection: Any) -> None:
        """Create the table unless it is there, and commit."""
        if self._dialect.layout(connection, self._name) is None:
            options = self._dialect.table_options(connection)
            self._dialect.execute(
                connection,
                f"CREATE TABLE IF NOT EXISTS {self._table} ({_COLUMNS}) {options}",
            )
        connection.commit()

    def claim(self, connection: Any) -> None:
        """Fence older runs, and commit.

        Raises:
            FencedError: A newer run has opened the sink.
            InvalidConfigError: We are a fork, and the table is that of the origin.
        """
        owner, execute = self._owner, self._dialect.execute
        found = self._locked(connection)
        if found is None:
            self._check_fork(connection)
            execute(
                connection,
                f"INSERT INTO {self._table} (flow, sink, run) VALUES (%s, %s, %s)",
                owner.flow,
                owner.sink,
                owner.run,
            )
        elif found[0] < owner.run:
            execute(
                connection,
                f"UPDATE {self._table} SET run = %s WHERE flow = %s AND sink = %s",
                owner.run,
                owner.flow,
                owner.sink,
            )
        connection.commit()

    def _check_fork(self, connection: Any) -> None:
        """Refuse a table with rows of the flow that we were forked from.

        Its row here does not say which table it is of: an empty one is ours.
        """
        owner, dialect = self._owner, self._dialect
        if owner.origin is None:
            return
        theirs = dialect.execute(
            connection,
            f"SELECT epoch FROM {self._table} WHERE flow = %s AND sink = %s",
            owner.origin,
            owner.sink,
        )
        target = dialect.quoted(self._target)
        if theirs and dialect.execute(connection, f"SELECT 1 FROM {target} LIMIT 1"):
            connection.rollback()
            raise of_the_origin(owner.sink, f"table {self._target}")

    def lock(self, connection: Any, epoch: int) -> int | None:
        """Begin a transaction; returns the newest epoch that the database has.

        Raises:
            FencedError: A newer run has opened the sink.
            CommitRejectedError: The row is gone.
        """
        found = self._locked(connection)
        if found is None:
            raise CommitRejectedError(
                self._owner.sink,
                epoch=epoch,
                what=f"its row in {self._name} is gone, so nobody can tell which epochs"
                " the table has; put the row back, or give the sink another uid",
            )
        committed: int | None = found[1]
        return committed

    def _locked(self, connection: Any) -> tuple[int, int | None] | None:
        owner, dialect = self._owner, self._dialect
        locking = dialect.lock(connection)
        rows = dialect.execute(
            connection,
            f"SELECT run, epoch FROM {self._table} WHERE flow = %s AND sink = %s"
            f"{locking}",
            owner.flow,
            owner.sink,
        )
        if not rows:
            return None
        run, epoch = rows[0]
        if run > owner.run:
            raise FencedError(
                store=f"sink {owner.sink!r}", run=owner.run, owner=f"run {run}"
            )
        return run, epoch

    def advance(self, connection: Any, epoch: int) -> None:
        """Write that the database has an epoch; not committed yet."""
        owner = self._owner
        self._dialect.execute(
            connection,
            f"UPDATE {self._table} SET epoch = %s WHERE flow = %s AND sink = %s",
            epoch,
            owner.flow,
            owner.sink,
        )
