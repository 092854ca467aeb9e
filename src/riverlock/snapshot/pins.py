"""What keeps epochs from retention: names, leases of readers, and forks."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from riverlock.core.errors import StorageNotFoundError
from riverlock.snapshot.layout import FORKS, LEASES
from riverlock.snapshot.records import ForkRecord, LeaseRecord
from riverlock.snapshot.sealed import unseal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from riverlock.snapshot.catalog import Catalog

__all__ = ["Pin", "forks", "leases", "pinned_epochs", "pins"]


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
    for entry in catalog.storage.list(LEASES):
        # Its holder may give it back at any time.
        with contextlib.suppress(StorageNotFoundError):
            data = catalog.storage.get(entry.path)
            yield unseal(data, LeaseRecord, path=entry.path)


def forks(catalog: Catalog) -> Iterator[ForkRecord]:
    """Yield the forks that refer to files of the store."""
    for entry in catalog.storage.list(FORKS):
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
        for lease in leases(catalog)
        if catalog.region in lease.regions and lease.expires_us > now_us
    ]
    found += [
        Pin(epoch=fork.epoch, kind="fork", name=fork.store)
        for fork in forks(catalog)
        if fork.region == catalog.region
    ]
    return found


def pinned_epochs(catalog: Catalog, *, now_us: int) -> set[int]:
    """Return the epochs that something keeps."""
    return {pin.epoch for pin in pins(catalog, now_us=now_us)}
