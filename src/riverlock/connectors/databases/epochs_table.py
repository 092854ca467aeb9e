"""The table in which a database remembers which epochs it has.

One row per sink of a flow: the newest run that opened it, which fences all others, and
the newest epoch whose rows were moved, in the same transaction as the rows. So the row
settles what a lost acknowledgement left open.

Numbers repeat if a store is put back from a backup. ``opened`` (``<run> <token>``) and
``decided`` (``<epoch> <token of the run> <digest>``) say whose they are; each begins
with the number it belongs to, since an older version leaves them as they were.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from riverlock.connectors.base.committer import (
    check_kept,
    check_past,
    fenced,
    of_the_origin,
)
from riverlock.core.errors import CommitRejectedError, InvalidConfigError
from riverlock.snapshot.past import Claim, Commit

if TYPE_CHECKING:
    from riverlock.connectors.base.committer import Owner
    from riverlock.connectors.databases.dialect import Dialect, Target

__all__ = ["EPOCHS", "EpochTable", "additions"]

EPOCHS = "riverlock_epochs"
_COLUMNS = (
    "flow VARCHAR(64) NOT NULL, sink VARCHAR(255) NOT NULL, run BIGINT NOT NULL,"
    " epoch BIGINT, opened VARCHAR(160), decided VARCHAR(160), PRIMARY KEY (flow, sink)"
)


def additions(dialect: Dialect, connection: Any, table: str) -> list[str]:
    """Return the SQL that adds the columns that a table of an older version lacks."""
    layout = dialect.layout(connection, table)
    return [
        f"ALTER TABLE {dialect.quoted(table)} ADD COLUMN {column} VARCHAR(160)"
        for column in ("opened", "decided")
        if layout is not None and column not in layout.columns
    ]


class _Row(NamedTuple):
    """What the table has of our sink."""

    claim: Claim
    commit: Commit | None


class EpochTable:
    """Our row in the table of epochs, beside the target."""

    def __init__(self, dialect: Dialect, target: Target, owner: Owner) -> None:
        """Name the row; nothing is read yet."""
        self._dialect, self._owner = dialect, owner
        self._target = target.table
        self._name = target.beside(EPOCHS)
        self._table = dialect.quoted(self._name)

    def create(self, connection: Any) -> None:
        """Create the table, or the columns that older versions lack, and commit."""
        layout = self._dialect.layout(connection, self._name)
        if layout is None:
            options = self._dialect.table_options(connection)
            self._dialect.execute(
                connection,
                f"CREATE TABLE IF NOT EXISTS {self._table} ({_COLUMNS}) {options}",
            )
        for adding in additions(self._dialect, connection, self._name):
            self._dialect.execute(connection, adding)
        connection.commit()

    def claim(self, connection: Any, place: str) -> None:
        """Fence other runs, and commit.

        Args:
            connection: To the database.
            place: Database and table, as the manifests of the store have it.

        Raises:
            FencedError: A newer run of this store has opened the sink.
            ForeignEpochError: The database has an epoch that it has not decided.
            CommitRejectedError: The database lacks epochs that it had.
            InvalidConfigError: We are a fork, and the table is that of the origin; or
                our row is gone.
        """
        owner, execute = self._owner, self._dialect.execute
        found = self._locked(connection)
        if found is None:
            self._check_new(connection, place)
            self._check_fork(connection)
            execute(
                connection,
                f"INSERT INTO {self._table} (flow, sink, run, opened)"
                " VALUES (%s, %s, %s, %s)",
                owner.flow,
                owner.sink,
                owner.run,
                self._opened,
            )
        else:
            try:
                check_past(owner, found.claim, found.commit, place)
                check_kept(owner, found.commit, place=place, name=place)
            except Exception:
                connection.rollback()
                raise
            execute(
                connection,
                f"UPDATE {self._table} SET run = %s, opened = %s"
                " WHERE flow = %s AND sink = %s",
                owner.run,
                self._opened,
                owner.flow,
                owner.sink,
            )
        connection.commit()

    @property
    def _opened(self) -> str:
        return f"{self._owner.run} {self._owner.token}"

    def _check_new(self, connection: Any, place: str) -> None:
        """Refuse to continue without the row that an earlier run has made.

        A run makes it before it decides anything for this table.
        """
        owner = self._owner
        output, newest = owner.past.output(owner.sink), owner.past.newest
        meant = set() if output is None else {output.place}
        meant |= {t.get("target") for t in (() if output is None else output.tokens)}
        if place not in meant:
            return
        connection.rollback()
        raise InvalidConfigError(
            f"table {self._name} of sink {owner.sink!r}",
            expected=f"the row of flow {owner.flow}, which was there",
            found="none: without it nobody can tell which epochs the table has, and one"
            " could be written twice",
            hint="nothing was written; put the row back from a backup, or, if"
            f" {self._target} has the rows of epoch {newest}: INSERT INTO {self._name}"
            f" (flow, sink, run, epoch) VALUES ('{owner.flow}', '{owner.sink}', 0,"
            f" {newest}); if it lacks them, with {-1 if newest is None else newest - 1}"
            " as epoch",
        )

    def _check_fork(self, connection: Any) -> None:
        """Refuse a table with rows of the flow that we were forked from.

        Its row here does not say which table it is for: an empty table is ours.
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

    def has_rows_of_others(self, connection: Any) -> bool:
        """Tell whether the target has rows, and only other stores' sinks of our uid.

        Their rows here do not say which table they are for.
        """
        owner, execute = self._owner, self._dialect.execute
        known = execute(
            connection,
            f"SELECT flow FROM {self._table} WHERE sink = %s AND epoch IS NOT NULL",
            owner.sink,
        )
        flows = {flow for (flow,) in known}
        target = self._dialect.quoted(self._target)
        is_new = bool(flows) and owner.flow not in flows
        found = is_new and execute(connection, f"SELECT 1 FROM {target} LIMIT 1")
        connection.rollback()
        return bool(found)

    def lock(self, connection: Any, epoch: int) -> Commit | None:
        """Begin a transaction; return the newest epoch that the database has.

        Raises:
            FencedError: Another run has opened the sink since.
            CommitRejectedError: The row is gone.
        """
        found = self._locked(connection)
        if found is None:
            raise CommitRejectedError(
                self._owner.sink,
                epoch=epoch,
                what=f"its row in {self._name} is gone, so nobody can tell which epochs"
                " the table has; put the row back; the next start says how",
            )
        if not found.claim.matches(self._owner.claim):
            raise fenced(self._owner, found.claim)
        return found.commit

    def _locked(self, connection: Any) -> _Row | None:
        owner, dialect = self._owner, self._dialect
        locking = dialect.lock(connection)
        rows = dialect.execute(
            connection,
            f"SELECT run, epoch, opened, decided FROM {self._table}"
            f" WHERE flow = %s AND sink = %s{locking}",
            owner.flow,
            owner.sink,
        )
        if not rows:
            return None
        run, epoch, opened, decided = rows[0]
        (token,) = _told(opened, run, 1)
        commit = None
        if epoch is not None:
            by, digest = _told(decided, epoch, 2)
            commit = Commit(epoch=epoch, run=by, digest=digest)
        return _Row(Claim(run=run, token=token), commit)

    def advance(self, connection: Any, commit: Commit) -> None:
        """Record that the database has an epoch; not committed yet."""
        owner = self._owner
        self._dialect.execute(
            connection,
            f"UPDATE {self._table} SET epoch = %s, decided = %s"
            " WHERE flow = %s AND sink = %s",
            commit.epoch,
            f"{commit.epoch} {commit.run} {commit.digest}",
            owner.flow,
            owner.sink,
        )


def _told(text: str | None, number: int, count: int) -> list[str]:
    """Return what a text says about a number; nothing if it is about another one."""
    parts = (text or "").split(" ")
    is_told = len(parts) == count + 1 and parts[0] == str(number)
    return parts[1:] if is_told else [""] * count
