"""What a flow deletes as it runs: what no retained manifest reaches, after a grace.

The grace period protects readers: a manifest stays for at least that long, so whoever
opens the newest one can finish. What the epoch in progress has written, which no
manifest refers to yet, stays for much longer: an epoch may take longer than readers do.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from riverlock.core.times import micros
from riverlock.snapshot.format.channels import passed_files
from riverlock.snapshot.format.closed_numbers import is_alone
from riverlock.snapshot.format.store_layout import lease_path, number_in
from riverlock.snapshot.retention.deletion import Round
from riverlock.snapshot.retention.pins import leases
from riverlock.snapshot.verbs.fork_parents import settle_parents
from riverlock.storage.base import SupportsTemporaries

if TYPE_CHECKING:
    from collections.abc import Iterator

    from riverlock.snapshot.catalog import Catalog
    from riverlock.snapshot.retention.inventory import Look

__all__ = ["Retention", "sweep"]

# After so long, files of an epoch that was never decided are those of a dead run.
_UNDECIDED = timedelta(days=1)
# No write takes so long: what is written now must not go, however short the grace is.
_WRITING = timedelta(minutes=10)


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """How much history is kept; what is pinned is always kept."""

    epochs: int = 20
    grace: timedelta = timedelta(minutes=10)

    def over(self, found: Look) -> set[int]:
        """Return the epochs that are too many, and old enough to go."""
        newest = found.newest
        if newest is None:
            return set()
        over = {e for e in found.written if e <= newest - self.epochs}
        return over - found.younger_than(self.grace)


def sweep(
    catalog: Catalog,
    keep: Retention,
    *,
    now: datetime | None = None,
) -> int:
    """Delete what may be deleted; return how many files went.

    Args:
        catalog: The store.
        keep: How much to keep.
        now: The present; by default what the storage's own clock says.
    """
    deletion = Round(catalog, at=now)
    ended: list[datetime] = []

    def leftovers(found: Look) -> Iterator[str]:
        ended.append(found.now)
        yield from _leftovers(found, keep)

    deletion.run(keep.over, leftovers)
    gone = len(deletion.gone)
    settle_parents(catalog, now_us=micros(ended[-1]))
    if isinstance(catalog.storage, SupportsTemporaries):
        before = ended[-1] - max(keep.grace, _WRITING)
        gone += catalog.storage.forget_temporaries(before)
    return gone


def _leftovers(found: Look, keep: Retention) -> Iterator[str]:
    """Yield what is old enough to go, if no epoch reaches it."""
    newest = found.newest
    if newest is None:
        return
    allowed, undecided = found.now - keep.grace, _undecided_before(found, keep)
    storage, paths = found.catalog.storage, found.catalog.paths
    for entry in storage.list(paths.state):
        number = number_in(entry.path.rpartition("/")[2])
        limit = undecided if number is None or number > newest else allowed
        if number is not None and entry.mtime < limit:
            yield entry.path
    for entry in (*storage.list(paths.channels), *storage.list(paths.lists)):
        number = number_in(entry.path.rpartition("/")[2])
        limit = undecided if number is None or number > newest else allowed
        if number is not None and entry.mtime < limit:
            yield entry.path
    # A plan writes its list before its epoch is decided, and lists name no epoch.
    yield from (e.path for e in storage.list(paths.sources) if e.mtime < undecided)
    # Staged outputs are needed until every sink has the epoch: the newest is safe.
    for entry in storage.list(paths.staged):
        number = number_in(entry.path.removeprefix(paths.staged))
        if number is not None and number < newest and entry.mtime < allowed:
            yield entry.path
    passed = passed_files(storage, found.manifests.values())
    yield from (entry.path for entry in passed if entry.mtime < allowed)
    yield from _leases_over(found, keep)
    yield from found.settled()


def _leases_over(found: Look, keep: Retention) -> Iterator[str]:
    held = {pin.name for pin in found.pins if pin.kind == "lease"}
    long_ago = micros(found.now - max(keep.grace, _UNDECIDED))
    for lease in leases(found.catalog):
        if lease.expires_us < long_ago and lease.id not in held:
            yield lease_path(lease.id)


def _undecided_before(found: Look, keep: Retention) -> datetime:
    """Return when what no epoch has decided must have been written to be of no use.

    What was written since the newest run began may be of its epoch in progress, however
    old a clock that was wrong for a while makes it. An earlier run that sleeps may
    still decide its epoch until the newest has decided one.
    """
    before = found.now - max(keep.grace, _UNDECIDED)
    runs = found.catalog.listed_runs()
    if not runs:
        return before
    number, entry = runs[-1]
    newest = found.manifests[max(found.manifests)]
    if newest.run < number and not is_alone(found.catalog, number):
        return datetime.min.replace(tzinfo=UTC)
    return min(before, entry.mtime)
