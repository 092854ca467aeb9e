"""Repair: back to the newest whole epoch; damaged and foreign files are moved aside.

Nothing is deleted: files are moved to ``quarantine/`` of the store. The way back is an
ordinary restore, with a number above all others, before any manifest is moved: a number
that was seen once never comes again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from riverlock.core.errors import SnapshotNotFoundError
from riverlock.snapshot.claims import claim, release
from riverlock.snapshot.format.store_layout import RESETS, SINKS
from riverlock.snapshot.retention.deletion import move_aside
from riverlock.snapshot.verbs.inspection import QUARANTINE, inspect
from riverlock.snapshot.verbs.restore import plan_restore

if TYPE_CHECKING:
    from riverlock.snapshot.catalog import Catalog
    from riverlock.snapshot.verbs.inspection import Damage
    from riverlock.snapshot.verbs.restore import Restore

__all__ = ["Repair", "must_stay", "plan_repair", "quarantine"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Repair:
    """What a repair does.

    Attributes:
        restore: The way back; None if the newest epoch is whole.
        lost: Epochs that one can no longer go back to.
        moved: Files that go to the quarantine.
        left: Damage that cannot be repaired.
    """

    restore: Restore | None
    lost: tuple[int, ...]
    moved: tuple[str, ...]
    left: tuple[Damage, ...]

    @property
    def is_needed(self) -> bool:
        """Whether there is anything to do."""
        return self.restore is not None or bool(self.moved)


def plan_repair(catalog: Catalog) -> Repair:
    """Return what a repair would do; do nothing.

    Raises:
        SnapshotNotFoundError: No epoch is whole: there is nothing to go back to.
        SnapshotError: ``flow.json`` is damaged: put it back from a backup.
    """
    found = inspect(catalog)
    lost = tuple(r.epoch for r in found.epochs if not r.is_whole)
    restore = None
    if found.epochs and not found.epochs[-1].is_whole:
        if found.newest_whole is None:
            raise SnapshotNotFoundError(
                "a whole epoch", store=catalog.storage.uri, available="none"
            )
        target = catalog.manifest(found.newest_whole)
        restore = plan_restore(catalog, target)
    manifests = [catalog.paths.manifest(e) for e in lost]
    names = [
        f"snapshots/{named.name}.json"
        for named in catalog.snapshots_that_can_be_read()
        if named.regions.get(catalog.region) in lost
    ]
    stays = [d for d in found.damages if must_stay(d.path)]
    damaged = [d.path for d in found.damages if not must_stay(d.path)]
    moved = dict.fromkeys([*manifests, *names, *damaged, *found.foreign])
    return Repair(
        restore=restore,
        lost=lost,
        moved=tuple(p for p in moved if catalog.storage.exists(p)),
        left=tuple(stays),
    )


def must_stay(path: str) -> bool:
    """Tell whether a file is useful even if damaged, or indispensable.

    A pin that cannot be read keeps retention from deleting anything, which is safe. A
    request that cannot be read has no effect, but those after it are found through it.
    A sink that cannot read where it wrote starts only if it finds its marker there.
    """
    prefixes = ("channels/", "parents/", "forks/", RESETS, SINKS)
    return path.startswith(prefixes) or "/staged/" in path or "/requests/" in path


def quarantine(catalog: Catalog, plan: Repair, *, now_us: int) -> str:
    """Move aside what a plan says and is still damaged or foreign; return the folder.

    The store may have been fixed since the plan was made, by files put back from a
    backup, or gone back. May be repeated.

    Raises:
        FencedError: The flow runs; nothing was changed.
    """
    # Above the number of a claim that is moved: it must not be given again.
    run = claim(catalog, now_us=now_us)
    folder = f"{QUARANTINE}{now_us}/"
    try:
        still = set(plan_repair(catalog).moved)
        move_aside(catalog, [p for p in plan.moved if p in still], folder)
    finally:
        release(catalog, run)
    return folder
