"""The sink value for a table in a database."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from riverlock.connectors.databases.committer import SqlCommitter
from riverlock.connectors.databases.dialect import Target, dialect_of
from riverlock.connectors.databases.staging import SqlStager
from riverlock.connectors.databases.table_layout import NESTED
from riverlock.core.errors import InvalidFlowError

if TYPE_CHECKING:
    from riverlock.connectors.base.sink import SinkUse
    from riverlock.connectors.databases.address import Address
    from riverlock.storage.base import Storage

__all__ = ["HOW", "SqlSink"]

HOW = ("append", "upsert", "replace")


@dataclass(frozen=True, kw_only=True)
class SqlSink:
    """A table; see ``rl.sinks.sql``. Prints without secrets."""

    address: Address
    table: str
    how: str
    key: tuple[str, ...] = ()
    create: bool = False
    deletes: str | None = None
    kind: str = "sql"

    @property
    def place(self) -> str:
        """Database and table."""
        return f"{self.address} {self.table}"

    def stager(self, use: SinkUse) -> SqlStager:
        """Return the stager, which loads rows inside tasks.

        Raises:
            InvalidFlowError: The columns, or the mode of the stream, do not fit.
        """
        self._check(use)
        dialect_of(self.address)  # its client must be here
        return SqlStager(
            sink=use.uid,
            address=self.address,
            target=self._target(use),
            deletes=self.deletes,
        )

    def keeps_gone(self, column: str) -> bool:
        """Whether the table has one row per key and no column deletes rows."""
        return self.how == "upsert" and self.deletes != column

    def committer(self, use: SinkUse, storage: Storage) -> SqlCommitter:
        """Return the committer."""
        return SqlCommitter(
            sink=use.uid,
            address=self.address,
            target=self._target(use),
            storage=storage,
            creates=self.create,
            replaces=self.how == "replace",
            deletes=self.how == "replace" or self.deletes is not None,
        )

    def _target(self, use: SinkUse) -> Target:
        names = [n for n in use.schema.names if n != self.deletes]
        return Target(table=self.table, schema=use.schema.select(names), key=self.key)

    def _check(self, use: SinkUse) -> None:
        if use.replaces and self.how != "replace":
            raise InvalidFlowError(
                f"sink {use.uid!r} with how={self.how!r}",
                expected="how='replace', since the stream is written in mode"
                " 'complete': each epoch has the whole table",
                found=repr(self.how),
            )
        names = {f.name: f.type for f in use.schema.fields}
        kind = names.pop(self.deletes, None) if self.deletes else None
        if self.deletes and (kind is None or kind.kind != "boolean"):
            raise InvalidFlowError(
                f"column {self.deletes!r}, which deletes rows of sink {use.uid!r}",
                expected="a boolean column of the stream",
                found="no such column" if kind is None else kind.ddl,
            )
        for column in self.key:
            if column not in names or names[column].kind in NESTED:
                simple = [n for n, t in names.items() if t.kind not in NESTED]
                raise InvalidFlowError(
                    f"key {column!r} of sink {use.uid!r}",
                    expected=f"one of {', '.join(simple)}",
                    found="a nested column" if column in names else repr(column),
                )
