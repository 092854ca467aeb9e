"""What may be deleted: only what no retained manifest reaches, after a grace period.

Reachability is computed from manifests listed afresh, never from memory. The grace
period protects files that a running epoch has written but not yet decided, and readers:
a manifest stays for at least that long, so whoever opens the newest one can finish.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from riverlock.snapshot.layout import epoch_of
from riverlock.storage.base import SupportsTemporaries

if TYPE_CHECKING:
    from riverlock.snapshot.catalog import Catalog

__all__ = ["Retention", "expired_paths", "sweep"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """How much history is kept; named snapshots are always kept."""

    epochs: int = 20
    grace: timedelta = timedelta(minutes=10)


def expired_paths(catalog: Catalog, keep: Retention, *, now: datetime) -> list[str]:
    """Return what may be deleted now, manifests first."""
    epochs = catalog.epochs()
    if not epochs:
        return []
    newest = epochs[-1]
    pinned = {n.regions.get(catalog.region) for n in catalog.snapshots()}
    oldest_allowed = now - keep.grace
    young = {
        epoch_of(entry.path)
        for entry in catalog.storage.list(catalog.paths.epochs)
        if entry.mtime >= oldest_allowed
    }
    kept = {e for e in epochs if e > newest - keep.epochs or e in pinned or e in young}
    reached = {
        file.path
        for epoch in kept
        for state in catalog.manifest(epoch).operators.values()
        for file in state.files
    }
    paths = catalog.paths
    manifests = [paths.manifest(e) for e in epochs if e not in kept]
    state = [
        entry.path
        for entry in catalog.storage.list(paths.state)
        if entry.path not in reached and entry.mtime < oldest_allowed
    ]
    # Staged outputs are needed until every sink has the epoch: the newest is safe.
    staged = [
        entry.path
        for entry in catalog.storage.list(paths.staged)
        if _staged_epoch(entry.path, paths.staged) < newest
        and entry.mtime < oldest_allowed
    ]
    return [*manifests, *state, *staged]


def _staged_epoch(path: str, root: str) -> int:
    return epoch_of(path.removeprefix(root).partition("/")[0])


def sweep(catalog: Catalog, keep: Retention, *, now: datetime | None = None) -> int:
    """Delete what may be deleted; returns how many files went."""
    now = now or datetime.now(UTC)
    paths = expired_paths(catalog, keep, now=now)
    for path in paths:
        catalog.storage.delete(path)
    gone = len(paths)
    if isinstance(catalog.storage, SupportsTemporaries):
        gone += catalog.storage.forget_temporaries(now - keep.grace)
    return gone
