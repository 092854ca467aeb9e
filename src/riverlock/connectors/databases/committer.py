"""The driver's part of a database sink: one transaction per epoch."""

from __future__ import annotations

import logging
import uuid
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from riverlock.connectors.base.committer import check_kept, foreign
from riverlock.connectors.base.staged_rows import staged_table
from riverlock.connectors.databases.dialect import RefusedRowError, Trouble, dialect_of
from riverlock.connectors.databases.epochs_table import EPOCHS, EpochTable, additions
from riverlock.connectors.databases.staging import STAGED, epoch_of, place_of, prefix_of
from riverlock.connectors.databases.table_layout import check_layout
from riverlock.connectors.making import check_can_make
from riverlock.core.errors import (
    CommitRejectedError,
    CommitUnknownError,
    InvalidConfigError,
    InvalidFlowError,
    SinkError,
    SinkUnavailableError,
)
from riverlock.snapshot.past import commit_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from riverlock.connectors.base.committer import Owner
    from riverlock.connectors.databases.address import Address
    from riverlock.connectors.databases.dialect import Dialect, Target
    from riverlock.snapshot.format.records import SinkOutput
    from riverlock.snapshot.past import Commit
    from riverlock.storage.base import Storage

__all__ = ["SqlCommitter"]

log = logging.getLogger(__name__)
# When a commit was cut off, only the table of epochs knows what became of it.
_AFTER = "the next attempt looks into the table of epochs first"


