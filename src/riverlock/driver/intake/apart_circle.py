"""A region's part in a circle whose other regions run in processes of their own.

The rules are in ``coordinator/apart``; here the store is asked what the others say, and
told what this region says.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from riverlock.coordinator.apart import Apart
from riverlock.snapshot.stands import read_stand, write_stand

if TYPE_CHECKING:
    from riverlock.coordinator.circle import Place, Rest
    from riverlock.coordinator.cuts.topology import Topology
    from riverlock.core.clock import Clock
    from riverlock.snapshot.catalog import Catalog
    from riverlock.snapshot.stands import Stand

__all__ = ["ApartCircle"]

log = logging.getLogger(__name__)
# The store is asked at most so often: a word that is heard late is no harm.
_ASK_EVERY_US: Final = 200_000
# When it is told that another region does not run.
_PATIENCE_US: Final = 30_000_000


@dataclass
class ApartCircle:
    """The circle as the threads of this process see it; see ``turning.Shared``.

    Attributes:
        topology: The regions, and the channels between them.
        catalog: The region that runs here.
        clock: How long ago the store was asked.
    """

    topology: Topology
    catalog: Catalog
    clock: Clock
    is_apart = True
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _apart: Apart | None = None
    _told: Stand | None = None
    _asked_us: int | None = None
    # Since when nobody else has come; None: all are there, or it was told.
    _alone_us: int | None = None

    def begin(self, token: str, *, continues: bool) -> None:
        """Take part, from now on; nothing is said before.

        Args:
            token: Of the run.
            continues: Whether the run before died: then the others wait for this one.
        """
        before = read_stand(self.catalog) if continues else None
        stint = token if before is None else before.stint
        with self._lock:
            self._apart = Apart(self.topology, self.catalog.region, stint)
            self._alone_us = self.clock.elapsed_us()
            self._tell()

    @property
    def has_ended(self) -> bool:
        """Whether all that enters the circle has ended, and all loops are empty."""
        with self._lock:
            return self._begun.has_ended

    def is_final(self) -> bool:
        """Whether all its regions may stop."""
        with self._lock:
            self._hear()
            return self._begun.is_final

    def works(
        self, region: str, place: Place, *, is_fresh: bool, moves_rows: bool
    ) -> int:
        """Take it that the region plans an epoch; return how often rows went round."""
        with self._lock:
            self._hear()
            self._begun.works(place, is_fresh=is_fresh, moves_rows=moves_rows)
            self._tell()
            return self._begun.rounds

    def rests(self, region: str, place: Place, rest: Rest) -> None:
        """Take it that the region has nothing to do."""
        with self._lock:
            self._begun.rests(place, rest)
            self._tell()
            self._hear()

    @property
    def _begun(self) -> Apart:
        assert self._apart is not None, "begin() comes first"
        return self._apart

    def _hear(self) -> None:
        now_us = self.clock.elapsed_us()
        if self._asked_us is not None and now_us - self._asked_us < _ASK_EVERY_US:
            return
        self._asked_us = now_us
        others = [r for r in self.topology.regions if r != self.catalog.region]
        found = {each: read_stand(self.catalog.of(each)) for each in others}
        self._begun.hear({r: stand for r, stand in found.items() if stand is not None})
        self._tell()
        self._tell_awaited(now_us)

    def _tell(self) -> None:
        said = self._begun.said
        if said != self._told:
            write_stand(self.catalog, said)
            self._told = said

    def _tell_awaited(self, now_us: int) -> None:
        """Say once which regions are missing."""
        awaited = self._begun.awaited
        if not awaited or self._alone_us is None:
            self._alone_us = None
        elif now_us - self._alone_us > _PATIENCE_US:
            self._alone_us = None
            log.warning(
                "region %r is in a loop with %s, of which nothing was heard since it"
                " began: it does not end before they have run, too",
                self.catalog.region,
                " and ".join(map(repr, awaited)),
            )
