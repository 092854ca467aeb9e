"""The two ends of a channel, as a flow describes them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from riverlock.connectors.channel.committer import ChannelCommitter
from riverlock.connectors.channel.stager import ChannelStager
from riverlock.core.errors import InvalidFlowError
from riverlock.core.suggestions import did_you_mean
from riverlock.snapshot.format.records import CHANNEL, PUBLISHED
from riverlock.state.keys import has_keys

if TYPE_CHECKING:
    from riverlock.connectors.base.sink import SinkUse
    from riverlock.coordinator.bounds import Bound
    from riverlock.core.types import Schema
    from riverlock.storage.base import Storage

__all__ = [
    "ChannelSink",
    "ChannelSource",
    "JoinedChannel",
    "LoopSource",
    "check_feeds",
    "key_columns",
]


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


@dataclass(kw_only=True, eq=False)
class LoopSource:
    """The end of a loop that a region reads: used before it is known who fills it.

    Attributes:
        name: The loop.
        schema: Its columns.
        writer: The region that fills it; empty until the loop is closed.
        has_time: Times of its rows are columns, which ``event_time`` declares.
    """

    name: str
    schema: Schema
    writer: str = ""
    has_time: bool = False
    kind: str = CHANNEL

    @property
    def place(self) -> str:
        """Which loop it is."""
        return f"{self.name} of region {self.writer}"


@dataclass(frozen=True, kw_only=True, eq=False)
class JoinedChannel:
    """The end that another flow reads: ``rl.sources.channel``.

    Attributes:
        store: The store of the flow that publishes it.
        name: The channel.
        timed: Whether its rows have event times, which are taken over.
    """

    store: str
    name: str
    timed: bool = True
    kind: str = CHANNEL
    # Its columns are in the store, which need not be there yet.
    schema: Schema | None = None

    @property
    def place(self) -> str:
        """Which channel it is."""
        return f"{self.name} of store {self.store}"


@dataclass(frozen=True, kw_only=True, eq=False)
class ChannelSink:
    """The end that a region fills.

    Attributes:
        name: The channel.
        reader: The region that reads it; None: it is published, for other flows.
        columns: The columns that a loop was declared with; None: it is none.
        bound: How far that region may be behind before the writer waits.
        keys: By which columns that region is keyed at once; empty: by none.
        key_groups: How many key groups the flow has.
    """

    name: str
    reader: str | None
    columns: Schema | None = None
    bound: Bound | None = None
    keys: tuple[str, ...] = ()
    key_groups: int = 1
    kind: str = CHANNEL

    @property
    def is_back(self) -> bool:
        """Whether it closes a loop."""
        return self.columns is not None

    @property
    def place(self) -> str:
        """Who reads it: retention keeps what that region has not read."""
        return PUBLISHED if self.reader is None else f"region {self.reader}"

    def stager(self, use: SinkUse) -> ChannelStager:
        """Return what stages rows inside tasks.

        Raises:
            InvalidFlowError: The loop was declared with other columns.
        """
        if self.columns is not None:
            check_feeds(self.name, self.columns, use.schema)
        return ChannelStager(
            channel=self.name,
            keys=key_columns(use.schema, self.keys),
            key_groups=self.key_groups,
        )

    def committer(self, use: SinkUse, storage: Storage) -> ChannelCommitter:
        """Return what commits epochs."""
        return ChannelCommitter()


def key_columns(columns: Schema, keys: tuple[str, ...]) -> Schema | None:
    """Return the columns by which rows of a channel can be told apart, if they can.

    What is wrong with them is told where the reader is planned.
    """
    if not keys or any(key not in columns.names for key in keys):
        return None
    found = columns.select(keys)
    return found if has_keys(found) else None


def check_feeds(loop: str, declared: Schema, given: Schema) -> None:
    """Refuse rows that a loop was not declared for; the order of columns is free.

    Raises:
        InvalidFlowError: Names or types differ.
    """
    if {*declared.fields} == {*given.fields}:
        return
    missing = [name for name in declared.names if name not in given.names]
    extra = [name for name in given.names if name not in declared.names]
    near = ((name, did_you_mean(name, missing)) for name in extra)
    hints = [f"column {name!r}: {meant}" for name, meant in near if meant]
    raise InvalidFlowError(
        f"what feeds loop {loop!r}",
        expected=f"the columns of flow.loop(): {declared.ddl}",
        found=given.ddl,
        hint=", ".join(hints) or "change one of them, or select and cast before feed()",
    )
