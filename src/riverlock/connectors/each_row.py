"""Sinks that get row after row: at least once, each with an id that never changes.

A receiver that remembers ids, or writes idempotently, has each row exactly once.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from riverlock.connectors.base.direct import delivering
from riverlock.connectors.base.json_rows import plain_rows
from riverlock.connectors.base.staged_rows import numbered_rows
from riverlock.connectors.builtin_stagers import TableStager
from riverlock.core.errors import InvalidConfigError, InvalidFlowError
from riverlock.core.keywords import told_keywords
from riverlock.snapshot.past import Commit, commit_of

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

    from riverlock.connectors.base.committer import Owner
    from riverlock.connectors.base.sink import SinkUse
    from riverlock.connectors.base.stager import StagePoint
    from riverlock.snapshot.format.records import SinkOutput
    from riverlock.storage.base import Storage

__all__ = [
    "DirectRowStager",
    "RowCommitter",
    "RowFunction",
    "for_each_row",
    "row_stager",
]

GUARANTEE = (
    "at least once, with an id per row that is the same at every attempt: exactly once"
    " if the receiver remembers ids"
)


@dataclass(frozen=True, kw_only=True)
class RowFunction:
    """Calls a function for each row; see ``for_each_row``."""

    function: Callable[[dict[str, Any], str], None]
    kind: str = "for_each_row"

    def stager(self, use: SinkUse) -> TableStager:
        """Return the object that stages rows in the store."""
        return replace(row_stager(use, self.kind), is_python=True)

    def direct_stager(self, use: SinkUse) -> DirectRowStager:
        """Return the object that calls the function inside tasks."""
        return DirectRowStager(rows=self.stager(use), send=self.function)

    def committer(self, use: SinkUse, storage: Storage) -> RowCommitter:
        """Return the object that calls the function."""
        del use
        return RowCommitter(storage=storage, send=self.function)


@told_keywords
def for_each_row(function: Callable[[dict[str, Any], str], None]) -> RowFunction:
    """Call ``function(row, id)`` for each row after an epoch is decided, in the driver.

    It is called at least once per row, with the same row and id every time. If it
    raises, the remaining rows of the epoch are tried again after a pause.

    In a region that is `at least once` it is called inside tasks, as soon as they have
    the rows. Then it must be possible to send it there, and ids tell rows apart, but a
    row that comes again has another one.
    """
    if not callable(function):
        raise InvalidConfigError(
            "for_each_row", expected="a function(row, id)", found=repr(function)
        )
    return RowFunction(function=function)


def row_stager(use: SinkUse, kind: str) -> TableStager:
    """Return the stager of a sink that only ever adds rows.

    Raises:
        InvalidFlowError: Mode ``complete`` would have to remove rows.
    """
    if use.replaces:
        raise InvalidFlowError(
            f"mode 'complete' of sink {use.uid!r}",
            expected=f"append or update: {kind} removes no rows",
            found="complete",
            hint="use mode 'update', or rl.sinks.for_each_epoch",
        )
    return TableStager(sink=use.uid)


@dataclass(frozen=True, kw_only=True)
class DirectRowStager:
    """Sends rows from inside a task; ids are those of the attempt."""

    rows: TableStager
    send: Callable[[dict[str, Any], str], None]

    def stage(self, table: pa.Table, at: StagePoint) -> list[Any]:
        """Send all rows.

        Raises:
            SinkError, EpochAbortedError: See ``delivering``.
        """
        self.rows.check(table, at)
        prefix = f"{at.flow}/{self.rows.sink}/{at.epoch}-{at.attempt}"
        with delivering(self.rows.sink, at.epoch):
            for number, row in enumerate(plain_rows(table)):
                self.send(row, f"{prefix}/{number}")
        return []


@dataclass
class RowCommitter:
    """Sends the rows of an epoch, and remembers which ones this run has sent."""

    storage: Storage
    send: Callable[[dict[str, Any], str], None]
    at_once: int = 1
    guarantee: str = GUARANTEE
    _prefix: str = ""
    _sent: set[int] = field(default_factory=set)
    _commit: Commit | None = None

    def open(self, owner: Owner) -> None:
        """Learn what ids begin with."""
        self._prefix = f"{owner.flow}/{owner.sink}"

    def commit(self, epoch: int, output: SinkOutput) -> None:
        """Send what was not sent yet; stops at the first row that fails."""
        wanted = commit_of(epoch, output)
        if wanted != self._commit:
            self._commit, self._sent = wanted, set()
        rows = (
            (number, row)
            for number, row in numbered_rows(self.storage, output)
            if number not in self._sent
        )
        if self.at_once == 1:
            for numbered in rows:
                self._send(numbered)
            return
        with ThreadPoolExecutor(self.at_once) as pool:
            chunk = []
            for numbered in rows:
                chunk.append(numbered)
                if len(chunk) == 100 * self.at_once:
                    list(pool.map(self._send, chunk))
                    chunk = []
            list(pool.map(self._send, chunk))

    def _send(self, numbered: tuple[int, dict[str, Any]]) -> None:
        number, row = numbered
        assert self._commit is not None
        self.send(row, f"{self._prefix}/{_named(self._commit)}/{number}")
        self._sent.add(number)


def _named(commit: Commit) -> str:
    """Return what identifies an epoch, also among those with its number.

    Rows of an epoch that an older version has decided keep the ids that it gave them.
    """
    return f"{commit.epoch}-{commit.digest[:16]}" if commit.run else str(commit.epoch)
