"""What happens beside the loop, remembered until an epoch takes it up."""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from riverlock.coordinator import events as ev
from riverlock.coordinator.epoch import Compaction

if TYPE_CHECKING:
    from collections.abc import Container

    from riverlock.snapshot.format.records import Change

__all__ = ["Beside"]


class Beside:
    """Merged files, the wanted parallelism, and requests to change parameters."""

    def __init__(self, parallelism: int) -> None:
        """Begin with the parallelism of the plan."""
        self.parallelism = parallelism
        self.compactions: tuple[Compaction, ...] = ()
        # Requests that no epoch has taken up yet, in order.
        self._asked: tuple[ev.Asked, ...] = ()

    def take(self, event: ev.Compacted | ev.RescaleRequested | ev.Asked) -> None:
        """Remember it: an epoch that begins, or is sealed, takes it up."""
        match event:
            case ev.Compacted():
                self._compacted(event)
            case ev.RescaleRequested():
                self.parallelism = event.parallelism
            case ev.Asked():
                if not self._asked or event.number > self._asked[-1].number:
                    self._asked = (*self._asked, event)
            case _:
                assert_never(event)

    def _compacted(self, event: ev.Compacted) -> None:
        """Remember it; whether its files are still live is seen when sealing."""
        compaction = Compaction(
            operator=event.operator, replaced=event.replaced, by=event.by
        )
        if compaction not in self.compactions:
            self.compactions = (*self.compactions, compaction)

    def requests_after(self, before: int) -> tuple[int, list[Change]]:
        """Return the last request, and the changes after one; forget earlier ones."""
        self._asked = tuple(a for a in self._asked if a.number > before)
        last = self._asked[-1].number if self._asked else before
        return last, [a.change for a in self._asked if a.change is not None]

    def settle(self, taken: Container[Compaction]) -> None:
        """Forget merged files that a manifest has taken up."""
        self.compactions = tuple(c for c in self.compactions if c not in taken)