@dataclass(kw_only=True)
class SqlCommitter:
    """Moves the rows of an epoch and its number in one transaction."""

    sink: str
    address: Address
    target: Target
    storage: Storage
    creates: bool
    replaces: bool
    # Whether rows are removed.
    deletes: bool = False
    guarantee: str = (
        "exactly once: one transaction moves the rows of an epoch and writes its number"
    )
    _dialect: Dialect = field(init=False)
    _epochs: EpochTable | None = None
    _prefix: str = ""
    _owner: Owner | None = None
    _newest: int | None = None

    def __post_init__(self) -> None:
        """Find the client; nothing is opened yet."""
        self._dialect = dialect_of(self.address)

    def probe(self) -> None:
        """Check whether the database answers and the table fits; change nothing.

        Raises:
            InvalidFlowError: The table does not fit the stream.
            SinkUnavailableError: The database does not answer.
            InvalidConfigError: It does not let us in.
        """
        if self._is_new():
            check_can_make(self.sink, self.address.database)
            return
        with self._connected(None) as connection:
            self._check(connection, creates=self.creates)
            self._check_rights(connection)

    def to_make(self) -> tuple[str, ...]:
        """Return the SQLite file and the table, if they do not exist."""
        table = f"table {self.target.table} of {self.address}"
        if self._is_new():
            return (f"database {self.address.database}", table)
        with self._connected(None) as connection:
            layout = self._dialect.layout(connection, self.target.table)
            connection.rollback()
        return () if layout is not None else (table,)

    def _is_new(self) -> bool:
        """Tell whether the SQLite file is yet to be created."""
        is_file = self.address.dialect == "sqlite"
        return self.creates and is_file and not Path(self.address.database).exists()

    def open(self, owner: Owner) -> None:
        """Create what is missing, check what is there, fence other runs.

        Raises:
            FencedError: A newer run has opened the sink.
            ForeignEpochError: The table has an epoch that this store has not decided.
            CommitRejectedError: It lacks epochs that it had.
            InvalidFlowError: The table does not fit the stream.
            SinkUnavailableError: The database does not answer.
            InvalidConfigError: It does not let us in, or has forgotten our epochs.
        """
        self._owner = owner
        self._epochs = EpochTable(self._dialect, self.target, owner)
        self._prefix = prefix_of(owner.flow, owner.sink)
        with self._connected(None, creates=self.creates) as connection:
            if self.creates:
                self._create(connection, owner)
            self._check(connection, creates=False)
            self._tell_merging(connection)
            self._check_rights(connection)
            self._epochs.create(connection)
            self._tell_others(connection, self._epochs)
            self._epochs.claim(connection, self._place)

    def _create(self, connection: Any, owner: Owner) -> None:
        dialect, target = self._dialect, self.target
        if dialect.layout(connection, target.table) is not None:
            return
        check_kept(owner, None, place=self._place, name=self._place)
        parts = [
            f"{dialect.column(f.name)}"
            f" {dialect.column_type(f.type, key=f.name in target.key)}"
            + (" NOT NULL" if f.name in target.key else "")
            for f in target.schema.fields
        ]
        if target.key:
            key = ", ".join(map(dialect.column, target.key))
            parts.append(f"PRIMARY KEY ({key})")
        options = dialect.table_options(connection)
        dialect.execute(
            connection,
            f"CREATE TABLE IF NOT EXISTS {dialect.quoted(target.table)}"
            f" ({', '.join(parts)}) {options}",
        )
        connection.commit()

    def _check(self, connection: Any, *, creates: bool) -> None:
        target = self.target
        layout = self._dialect.layout(connection, target.table)
        connection.rollback()
        if layout is not None:
            check_layout(layout, target, self._dialect)
        elif not creates:
            raise InvalidFlowError(
                f"table {target.table} of {self.address}",
                expected="a table",
                found="none",
                hint="create it, or let the sink do so: create=True",
            )

    def _tell_merging(self, connection: Any) -> None:
        """Tell of keys that differ for the stream, but not for the table."""
        layout = self._dialect.layout(connection, self.target.table)
        connection.rollback()
        for name in self.target.key:
            column = None if layout is None else layout.columns.get(name)
            if column is not None and column.merging is not None:
                log.warning(
                    "sink %s: table %s compares key %r by %s: keys that differ only"
                    " in case or in blanks at the end may be one row there, of which"
                    " the last one wins",
                    self.sink,
                    self.target.table,
                    name,
                    column.merging,
                )

    def _tell_others(self, connection: Any, epochs: EpochTable) -> None:
        """Tell of rows of another store: this one may have been begun by mistake."""
        only_adds = not self.target.key and not self.replaces
        if only_adds and epochs.has_rows_of_others(connection):
            log.warning(
                "sink %s: table %s has rows, and this store has written none of them,"
                " but a sink of that uid of another store writes to this database. Two"
                " flows may share a table. If this is the same flow, whose store was"
                " lost or has another path, its rows will be there twice: stop it, and"
                " start it with its own store, or empty the table",
                self.sink,
                self.target.table,
            )

    def _check_rights(self, connection: Any) -> None:
        """Try what commits and tasks will do, and leave nothing of it.

        Raises:
            InvalidConfigError: We lack a right; says what to grant.
        """
        dialect, target = self._dialect, self.target
        self._check_upgrade(connection)
        name = f"{self._prefix or STAGED}0_{uuid.uuid4().hex[:16]}"
        self._try(
            connection,
            lambda: dialect.try_staging(connection, target, name),
            right=f"the right to create tables beside {target.table}, where rows are"
            " staged",
            grant=dialect.right_to_stage(target),
        )
        if dialect.layout(connection, target.table) is None:
            return
        table = dialect.quoted(target.table)
        names = ", ".join(map(dialect.column, target.names))
        first = dialect.column(target.names[0])
        needed = {"INSERT": f"INTO {table} ({names}) SELECT {names} FROM {table}"}
        if target.key:
            needed["UPDATE"] = f"{table} SET {first} = {first}"
        if self.deletes:
            needed["DELETE"] = f"FROM {table}"
        for verb, rest in needed.items():
            sql = f"{verb} {rest} WHERE FALSE"
            self._try(
                connection,
                lambda sql=sql: dialect.execute(connection, sql),  # type: ignore[misc]
                right=f"the right to {verb} in {target.table}",
                grant=f"GRANT SELECT, {', '.join(needed)} ON {table}"
                f" TO {self.address.user}",
            )

    def _check_upgrade(self, connection: Any) -> None:
        """Check whether the table of epochs can get columns that it lacks."""
        dialect, table = self._dialect, self.target.beside(EPOCHS)
        if adding := additions(dialect, connection, table):
            self._try(
                connection,
                lambda: dialect.try_altering(connection, table),
                right=f"the right to add columns to {table}, which an older version"
                " has made",
                grant="; ".join(adding),
            )

    def _try(
        self, connection: Any, action: Callable[[], Any], *, right: str, grant: str
    ) -> None:
        try:
            action()
        except Exception as error:
            if self._dialect.trouble(error) is not Trouble.REFUSED:
                raise
            raise InvalidConfigError(
                f"sink {self.sink!r}",
                expected=f"{right}, at {self.address}",
                found=self._words(error),
                hint="nothing was written; ask someone with that right to run:"
                f" {grant}",
            ) from None
        finally:
            connection.rollback()

    @property
    def _place(self) -> str:
        return place_of(self.address, self.target)

    def commit(self, epoch: int, output: SinkOutput) -> None:
        """Move the rows unless they were moved before, then clear what is staged."""
        if not output.tokens and not output.replaces:
            return
        assert self._epochs is not None, "commit before open"
        wanted = commit_of(epoch, output)
        with self._connected(epoch) as connection:
            committed = self._epochs.lock(connection, epoch)
            self._check_history(epoch, committed)
            staged = set(self._dialect.staged(connection, self.target, self._prefix))
            if committed is None or committed.epoch < epoch:
                self._check_staged(epoch, output, committed, staged)
                self._check_unchanged(connection, epoch)
                self._move(connection, output)
                self._epochs.advance(connection, wanted)
                self._end(connection, epoch)
            else:
                connection.rollback()
                self._check_same(wanted, committed)
            self._newest = epoch
            self._sweep(connection, [s for s in staged if epoch_of(s) <= epoch])

    def _check_same(self, wanted: Commit, committed: Commit) -> None:
        """Check that the epoch of that number is this very one."""
        if not committed.matches(wanted):
            assert self._owner is not None
            raise foreign(self._owner, committed, self._place)

    def _check_history(self, epoch: int, committed: Commit | None) -> None:
        """Refuse a database that was put back: the staging of what it lacks is gone."""
        there = None if committed is None else committed.epoch
        if self._newest is None or (there is not None and there >= self._newest):
            return
        raise CommitRejectedError(
            self.sink,
            epoch=epoch,
            what=f"{self.address} went back from epoch {self._newest} to {there}:"
            " was it restored, or did it lose what it had acknowledged? Restore the"
            " flow to the same epoch, or bring the newer database back",
        )

    def _check_staged(
        self, epoch: int, output: SinkOutput, committed: Commit | None, staged: set[str]
    ) -> None:
        """Refuse what was staged elsewhere, or is gone."""
        meant = {token["target"] for token in output.tokens}
        # A database that has our row may go by another address now.
        ours = self._place if committed is None else f" {self.target.table}"
        is_elsewhere = not all(place.endswith(ours) for place in meant)
        gone = [
            token["table"]
            for token in output.tokens
            if "table" in token and token["table"] not in staged
        ]
        if not is_elsewhere and not gone:
            return
        what = (
            f"its rows were staged for {', '.join(sorted(meant))}"
            if is_elsewhere
            else f"staging table {gone[0]} is gone"
        )
        raise CommitRejectedError(
            self.sink,
            epoch=epoch,
            what=f"{what}; bring that database back and start again, or, if the rows of"
            f" epoch {epoch} are to be abandoned, say flow.abandoned({self.sink!r},"
            f" epoch={epoch})",
        )

    def _check_unchanged(self, connection: Any, epoch: int) -> None:
        """Refuse a table that would by now alter the rows; then nobody changes it."""
        dialect, target = self._dialect, self.target
        # Whoever has read a table keeps it as it is to the end of the transaction.
        held = f"SELECT 1 FROM {dialect.quoted(target.table)} LIMIT 0"
        dialect.execute(connection, held)
        layout = dialect.layout(connection, target.table)
        assert layout is not None
        try:
            check_layout(layout, target, dialect)
        except InvalidFlowError as error:
            raise CommitRejectedError(
                self.sink,
                epoch=epoch,
                what=f"{error.message}; the table has changed since the run began."
                " Nothing was written, the rows stay staged: change it back, then"
                " start again",
            ) from None

    def _move(self, connection: Any, output: SinkOutput) -> None:
        dialect, target = self._dialect, self.target
        if self.replaces:
            dialect.execute(connection, f"DELETE FROM {dialect.quoted(target.table)}")
        tokens = [token for token in output.tokens if not token.get("deletes")]
        # Before rows are added: what a task has written last of a key is in one list.
        for token in output.tokens:
            if token.get("deletes"):
                gone = staged_table(self.storage, token)
                dialect.delete(connection, target, gone)
        for token in tokens:
            if "table" in token:
                dialect.move(connection, token["table"], target)
                continue
            # One file after the other: an epoch need not fit into the driver.
            dialect.insert(connection, target, staged_table(self.storage, token))

    def _end(self, connection: Any, epoch: int) -> None:
        try:
            connection.commit()
        except Exception as error:
            if self._dialect.trouble(error) is Trouble.AWAY:
                raise CommitUnknownError(
                    self.sink, epoch=epoch, what=f"{self._words(error)}; {_AFTER}"
                ) from None
            raise

    def _sweep(self, connection: Any, names: Iterable[str]) -> None:
        """Drop staging tables of this and earlier epochs: they are moved or dead."""
        try:
            self._dialect.drop(connection, self.target, sorted(names))
        except Exception as error:
            if self._dialect.trouble(error) is None:
                raise
            log.warning(
                "sink %s: staging tables are left to the next commit: %s",
                self.sink,
                self._words(error),
            )

    @contextmanager
    def _connected(self, epoch: int | None, *, creates: bool = False) -> Iterator[Any]:
        """Connect for one call; turn the database's errors into ours."""
        try:
            with closing(self._dialect.connect(creates=creates)) as connection:
                yield connection
        except RefusedRowError as error:
            raise self._rejected(epoch, str(error)) from None
        except Exception as error:
            trouble = self._dialect.trouble(error)
            if trouble is None:
                raise
            raise self._translated(epoch, trouble, error) from None

    def _translated(
        self, epoch: int | None, trouble: Trouble, error: Exception
    ) -> Exception:
        words = self._words(error)
        match trouble:
            case Trouble.AWAY if epoch is not None or self._dialect.stages_in_database:
                what = f"{self.address} {trouble.value}: {words}"
                return SinkUnavailableError(self.sink, epoch=epoch, what=what)
            case Trouble.AGAIN:
                return SinkError(self.sink, epoch=epoch, what=words)
            # Also a file that cannot be opened: it has no server that may come back.
            case Trouble.REFUSED | Trouble.AWAY if epoch is None:
                return InvalidConfigError(
                    f"sink {self.sink!r}",
                    expected=f"the right to write to {self.target.table}"
                    f" at {self.address}",
                    found=words,
                )
            case _:
                return self._rejected(epoch, words)

    def _rejected(self, epoch: int | None, words: str) -> CommitRejectedError:
        return CommitRejectedError(
            self.sink,
            epoch=epoch,
            what=f"{self.target.table} refuses the rows: {words}; they stay staged:"
            " change the table or the rows in it that are in the way, then start again",
        )

    def _words(self, error: Exception) -> str:
        detail = getattr(getattr(error, "diag", None), "message_detail", None)
        text = f"{type(error).__name__}: {error}".strip()
        if detail and detail not in text:
            text = f"{text} ({detail})"
        return self.address.masked(" ".join(text.split()))
