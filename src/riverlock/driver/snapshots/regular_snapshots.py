"""Takes snapshots every so often while a flow runs, and drops the oldest of them.

Of several regions it asks for a cut and does not wait for it: the flow must be able to
stop meanwhile.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from riverlock.coordinator.cuts.regular import is_due, is_regular, next_name, too_many
from riverlock.core.errors import RiverlockError, SnapshotNotFoundError
from riverlock.snapshot.format.cut_log import CutLog
from riverlock.snapshot.verbs.cut import TIMEOUT_US

if TYPE_CHECKING:
    from riverlock.core.clock import Clock
    from riverlock.snapshot.catalog import Catalog
    from riverlock.snapshot.format.records import CutProposal, Named

__all__ = ["RegularSnapshots"]

log = logging.getLogger(__name__)
_POLL_SECONDS = 0.1
_NOTE = "taken by itself"


@dataclass
class RegularSnapshots:
    """Looks at the clock, in a thread of its own.

    Attributes:
        catalog: The store; of a flow with one region, that region.
        clock: What says that one is due.
        every_us: How much time is between two of them.
        keep: How many of them are kept.
        protocol: How several regions agree; None: there is one only.
    """

    catalog: Catalog
    clock: Clock
    every_us: int
    keep: int
    protocol: str | None
    _last_us: int = 0
    _asked: CutProposal | None = None
    _over: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        """Take them until it is stopped; the first is due an interval after the last.

        Raises:
            RiverlockError: The store does not answer.
        """
        taken = [named.created_us for named in self._regular()]
        self._last_us = max(taken, default=self.clock.now_us())
        self._thread = threading.Thread(
            target=self._work, name="riverlock-snapshots", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """Give up one that is being taken, then end."""
        self._over.set()
        if self._thread is not None:
            self._thread.join()
        cuts = CutLog(self.catalog.storage)
        if self._asked is not None and not cuts.is_settled(self._asked):
            cuts.give_up(self._asked.number, "the flow was stopped")

    def _work(self) -> None:
        while not self._over.wait(_POLL_SECONDS):
            try:
                self.look()
            except RiverlockError as error:
                log.warning("could not take a regular snapshot: %s", error)

    def look(self) -> None:
        """Ask for the next one if it is due, and drop the oldest.

        Raises:
            RiverlockError: The store does not answer.
        """
        if self._asked is not None:
            if not CutLog(self.catalog.storage).is_settled(self._asked):
                return
            self._asked = None
            self._drop()
        now_us = self.clock.now_us()
        if is_due(last_us=self._last_us, now_us=now_us, every_us=self.every_us):
            self._last_us = now_us
            self._take(next_name(n.name for n in self.catalog.snapshots()), now_us)

    def _take(self, name: str, now_us: int) -> None:
        if self.protocol is not None:
            self._asked = CutLog(self.catalog.storage).propose(
                name,
                protocol=self.protocol,
                asked_us=now_us,
                timeout_us=TIMEOUT_US,
                note=_NOTE,
            )
            return
        newest = self.catalog.newest()
        known = [named.regions[self.catalog.region] for named in self._regular()]
        if newest is not None and newest.epoch not in known:
            self.catalog.pin(name, epoch=newest.epoch, now_us=now_us, note=_NOTE)
            self._drop()

    def _drop(self) -> None:
        names = [named.name for named in self._regular()]
        for name in too_many(names, keep=self.keep):
            try:
                self.catalog.unpin(name)
            except SnapshotNotFoundError:
                log.debug("%s is gone already", name)

    def _regular(self) -> list[Named]:
        return [n for n in self.catalog.snapshots() if is_regular(n.name)]
