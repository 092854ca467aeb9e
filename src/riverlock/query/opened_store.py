"""``rl.open(store)``: a store to read from; nothing in it is changed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from riverlock.core.errors import InvalidConfigError
from riverlock.core.ids import MAIN_REGION
from riverlock.core.times import from_micros
from riverlock.query.changes import ChangeRows
from riverlock.query.channel_rows import channel_names, open_channel
from riverlock.query.export import export
from riverlock.query.snapshot import Snapshot
from riverlock.query.sql import run_sql, sql_views
from riverlock.snapshot.address import open_store as open_catalog

if TYPE_CHECKING:
    import os
    from datetime import datetime

    import pyarrow as pa

    from riverlock.query.channel_rows import ChannelRows
    from riverlock.query.export import Exported, Format
    from riverlock.query.relation import Relation
    from riverlock.snapshot.catalog import Catalog

__all__ = ["NamedEpoch", "Store", "open_store"]


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedEpoch:
    """A named snapshot.

    Attributes:
        name: Its name.
        epoch: The epoch that the name keeps.
        created: When it was named.
        note: The remark that was stored with it.
    """

    name: str
    epoch: int
    created: datetime
    note: str


@dataclass(frozen=True, slots=True)
class Store:
    """The retained epochs of a flow, for reading; the flow may run meanwhile."""

    catalog: Catalog

    @property
    def uri(self) -> str:
        """Where the store is."""
        return self.catalog.storage.uri

    @property
    def flow(self) -> str:
        """The name of the flow."""
        return self.catalog.flow().name

    def epochs(self) -> list[int]:
        """Return the retained epochs, oldest first."""
        return self.catalog.epochs()

    def snapshots(self) -> list[NamedEpoch]:
        """Return the named snapshots, sorted by name."""
        return [
            NamedEpoch(
                name=named.name,
                epoch=named.regions.get(MAIN_REGION, min(named.regions.values())),
                created=from_micros(named.created_us),
                note=named.note,
            )
            for named in self.catalog.snapshots()
        ]

    def at(self, at: str | int | None = None) -> Snapshot:
        """Return a retained epoch.

        Args:
            at: A number, a name, or None for the newest.

        Raises:
            SnapshotNotFoundError: There is no such epoch or name.
        """
        first, *others = self.catalog.resolve_all(at)
        return Snapshot(self.catalog.storage, first, tuple(others))

    def state(
        self, operator: str, name: str | None = None, *, at: str | int | None = None
    ) -> Relation:
        """Return the state of an operator at a retained epoch: ``at(at).state(...)``.

        Raises:
            SnapshotNotFoundError: There is no such epoch, operator or state.
        """
        return self.at(at).state(operator, name)

    def timers(self, operator: str, *, at: str | int | None = None) -> Relation:
        """Return the pending timers of an operator: ``at(at).timers(...)``.

        Raises:
            SnapshotNotFoundError: There is no such epoch or operator.
        """
        return self.at(at).timers(operator)

    def changes(
        self,
        operator: str,
        name: str | None = None,
        *,
        since: str | int,
        until: str | int | None = None,
    ) -> ChangeRows:
        """Return what changed in the state of an operator: rows per epoch.

        Where epochs between are no longer retained, their changes are combined in those
        of the next that is.

        Args:
            operator: Its uid.
            name: A state variable, or ``timers``; without it, whole keys.
            since: The epoch before the first change, or a name.
            until: The last epoch, or a name; by default the newest.

        Raises:
            SnapshotNotFoundError: There is no such epoch, operator or state.
            InvalidConfigError: ``until`` is before ``since``.
        """
        first, last = self.at(since), self.at(until)
        if first.epoch > last.epoch:
            raise InvalidConfigError(
                "the span of changes",
                expected="an end that is not before the start",
                found=f"since epoch {first.epoch}, until epoch {last.epoch}",
            )
        between = [n for n in self.epochs() if first.epoch < n < last.epoch]
        manifests = (
            first.manifest,
            *(self.catalog.manifest(n) for n in between),
            *([last.manifest] if last.epoch > first.epoch else []),
        )
        return ChangeRows(last.state(operator, name), manifests)

    def export(
        self,
        directory: str | os.PathLike[str],
        *,
        at: str | int | None = None,
        kind: Format = "parquet",
    ) -> list[Exported]:
        """Write a snapshot as tables, plain Parquet or ``delta``: see ``export``.

        Raises:
            SnapshotNotFoundError: There is no such epoch or name.
            InvalidConfigError: A directory exists, or deltalake is not installed.
            SnapshotCorruptedError: A file is missing or altered.
        """
        return export(self.at(at), directory, kind)

    def channels(self) -> list[str]:
        """Return the names of the channels."""
        return channel_names(self.catalog.storage)

    def channel(self, name: str) -> ChannelRows:
        """Return the rows of a channel, each with the number of its segment.

        Raises:
            SnapshotNotFoundError: There is no such channel.
        """
        return open_channel(self.catalog.storage, name)

    def sql(self, query: str, *, at: str | int | None = None) -> pa.Table:
        """Return the result of a query over the views of a snapshot; needs DuckDB.

        ``riverlock sql STORE`` lists the views.

        Raises:
            SnapshotNotFoundError: There is no such epoch or name.
            InvalidConfigError: DuckDB is not installed, or refuses the query.
            SnapshotCorruptedError: A file is missing or altered.
        """
        return run_sql(sql_views(self.catalog, self.at(at)), query)


def open_store(store: str | os.PathLike[str]) -> Store:
    """Open a store for reading: a directory or an object store's URL.

    Raises:
        SnapshotNotFoundError: There is none.
        InvalidConfigError: The address also names an epoch.
        UnsupportedFormatError: A newer version wrote it.
    """
    return Store(open_catalog(store))
