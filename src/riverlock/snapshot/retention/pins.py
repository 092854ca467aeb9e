"""What keeps epochs from retention: names, leases, forks, other regions and flows."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from riverlock.core.errors import SnapshotNotFoundError, StorageNotFoundError
from riverlock.snapshot.format.channels import channel_positions, channels_of
from riverlock.snapshot.format.cuts.cut_records import Restoring
from riverlock.snapshot.format.cuts.reset_log import ResetLog
from riverlock.snapshot.format.records import ForkRecord, LeaseRecord
from riverlock.snapshot.format.sealed import unseal
from riverlock.snapshot.format.store_layout import (
    FORKS,
    LEASES,
    RESTORING,
    records,
)
from riverlock.snapshot.joint.channel_readers import channel_readers
from riverlock.snapshot.kept_epochs import held_by, held_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from riverlock.snapshot.catalog import Catalog
    from riverlock.snapshot.format.cuts.cut_records import Reset
    from riverlock.snapshot.format.records import Manifest

__all__ = ["Pin", "forks", "leases", "pins"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pin:
    """One reason why an epoch is kept."""

    epoch: int
    kind: str  # cut, name, lease, fork, restore, channel, reader
    name: str
    # Whether all epochs from this one on are kept.
    is_onward: bool = False

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
    newest = catalog.newest()
    # Before names: a cut that is complete by then has one.
    found = [] if newest is None else _open_cuts(catalog, newest)
    found += [
        Pin(epoch=epoch, kind="name", name=named.name)
        for named in catalog.snapshots()
        for region, epoch in held_by(named)
        if region == catalog.region
    ]
    found += [
        Pin(epoch=lease.regions[catalog.region], kind="lease", name=lease.id)
        for lease in _held(catalog, now_us)
        if catalog.region in lease.regions
    ]
    found += [
        Pin(epoch=epoch, kind="fork", name=fork.store)
        for fork in forks(catalog)
        for region, epoch in held_for(fork)
        if region == catalog.region
    ]
    found += _older_restore(catalog)
    found += _going_back(catalog, newest)
    if newest is not None:
        found += _readers(catalog, newest)
    return found + _other_flows(catalog)


def _open_cuts(catalog: Catalog, newest: Manifest) -> list[Pin]:
    """Return the epochs that bear markers of cuts which others still have to bear."""
    found = []
    for epoch in catalog.epochs() if newest.borne else ():
        # Deleted meanwhile, by a round that looked before the cut was asked for.
        with contextlib.suppress(SnapshotNotFoundError):
            found += [
                Pin(epoch=epoch, kind="cut", name=str(cut))
                for cut in catalog.stored(epoch).markers
                if cut in newest.borne
            ]
    return found


def _going_back(catalog: Catalog, newest: Manifest | None) -> list[Pin]:
    """Return what keeps the epochs that regions are about to go back to.

    The region itself, until it has; and rows in flight, until who reads them has.
    """
    reset = ResetLog(catalog.storage).last()
    if reset is None:
        return []
    found = [
        epoch
        for span in reset.in_flight
        if span.writer == catalog.region and not _has(catalog, span.reader, reset)
        for epoch in range(span.first, span.end)
    ]
    if catalog.region in reset.regions and (
        newest is None or newest.reset < reset.number
    ):
        found.append(reset.regions[catalog.region])
    return [Pin(epoch=epoch, kind="restore", name=reset.name) for epoch in found]


def _has(catalog: Catalog, region: str, reset: Reset) -> bool:
    newest = catalog.of(region).newest()
    return newest is not None and newest.reset >= reset.number


def _older_restore(catalog: Catalog) -> list[Pin]:
    """Return the same for what an earlier version has left to do."""
    with contextlib.suppress(StorageNotFoundError):
        record = unseal(catalog.storage.get(RESTORING), Restoring, path=RESTORING)
        if catalog.region in record.regions:
            epoch = record.regions[catalog.region]
            return [Pin(epoch=epoch, kind="restore", name=record.name)]
    return []


def _other_flows(catalog: Catalog) -> list[Pin]:
    """Return what keeps the rows that other flows may still read."""
    return [
        Pin(epoch=r.first, kind="reader", name=r.name, is_onward=True)
        for r in channel_readers(catalog.storage)
        if r.writer == catalog.region
    ]


def _readers(catalog: Catalog, newest: Manifest) -> list[Pin]:
    """Return what keeps the rows that other regions may still read.

    A region that has no epoch yet reads all of a channel. One that has may go back to
    the oldest that it retains. Of a loop only what the newest has not read is kept:
    its epochs would else keep each other for ever. Names keep what they have in flight.
    """
    found = []
    for channel, region, is_back in channels_of(newest):
        reader = catalog.of(region)
        first = _least(reader, catalog.region, channel, only_newest=is_back)
        found.append(Pin(epoch=first, kind="channel", name=region, is_onward=True))
    return found


def _least(
    reader: Catalog, writer: str, channel: str, *, only_newest: bool = False
) -> int:
    """Return the first epoch that a reader may read, also after going back.

    All that it had at one moment count. One that is deleted while we read may be that
    from which it has just gone on: then we look again.
    """
    while True:
        found = list[int]()
        try:
            retained = reader.epochs()
            for epoch in retained[-1:] if only_newest else retained:
                found += (
                    start
                    for region, name, start in channel_positions(reader.stored(epoch))
                    if (region, name) == (writer, channel)
                )
        except SnapshotNotFoundError:
            continue
        return min(found, default=0)


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
