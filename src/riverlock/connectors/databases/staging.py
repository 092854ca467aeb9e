"""The tasks' part of a database sink: load rows where no reader looks."""

from __future__ import annotations

import hashlib
import logging
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from riverlock.connectors.builtin_stagers import TableStager
from riverlock.connectors.databases.dialect import (
    RefusedRowError,
    Trouble,
    dialect_of,
)
from riverlock.connectors.databases.row_values import described, last_of_each_key
from riverlock.connectors.databases.table_layout import NESTED, misfits
from riverlock.core.errors import SinkError
from riverlock.core.values.arrow_values import first_far

if TYPE_CHECKING:
    import pyarrow as pa

    from riverlock.connectors.base.stager import StagePoint
    from riverlock.connectors.databases.address import Address
    from riverlock.connectors.databases.dialect import Dialect, Target

__all__ = ["STAGED", "SqlStager", "epoch_of", "place_of", "prefix_of"]

log = logging.getLogger(__name__)
STAGED = "riverlock_stage_"


def prefix_of(flow: str, sink: str) -> str:
    """Return what the names of a sink's staging tables begin with.

    Names are short: PostgreSQL allows 63 bytes.
    """
    digest = hashlib.blake2b(f"{flow}\n{sink}".encode(), digest_size=8).hexdigest()
    return f"{STAGED}{digest}_"


def epoch_of(name: str) -> int:
    """Return the epoch of a staging table."""
    return int(name.split("_")[-2])


def place_of(address: Address, target: Target) -> str:
    """Name database and table, for manifests and messages; as the sink's place."""
    return f"{address} {target.table}"


@dataclass(frozen=True, kw_only=True)
class SqlStager:
    """Loads the rows of a task into a staging table, or else into the store.

    While the database is away, rows are staged in the store like those of SQLite: the
    epoch is decided all the same, and its commit waits.
    """

    sink: str
    address: Address
    target: Target
    # The column that says which rows are deleted.
    deletes: str | None = None

    def stage(self, table: pa.Table, at: StagePoint) -> list[Any]:
        """Make the rows durable; return a token, and one for what to delete.

        Raises:
            SinkError: The database refuses a row; nothing of the epoch is committed.
        """
        target = self.target
        rows = table.select(list(target.names)).cast(target.schema.to_arrow())
        self._check_times(rows, at)
        if target.key:
            self._check_key(rows, at)
        if self.deletes is not None:
            return self._stage_changes(
                rows.append_column(self.deletes, table[self.deletes]), at
            )
        return self._stage(rows, at)

    def _stage_changes(self, rows: pa.Table, at: StagePoint) -> list[Any]:
        """Stage deletions separately; only the last change of a key counts."""
        import pyarrow.compute as pc

        assert self.deletes is not None
        last = last_of_each_key(rows, self.target.key)
        is_gone = pc.fill_null(last[self.deletes], fill_value=False)
        kept = last.filter(pc.invert(is_gone)).drop_columns([self.deletes])
        gone = last.filter(is_gone).select(list(self.target.key))
        tokens = self._stage(kept, at) if kept.num_rows else []
        if gone.num_rows:
            beside = replace(at, attempt=f"deletes-{at.attempt}")
            tokens += self._in_store(gone, beside, deletes=True)
        return tokens

    def _in_store(self, rows: pa.Table, at: StagePoint, **more: Any) -> list[Any]:
        place = place_of(self.address, self.target)
        tokens = TableStager(sink=self.sink).stage(rows, at)
        return [{**token, "target": place, **more} for token in tokens]

    def _stage(self, rows: pa.Table, at: StagePoint) -> list[Any]:
        target = self.target
        if target.key:
            rows = last_of_each_key(rows, target.key)
        place = place_of(self.address, target)
        dialect = dialect_of(self.address)
        try:
            name = self._load(dialect, rows, at)
        except RefusedRowError as error:
            raise self._refused(str(error), at) from None
        if name is not None:
            return [{"table": name, "rows": rows.num_rows, "target": place}]
        return self._in_store(rows, at)

    def _load(self, dialect: Dialect, rows: pa.Table, at: StagePoint) -> str | None:
        """Load the rows; None if they belong in the store."""
        attempt = hashlib.blake2b(at.attempt.encode(), digest_size=8).hexdigest()
        name = f"{prefix_of(at.flow, self.sink)}{at.epoch}_{attempt}"
        if not dialect.stages_in_database:
            dialect.stage(None, name, self.target, rows)
            return None
        try:
            with closing(dialect.connect()) as connection:
                dialect.stage(connection, name, self.target, rows)
                self._check_types(dialect, connection, name)
        except RefusedRowError:
            raise
        except Exception as error:
            text = self.address.masked(f"{type(error).__name__}: {error}".strip())
            match dialect.trouble(error):
                case None:
                    raise
                case Trouble.REFUSED:
                    raise self._refused(text, at) from None
                case _:
                    log.warning(
                        "sink %s, epoch %s: staged in the store, since %s %s: %s",
                        self.sink,
                        at.epoch,
                        self.address,
                        Trouble.AWAY.value,
                        text,
                    )
                    return None
        return name

    def _check_types(self, dialect: Dialect, connection: Any, name: str) -> None:
        """Staging tables have the types of the target, which may have changed.

        Raises:
            RefusedRowError: They have altered values.
        """
        layout = dialect.layout(connection, self.target.beside(name))
        assert layout is not None
        wrong = misfits(layout, self.target.schema, dialect)
        if wrong:
            message = f"the table has changed since the run began: {'; '.join(wrong)}"
            raise RefusedRowError(message)

    def _check_key(self, rows: pa.Table, at: StagePoint) -> None:
        """Refuse null keys: no database takes two nulls for the same key."""
        for name in self.target.key:
            if rows[name].null_count:
                place = rows[name].is_null().index(value=True).as_py()
                what = f"key {name!r} is null: {described(rows, place)}"
                raise self._refused(what, at)

    def _check_times(self, rows: pa.Table, at: StagePoint) -> None:
        """Refuse times that Python's datetimes, which clients use, cannot represent."""
        plain = [f.name for f in self.target.schema.fields if f.type.kind not in NESTED]
        far = first_far(rows, plain)
        if far is not None:
            what = f"column {far.column!r} is outside the years 1 to 9999"
            raise self._refused(f"{what}: {described(rows, far.place)}", at)

    def _refused(self, what: str, at: StagePoint) -> SinkError:
        return SinkError(
            self.sink,
            epoch=at.epoch,
            what=f"{self.target.table} refuses a row: {what}; nothing of this epoch was"
            " committed; alter the table, or keep such rows out of the stream",
        )
