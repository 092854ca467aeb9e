"""What a region has decided, as somebody else follows it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from riverlock.snapshot.catalog import Catalog
    from riverlock.snapshot.format.records import Manifest

__all__ = ["DecidedEpochs"]

# How many looks there are to one that lists what may have been skipped.
_LIST_EVERY = 10


@dataclass
class DecidedEpochs:
    """The epochs of a region, each once and in order."""

    catalog: Catalog
    _next: int | None = None
    _looks: int = 0

    def new(self) -> Iterator[Manifest]:
        """Yield what was decided since; at first, all that is retained."""
        self._looks += 1
        while True:
            if self._next is not None:
                found = self.catalog.find_manifest(self._next)
                if found is not None:
                    yield found
                    self._next += 1
                    continue
                # As a rule it is not decided yet. A listing costs more than to ask.
                if self._looks % _LIST_EVERY and not self._is_passed(self._next):
                    return
            # Or it was deleted, or its number is closed.
            later = [e for e in self.catalog.epochs() if e >= (self._next or 0)]
            if not later:
                return
            self._next = later[0]

    def _is_passed(self, epoch: int) -> bool:
        path = self.catalog.paths.manifest(epoch + 1)
        return self.catalog.storage.exists(path)
