"""Whether other regions of a flow run, here or in another process."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from riverlock.snapshot.owner import life_of
from riverlock.snapshot.starts import starts

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from riverlock.core.clock import Clock
    from riverlock.snapshot.catalog import Catalog

__all__ = ["RegionLives"]

# The store is asked at most so often: hearts beat once a second.
_ASK_EVERY_US: Final = 1_000_000


@dataclass
class RegionLives:
    """What is known of the regions of a flow.

    Attributes:
        catalog: The store.
        here: Tells of the regions that run in this process whether they are over.
        clock: How long ago the store was asked.
    """

    catalog: Catalog
    here: Mapping[str, Callable[[], bool]]
    clock: Clock
    _told: dict[str, tuple[int, bool]] = field(default_factory=dict)

    def is_over(self, region: str) -> bool:
        """Tell whether nobody runs a region, nor is about to.

        In this process it is over when its run has ended, however often it is begun
        again until then. In another one, when no process says that it lives.
        """
        if region in self.here:
            return self.here[region]()
        now_us = self.clock.elapsed_us()
        asked_us, found = self._told.get(region, (None, True))
        if asked_us is None or now_us - asked_us >= _ASK_EVERY_US:
            found = self._is_over(self.catalog.of(region))
            self._told[region] = now_us, found
        return found

    def _is_over(self, catalog: Catalog) -> bool:
        # In this order: a start is withdrawn once its run has been claimed.
        if starts(catalog, now_us=self.clock.now_us()):
            return False
        run = catalog.newest_run()
        return run is None or not life_of(catalog, run).is_alive
