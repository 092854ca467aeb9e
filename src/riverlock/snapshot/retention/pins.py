"""What keeps epochs from retention: names, leases of readers, and forks."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from riverlock.core.errors import StorageNotFoundError
from riverlock.snapshot.format.records import ForkRecord, LeaseRecord
from riverlock.snapshot.format.sealed import unseal
from riverlock.snapshot.format.store_layout import FORKS, LEASES, records

if TYPE_CHECKING:
    from collections.abc import Iterator

    from riverlock.snapshot.catalog import Catalog

__all__ = ["Pin", "forks", "leases", "pins"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pin:
    """One reason why an epoch is kept."""

    epoch: int
    kind: str  # name, lease, fork
    name: str

    def __str__(self) -> str:
        """Return it as people read it."""
        return f"{self.kind} {self.name!r}"


def leases(catalog: Catalog) -> Iterator[LeaseRecord]:
    """Yield all leases of the store, expired ones too."""
    for entry in records(catalog.storage.list(LEASES)):
        # Its holder may give it back at any time.
        with contextlib.suppress(StorageNotFoundError):
            data = catalog.storage.get(entry.path)
            yield unseal(data, LeaseRecord, path=entry.path)


def forks(catalog: Catalog) -> Iterator[ForkRecord]:
    """Yield the forks that refer to files of the store."""
    for entry in records(catalog.storage.list(FORKS)):
        # A fork that has no more need of our files takes its record away.
        with contextlib.suppress(StorageNotFoundError):
            data = catalog.storage.get(entry.path)
            yield unseal(data, ForkRecord, path=entry.path)


def pins(catalog: Catalog, *, now_us: int) -> list[Pin]:
    """Return all that keeps epochs of the region now, retained or not."""
    found = [
        Pin(epoch=named.regions[catalog.region], kind="name", name=named.name)
        for named in catalog.snapshots()
        if catalog.region in named.regions
    ]
    found += [
        Pin(epoch=lease.regions[catalog.region], kind="lease", name=lease.id)
        for lease in _held(catalog, now_us)
        if catalog.region in lease.regions
    ]
    found += [
        Pin(epoch=fork.epoch, kind="fork", name=fork.store)
        for fork in forks(catalog)
        if fork.region == catalog.region
    ]
    return found


def _held(catalog: Catalog, now_us: int) -> list[LeaseRecord]:
    """Return the leases that count: by time, or until an epoch is decided.

    In this order: whoever decided that epoch meanwhile has no need of the lease.
    """
    found = list(leases(catalog))
    newest = max(catalog.epochs(), default=-1) if any(r.before for r in found) else -1
    return [
        r
        for r in found
        if r.expires_us > now_us or (r.before is not None and newest < r.before)
    ]
