"""Holds a region back while the reader of one of its channels is too far behind.

Where the reader is, its newest manifest in the store says: one read per plan, since
epochs are asked for by number. What the region has sent, its own manifests say, which
pass by here anyway.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from riverlock.coordinator.bounds import Hold, hold
from riverlock.snapshot.backlog import (
    Sent,
    position_in,
    sent_by,
    sent_since,
    unread,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from riverlock.coordinator.bounds import Bound
    from riverlock.core.clock import Clock
    from riverlock.snapshot.catalog import Catalog
    from riverlock.snapshot.format.records import Manifest

__all__ = ["BoundedChannel", "ChannelBounds"]

# A reader that decides, and deletes, epochs faster than we look is found by a listing.
_LIST_EVERY_US: Final = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundedChannel:
    """A channel that a region fills, who reads it, and how far that may be behind."""

    name: str
    reader: str
    bound: Bound


@dataclass
class ChannelBounds:
    """The bounds of the channels that one region fills.

    Attributes:
        catalog: The region.
        channels: Its channels with a bound; none of them closes a loop.
        clock: What tells how old rows are.
        is_over: Tells whether a region does not run.
    """

    catalog: Catalog
    channels: tuple[BoundedChannel, ...]
    clock: Clock
    is_over: Callable[[str], bool]
    _readers: dict[str, _Reader] = field(default_factory=dict)
    _sent: dict[str, list[Sent]] = field(default_factory=dict)
    # The last of our own epochs that was counted.
    _last: int | None = None

    def look(self, parent: Manifest | None) -> tuple[Hold, ...]:
        """Return what holds the next epoch back."""
        if parent is None or not self.channels:
            return ()
        positions = {c.name: self._position(c) for c in self.channels}
        self._count(parent, positions)
        found = self._holds(positions)
        if found and self._list_again({each.reader for each in found}):
            found = self._holds({c.name: self._position(c) for c in self.channels})
        return found

    def are_over(self, holds: tuple[Hold, ...]) -> bool:
        """Tell whether nobody runs who could end these."""
        return all(self.is_over(each.reader) for each in holds)

    def _holds(self, positions: Mapping[str, int]) -> tuple[Hold, ...]:
        found = []
        for channel in self.channels:
            waits = unread(self._sent[channel.name], positions[channel.name])
            why = hold(channel.bound, waits, self.clock.now_us())
            if why is not None:
                found.append(Hold(channel=channel.name, reader=channel.reader, why=why))
        return tuple(found)

    def _position(self, channel: BoundedChannel) -> int:
        newest = self._reader(channel.reader).look()
        return position_in(newest, self.catalog.region, channel.name)

    def _reader(self, region: str) -> _Reader:
        if region not in self._readers:
            self._readers[region] = _Reader(self.catalog.of(region))
        return self._readers[region]

    def _list_again(self, regions: set[str]) -> bool:
        now_us = self.clock.elapsed_us()
        listed = [self._reader(each).list_again(now_us) for each in regions]
        return any(listed)

    def _count(self, parent: Manifest, positions: Mapping[str, int]) -> None:
        """Count what our epochs have sent; forget what was read."""
        follows = self._last is not None and parent.parent == self._last
        for channel in self.channels:
            name, position = channel.name, positions[channel.name]
            if follows:
                self._sent[name].append(sent_by(parent, name))
            elif parent.epoch != self._last:
                # The first look of a run, or the region went back.
                found = sent_since(self.catalog, parent, name, position)
                self._sent[name] = list(found)
            left = [s for s in self._sent[name] if s.epoch >= position and s.rows]
            self._sent[name] = left
        self._last = parent.epoch


class _Reader:
    """The newest epoch of a region that reads."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._newest = catalog.newest()
        self._listed_us: int | None = None

    def look(self) -> Manifest | None:
        """Return its newest epoch."""
        epoch = 0 if self._newest is None else self._newest.epoch + 1
        while (found := self._catalog.find_manifest(epoch)) is not None:
            self._newest, epoch = found, epoch + 1
        return self._newest

    def list_again(self, now_us: int) -> bool:
        """List its epochs, unless that was done just now; tell whether it was."""
        if self._listed_us is not None and now_us - self._listed_us < _LIST_EVERY_US:
            return False
        self._listed_us = now_us
        self._newest = self._catalog.newest() or self._newest
        return True
