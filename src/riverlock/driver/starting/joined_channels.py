"""Telling the stores of other flows that we read their channels (format §7.2)."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from riverlock.connectors.channel.joined_reader import JoinedReader
from riverlock.core.errors import SnapshotNotFoundError, SourceError
from riverlock.snapshot.joint.channel_readers import pass_on, register
from riverlock.snapshot.joint.joint_records import ReaderRecord

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from riverlock.connectors.base.source_reader import Reader
    from riverlock.core.clock import Clock
    from riverlock.snapshot.catalog import Catalog
    from riverlock.snapshot.format.records import Flow

__all__ = ["JoinedChannels", "registered"]

# A writer may delete what we begin with; each time it has an older epoch less.
_ATTEMPTS = 10


@dataclass(frozen=True, kw_only=True)
class JoinedChannels:
    """The channels of other flows that a region reads.

    Attributes:
        catalog: The region.
        flow: The flow that reads.
        readers: What reads its sources, by uid.
        clock: The time, for people.
    """

    catalog: Catalog
    flow: Flow
    readers: Mapping[str, Reader]
    clock: Clock

    @property
    def _joined(self) -> Iterator[tuple[str, JoinedReader]]:
        for uid, reader in self.readers.items():
            if isinstance(reader, JoinedReader):
                yield uid, reader

    def register(self) -> None:
        """Have the writers keep what we need, before anything is read.

        Raises:
            SourceError: A writer deletes faster than we can begin.
        """
        for uid, reader in self._joined:
            for _ in range(_ATTEMPTS):
                is_new = not any(True for _ in self._starts(uid, reader))
                record = self._record(uid, reader)
                if register(reader.writer_region, record, is_new=is_new):
                    break
                reader.begin_later()
            else:
                raise SourceError(
                    uid, what=f"the oldest epochs of channel {reader.channel!r} go away"
                )

    def pass_on(self) -> None:
        """Let the writers delete what no epoch that we keep would read again."""
        for uid, reader in self._joined:
            pass_on(reader.writer_region.storage, self._record(uid, reader))

    def _record(self, uid: str, reader: JoinedReader) -> ReaderRecord:
        return ReaderRecord(
            flow=self.flow.id,
            name=self.flow.name,
            store=self.catalog.storage.uri,
            region=self.catalog.region,
            uid=uid,
            writer=reader.writer,
            channel=reader.channel,
            first=min(self._starts(uid, reader), default=self._begin(reader)),
            seen_us=self.clock.now_us(),
        )

    def _starts(self, uid: str, reader: JoinedReader) -> Iterator[int]:
        """Yield where each epoch that is kept began to read."""
        for epoch in self.catalog.epochs():
            with suppress(SnapshotNotFoundError):
                span = self.catalog.manifest(epoch).inputs.get(uid)
                if span is not None and span.start.get("flow") == reader.flow:
                    yield span.start["epoch"]

    def _begin(self, reader: JoinedReader) -> int:
        begin: int = reader.position(reader.initial())
        return begin


def registered(
    catalog: Catalog, flow: Flow, readers: Mapping[str, Reader], clock: Clock
) -> Callable[[], None]:
    """Register what reads channels of other flows, before anything is read.

    Returns what is to be called when older epochs were deleted.

    Raises:
        SourceError: A writer deletes faster than we can begin.
    """
    joined = JoinedChannels(catalog=catalog, flow=flow, readers=readers, clock=clock)
    joined.register()
    return joined.pass_on
