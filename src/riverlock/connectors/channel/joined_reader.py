"""Reads a channel of another flow, whose store says all that must be known."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from riverlock.connectors.channel.ends import ChannelSource
from riverlock.connectors.channel.reader import ChannelReader
from riverlock.connectors.channel.written import Written
from riverlock.core.errors import (
    SnapshotNotFoundError,
    SourceError,
    SourceUnavailableError,
)
from riverlock.core.types import schema_of
from riverlock.snapshot.catalog import Catalog
from riverlock.snapshot.format.channels import published
from riverlock.snapshot.format.cut_log import CutLog

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Self

    from riverlock.connectors.channel.ends import JoinedChannel
    from riverlock.core.types import Schema
    from riverlock.snapshot.format.records import ChannelColumns

__all__ = ["JoinedReader", "end_of"]


def end_of(joined: JoinedChannel) -> ChannelSource:
    """Return the end that a reader begins with: its region is found later."""
    return ChannelSource(name=joined.name, writer="", has_time=joined.timed)


class JoinedReader(ChannelReader):
    """Follows a region of another flow; made by ``JoinedReader(...).join(...)``.

    Nothing tells here when the other flow is over: with ``available_now`` what is there
    at first is all there is.
    """

    _takes_all = False
    # The id of the writer's flow, once its store is there.
    _flow: str | None = None
    _until: Any = None
    _first: int | None = None

    def join(self, *, takes_all: bool) -> Self:
        """Say how much is to be read; return itself."""
        self._takes_all = takes_all
        # Cuts of the writer's flow that are in sight, and their common ids.
        self._cuts: dict[int, str] = {}
        return self

    @property
    def flow(self) -> str:
        """The id of the writer's flow."""
        self._locate()
        assert self._flow is not None
        return self._flow

    @property
    def key(self) -> str:
        """What tells it from other channels that a region reads."""
        return f"{self.flow}/{self._uid}"

    @property
    def writer_region(self) -> Catalog:
        """The region that fills the channel."""
        self._locate()
        return self._written.catalog

    @property
    def schema(self) -> Schema:
        """The columns that users see, as the store has them."""
        self._locate()
        return super().schema

    def _locate(self) -> None:
        """Find who fills the channel.

        Raises:
            SourceUnavailableError: Nobody does yet.
            SourceError: Its rows have no event times.
        """
        if self._flow is not None:
            return
        catalog = Catalog(self._storage)
        try:
            flow = catalog.flow()
        except SnapshotNotFoundError:
            raise self._not_there("there is no store") from None
        region, columns = self._found(catalog)
        if self._source.has_time and not columns.has_time:
            raise SourceError(
                self._uid,
                what=f"rows of channel {self.channel!r} have no event times",
                hint="write rl.sources.channel(..., timed=False)",
            )
        self._source = replace(self._source, writer=region)
        self._written = Written(catalog.of(region), self.channel, self._uid)
        self._schema = schema_of(columns.ddl)
        self._flow = flow.id

    def _found(self, catalog: Catalog) -> tuple[str, ChannelColumns]:
        known: list[str] = []
        for region in catalog.regions():
            newest = catalog.of(region).newest()
            for name in () if newest is None else published(newest):
                known.append(name)
                columns = newest.outputs[name].columns if newest else None
                if name == self.channel and columns is not None:
                    return region, columns
        listed = ", ".join(known) or "none"
        raise self._not_there(f"no epoch there publishes it (channels: {listed})")

    def _not_there(self, why: str) -> SourceUnavailableError:
        return SourceUnavailableError(
            self._uid,
            what=f"channel {self.channel!r} of {self._storage.uri} is not there yet:"
            f" {why}",
        )

    def initial(self) -> Any:
        """Begin with the oldest epoch that the writer keeps."""
        self._locate()
        if self._first is None:
            self._first = min(self._written.catalog.epochs(), default=0)
        return self._at(self._first)

    def begin_later(self) -> None:
        """Look again for the oldest epoch: the one that was found is gone."""
        self._first = None

    def latest(self, start: Any) -> Any:
        """Return the position after the last epoch that says anything new."""
        found = super().latest(start)
        if not self._takes_all:
            return found
        if self._until is None:
            self._until = found
        is_past = self.position(start) > self.position(self._until)
        return start if is_past else self._until

    def joint_markers(self, joint: Mapping[str, int]) -> dict[int, int]:
        """Return the epoch of the writer that bears the marker of each cut in sight.

        Args:
            joint: The numbers that cuts over both flows have here, by their ids.
        """
        found = {}
        for number, epoch in self.markers.items():
            if number not in self._cuts:
                self._cuts[number] = CutLog(self._storage).joint_id(number)
            cut = self._cuts[number]
            if cut in joint:
                found[joint[cut]] = epoch
        return found

    def _at(self, epoch: int) -> dict[str, Any]:
        return {**super()._at(epoch), "flow": self.flow}

    def position(self, offset: Any) -> int:
        """Return the first epoch of the writer that is not read at an offset.

        Raises:
            SourceError: The offset belongs to another channel, or another store.
        """
        if offset.get("flow") != self.flow:
            raise SourceError(
                self._uid,
                what=f"it was read up to an epoch of flow {offset.get('flow')}, and"
                f" {self._storage.uri} is the store of flow {self.flow} now",
                hint="nothing was changed; put the store back, or give the source"
                " another uid to read the new one from its beginning",
            )
        return super().position(offset)
