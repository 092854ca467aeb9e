"""Numbers of epochs that stay taken when their manifests are gone (format §6.3).

Putting a manifest if absent decides an epoch and fences. A run that slept before its
put would win it if others had decided the number, and deleted it, meanwhile. So whoever
deletes a manifest that such a run may still want leaves something in its place.

Which ones are these? A run looks for a newer one before each put, and continues from
the newest epoch that it found after its claim. So it may sleep over one number only:
that of the first epoch of the run after it, or, if an older run decides one epoch more,
the number before that. Where all earlier runs have ended, nobody sleeps.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from riverlock.core.errors import SnapshotError
from riverlock.snapshot.format.records import Closed
from riverlock.snapshot.format.sealed import seal

if TYPE_CHECKING:
    from riverlock.snapshot.catalog import Catalog
    from riverlock.snapshot.format.records import Manifest
    from riverlock.storage.base import Entry

__all__ = ["CLOSED", "Contested", "is_alone", "without_closed"]

CLOSED = seal(Closed(closed=True))


def without_closed(found: list[tuple[int, Entry]]) -> list[tuple[int, Entry]]:
    """Return those of the files in ``epochs/`` that are manifests.

    Size decides, since there may be many: a manifest is larger. One that was cut to
    this very size must not be overlooked if it is the newest: no number is closed
    before a greater one is decided.
    """
    last = next((n for n, e in reversed(found) if e.size != len(CLOSED)), -1)
    return [(n, e) for n, e in found if e.size != len(CLOSED) or n > last]


@dataclass
class Contested:
    """Tells which numbers a run that sleeps may still want.

    Attributes:
        catalog: The store.
    """

    catalog: Catalog
    _read: dict[int, Manifest] = field(default_factory=dict)
    _alone: dict[int, bool] = field(default_factory=dict)

    def has(self, epoch: int) -> bool:
        """Tell whether a run may still want this number; if in doubt, it may."""
        made, after = self._manifest(epoch), self._manifest(epoch + 1)
        if made is None or after is None:
            return True
        # A run that rewrites state notes its token one epoch early (§4.3).
        first = made.history[-1][0] if made.history else 0
        if epoch - first <= 1 and not self._is_alone(made.run):
            return True
        return made.run != after.run and not self._is_alone(after.run)

    def _manifest(self, epoch: int) -> Manifest | None:
        if epoch not in self._read:
            with suppress(SnapshotError):
                self._read[epoch] = self.catalog.stored(epoch)
        return self._read.get(epoch)

    def _is_alone(self, number: int) -> bool:
        if number not in self._alone:
            self._alone[number] = is_alone(self.catalog, number)
        return self._alone[number]


def is_alone(catalog: Catalog, number: int) -> bool:
    """Tell whether no run before this one can decide an epoch any more."""
    with suppress(SnapshotError):
        run = catalog.run(number)
        return run is not None and run.is_alone
    return False
