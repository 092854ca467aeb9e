"""What an `at most once` region leaves out: after a failure it goes on with the newest.

Each source is left out up to what was its newest row when the failure was seen; not
further, however long it takes until an epoch says so. A cut that holds a source holds
this as well: no epoch reads past a marker, and none leaves out rows beyond it.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from riverlock.connectors.base.source_reader import Reader
    from riverlock.snapshot.format.records import InputRange

__all__ = ["LeftOut", "Skipping", "tell_left_out"]

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Rows of a source that an epoch leaves out before it reads."""

    until: Any
    rows: int | None


@dataclass
class Skipping:
    """What is still to be left out.

    Attributes:
        is_due: Whether there was a failure that no plan has known of.
    """

    is_due: bool = False
    _until: dict[str, Any] = field(default_factory=dict)
    _reached: set[str] = field(default_factory=set)

    def left_out(
        self,
        readers: Mapping[str, Reader],
        starts: Mapping[str, Any],
        latest: Mapping[str, Any],
        limit: Callable[[str, Any], Any],
    ) -> dict[str, LeftOut]:
        """Return what an epoch leaves out of each source; the same until ``taken``.

        Args:
            readers: The sources.
            starts: Where the epoch before ended.
            latest: The ends of the sources.
            limit: Returns how far cuts let the region go in a source, at most to an
                offset.
        """
        if self.is_due:
            self._until, self.is_due = dict(latest), False
        self._reached = set()
        found = {}
        for uid, until in self._until.items():
            end = limit(uid, until)
            if end == until:
                self._reached.add(uid)
            rows = readers[uid].rows_between(starts[uid], end)
            if end != starts[uid] and rows != 0:
                found[uid] = LeftOut(end, rows)
        return found

    def taken(self) -> None:
        """Note that an epoch leaves out what was returned last.

        If it fails, there was another failure, and all is due again.
        """
        for uid in self._reached:
            del self._until[uid]
        self._reached = set()


def tell_left_out(inputs: Mapping[str, InputRange]) -> None:
    """Say what an epoch leaves out."""
    for uid, read in inputs.items():
        if read.skipped != 0:
            many = "an unknown number of" if read.skipped is None else read.skipped
            log.warning(
                "source %s: %s rows are left out: after a failure, an at most once"
                " region goes on with the newest input",
                uid,
                many,
            )
