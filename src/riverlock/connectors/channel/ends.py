"""The two ends of a channel, as a flow describes them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from riverlock.connectors.channel.committer import ChannelCommitter
from riverlock.connectors.channel.stager import ChannelStager
from riverlock.snapshot.format.records import CHANNEL

if TYPE_CHECKING:
    from riverlock.connectors.base.sink import SinkUse
    from riverlock.core.types import Schema
    from riverlock.storage.base import Storage

__all__ = ["ChannelSink", "ChannelSource"]


@dataclass(frozen=True, kw_only=True, eq=False)
class ChannelSource:
    """The end that a region reads.

    Attributes:
        name: The channel.
        writer: The region that fills it.
        has_time: Whether its rows have event times.
        schema: The columns, if they are known before the writer is analysed.
    """

    name: str
    writer: str
    has_time: bool = False
    schema: Schema | None = None
    kind: str = CHANNEL

    @property
    def place(self) -> str:
        """Which channel it is."""
        return f"{self.name} of region {self.writer}"


@dataclass(frozen=True, kw_only=True, eq=False)
class ChannelSink:
    """The end that a region fills.

    Attributes:
        name: The channel.
        reader: The region that reads it.
    """

    name: str
    reader: str
    kind: str = CHANNEL

    @property
    def place(self) -> str:
        """Who reads it: retention keeps what that region has not read."""
        return f"region {self.reader}"

    def stager(self, use: SinkUse) -> ChannelStager:
        """Return what stages rows inside tasks."""
        return ChannelStager(channel=self.name)

    def committer(self, use: SinkUse, storage: Storage) -> ChannelCommitter:
        """Return what commits epochs."""
        return ChannelCommitter()
