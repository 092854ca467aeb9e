"""What may be deleted: only what no retained manifest reaches, after a grace period.

Reachability is computed from manifests listed afresh, never from memory. The grace
period protects readers: a manifest stays for at least that long, so whoever opens the
newest one can finish. What the epoch under way has written, which no manifest refers to
yet, stays for much longer: an epoch may take longer than readers do.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from riverlock.core import faults
from riverlock.core.errors import SnapshotNotFoundError, StorageNotFoundError
from riverlock.core.times import micros
from riverlock.snapshot.channel import passed_files
from riverlock.snapshot.expiring import announce, forget_announcements
from riverlock.snapshot.fork import release_parents
from riverlock.snapshot.layout import epoch_of, lease_path
from riverlock.snapshot.pins import leases, pinned_epochs
from riverlock.snapshot.references import references
from riverlock.storage.base import SupportsTemporaries

if TYPE_CHECKING:
    from collections.abc import Collection

    from riverlock.snapshot.catalog import Catalog

__all__ = ["Retention", "delete_manifests", "expired_paths", "sweep"]

# After so long, files of an epoch that was never decided are those of a dead run.
_UNDECIDED = timedelta(days=1)
# No write takes so long: what is written now must not go, however short the grace is.
_WRITING = timedelta(minutes=10)


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """How much history is kept; what is pinned is always kept."""

    epochs: int = 20
    grace: timedelta = timedelta(minutes=10)


def expired_paths(
    catalog: Catalog,
    keep: Retention,
    *,
    now: datetime,
    protected: Collection[str] = (),
) -> list[str]:
    """Return what may be deleted now, manifests first; segments come after these.

    Args:
        catalog: The store.
        keep: How much to keep.
        now: The present.
        protected: Files that a manifest is going to refer to.
    """
    epochs = catalog.epochs()
    if not epochs:
        return []
    newest = epochs[-1]
    oldest_allowed = now - keep.grace
    oldest_undecided = now - max(keep.grace, _UNDECIDED)
    paths = catalog.paths
    young = {
        epoch_of(entry.path)
        for entry in catalog.storage.list(paths.epochs)
        if entry.mtime >= oldest_allowed
    }
    pinned = pinned_epochs(catalog, now_us=micros(now))
    kept = {e for e in epochs if e > newest - keep.epochs or e in pinned or e in young}
    reached = set(protected)
    for epoch in kept:
        reached |= references(catalog.manifest(epoch))
    manifests = [paths.manifest(e) for e in epochs if e not in kept]
    state = [
        entry.path
        for entry in catalog.storage.list(paths.state)
        if entry.path not in reached
        and entry.mtime
        < (oldest_undecided if epoch_of(entry.path) > newest else oldest_allowed)
    ]
    # A plan writes its list before its epoch is decided, and lists name no epoch.
    lists = [
        entry.path
        for entry in catalog.storage.list(paths.sources)
        if entry.path not in reached and entry.mtime < oldest_undecided
    ]
    # Staged outputs are needed until every sink has the epoch: the newest is safe.
    staged = [
        entry.path
        for entry in catalog.storage.list(paths.staged)
        if _staged_epoch(entry.path, paths.staged) < newest
        and entry.mtime < oldest_allowed
    ]
    over = [
        lease_path(lease.id)
        for lease in leases(catalog)
        if lease.expires_us < micros(oldest_undecided)
    ]
    return [*manifests, *state, *lists, *staged, *over]


def _staged_epoch(path: str, root: str) -> int:
    return epoch_of(path.removeprefix(root).partition("/")[0])


def sweep(
    catalog: Catalog,
    keep: Retention,
    *,
    now: datetime | None = None,
    protected: Collection[str] = (),
) -> int:
    """Delete what may be deleted; returns how many files went."""
    now = now or datetime.now(UTC)
    paths = expired_paths(catalog, keep, now=now, protected=protected)
    folder = catalog.paths.epochs
    manifests = [epoch_of(p) for p in paths if p.startswith(folder)]
    gone, spared = delete_manifests(catalog, manifests, now_us=micros(now))
    for path in paths[len(manifests) :]:
        if path not in spared:
            catalog.storage.delete(path)
            gone += 1
    # Now that manifests are gone: one that was pinned meanwhile keeps its segments.
    retained = [catalog.manifest(epoch) for epoch in catalog.epochs()]
    for entry in passed_files(catalog.storage, retained):
        if entry.mtime < now - keep.grace:
            catalog.storage.delete(entry.path)
            gone += 1
    forget_announcements(catalog, now=now)
    release_parents(catalog)
    if isinstance(catalog.storage, SupportsTemporaries):
        gone += catalog.storage.forget_temporaries(now - max(keep.grace, _WRITING))
    return gone


def delete_manifests(
    catalog: Catalog, epochs: list[int], *, now_us: int
) -> tuple[int, set[str]]:
    """Delete manifests but those that were pinned meanwhile.

    They are announced before anything goes, and who pins looks for that. An
    announcement counts for some minutes only: if we slept longer, a manifest may have
    been pinned in spite of it, and comes back. Returns how many went, and what those
    that stay refer to.
    """
    if not epochs:
        return 0, set()
    storage, paths = catalog.storage, catalog.paths
    announcement = announce(catalog, epochs)
    faults.hit("V7")
    pinned = pinned_epochs(catalog, now_us=now_us)
    removed: dict[int, bytes] = {}
    for epoch in (e for e in epochs if e not in pinned):
        try:
            removed[epoch] = storage.get(paths.manifest(epoch))
        except StorageNotFoundError:
            continue
        storage.delete(paths.manifest(epoch))
        faults.hit("V2")
    pinned = pinned_epochs(catalog, now_us=now_us)
    for epoch in sorted(pinned & removed.keys()):
        storage.put_if_absent(paths.manifest(epoch), removed.pop(epoch))
    storage.delete(announcement)
    spared: set[str] = set()
    for epoch in sorted(pinned.intersection(epochs)):
        try:
            spared |= references(catalog.manifest(epoch))
        except SnapshotNotFoundError:
            continue  # gone before its name was written: the pin fails
    return len(removed), spared
