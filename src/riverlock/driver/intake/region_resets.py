"""What resets mean for the next epoch of a region: whether it goes back before it.

The rules are in ``coordinator/resets``; here is where what they go by comes from.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from riverlock.connectors.channel.joined_reader import JoinedReader
from riverlock.connectors.channel.reader import ChannelReader
from riverlock.connectors.going_back import order_of, rule_of
from riverlock.coordinator.resets.rules import GoBack, Say
from riverlock.core.errors import SnapshotNotFoundError
from riverlock.snapshot.format.cuts.reset_log import ResetLog
from riverlock.snapshot.verbs.restore_all import give_up_cuts

if TYPE_CHECKING:
    from collections.abc import Mapping

    from riverlock.connectors.base.source_reader import Reader
    from riverlock.snapshot.catalog import Catalog
    from riverlock.snapshot.format.cuts.cut_records import Reset
    from riverlock.snapshot.format.records import Manifest

__all__ = ["RegionResets"]


@dataclass
class RegionResets:
    """The resets that a region knows of.

    Attributes:
        catalog: The region.
        readers: Its sources, by uid.
        own: The number that its next epoch says.
    """

    catalog: Catalog
    readers: Mapping[str, Reader]
    own: int = 0
    _last: Reset | None = None
    _is_known: bool = False
    # What readers were told last.
    _told: int | None = None

    def look(self, parent: Manifest | None) -> bool:
        """Tell whether the region must go back before it plans; tell readers, too.

        Raises:
            InvalidConfigError: It has no place in what it is to go back to.
            SnapshotNotFoundError: The reset that it has taken up is not there.
        """
        self._look_for_new()
        order = order_of(self.catalog, parent, self._last)
        self.own = 0 if parent is None else parent.reset
        if isinstance(order, Say) and self._last is not None:
            # An epoch that bears one says an older number, and none bears it again.
            borne = () if parent is None else parent.borne
            why = f"the flow went back to {self._last.name!r}"
            give_up_cuts(self.catalog, why=why, of=borne)
            self.own = order.reset
        self._tell_readers()
        return isinstance(order, GoBack)

    def _look_for_new(self) -> None:
        log = ResetLog(self.catalog.storage)
        if self._is_known:
            found = log.after(0 if self._last is None else self._last.number)
            self._last = found or self._last
        else:
            self._last, self._is_known = log.last(), True

    def _tell_readers(self) -> None:
        if self.own == self._told:
            return
        taken = rule_of(self._taken())
        for reader in self.readers.values():
            # Resets of another flow have other numbers.
            if isinstance(reader, ChannelReader) and not isinstance(
                reader, JoinedReader
            ):
                reader.go_by(self.own, taken)
        self._told = self.own

    def _taken(self) -> Reset | None:
        if self.own == 0 or (self._last is not None and self._last.number == self.own):
            return self._last if self.own else None
        found = ResetLog(self.catalog.storage).read(self.own)
        if found is None:
            raise SnapshotNotFoundError(
                f"reset {self.own}",
                store=self.catalog.storage.uri,
                available="epochs that say so; put back a backup of the whole store",
            )
        return found
