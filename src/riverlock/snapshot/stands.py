"""How the regions of a circle stand, where they run in processes of their own.

Each says it in a file of its own, which it overwrites. A hint: nothing in a store
depends on it but when runs with ``available_now`` end, and which round it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from riverlock.core.errors import StorageNotFoundError
from riverlock.snapshot.format.records import Record
from riverlock.snapshot.format.sealed import read_hint, seal

if TYPE_CHECKING:
    from riverlock.snapshot.catalog import Catalog

__all__ = ["Resting", "Stand", "read_stand", "write_stand"]


class Resting(Record, frozen=True):
    """What a region says that has nothing to do: ``coordinator.circle.Rest``."""

    seen: dict[str, int]
    is_final: bool = False
    has_ended: bool = False
    knows_end: bool = False


class Stand(Record, frozen=True):
    """``circle.json``: how a region stands among those that it feeds and that feed it.

    Attributes:
        stint: The token of the run that said so, or of the first of those before it
            that did not end by themselves.
        epoch: Its newest epoch when it said so; -1 if it had none.
        read: By channel of the circle, the first epoch of the writer that it had not
            read then.
        met: The stints of the other regions, as it has found them.
        fresh: How often, in this stint, it has read rows from outside.
        rests: What it says if it has nothing to do.
        reset: The last reset that it had taken up (§6.5).
    """

    stint: str
    epoch: int
    read: dict[str, int]
    met: dict[str, str]
    fresh: int = 0
    rests: Resting | None = None
    reset: int = 0


def read_stand(catalog: Catalog) -> Stand | None:
    """Return how a region stands; None if it has never said so."""
    try:
        return read_hint(catalog.storage.get(catalog.paths.circle), Stand)
    except StorageNotFoundError:
        return None


def write_stand(catalog: Catalog, stand: Stand) -> None:
    """Say how a region stands."""
    catalog.storage.put(catalog.paths.circle, seal(stand))
