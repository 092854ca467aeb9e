"""What can be done with a store as a whole; the flow need not be loaded, nor Spark.

Each function takes the store's directory or address. Where an epoch is meant, it is
given as ``store@epoch`` or ``store@name``; without it the newest is meant.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from riverlock.core.clock import SystemClock
from riverlock.core.times import duration
from riverlock.snapshot import expiry
from riverlock.snapshot.address import open_address, open_store
from riverlock.snapshot.lease import leased

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from datetime import timedelta

    from riverlock.snapshot.expiry import Expiry
    from riverlock.snapshot.lease import Lease
    from riverlock.snapshot.records import Named

__all__ = ["expire", "lease", "pin", "unpin"]


def pin(address: str, name: str, *, note: str = "") -> Named:
    """Give an epoch a name, so that it is kept; the flow may run meanwhile.

    Raises:
        InvalidConfigError: The name is taken, or a number.
        SnapshotNotFoundError: There is no such epoch.
    """
    catalog, manifest = open_address(address)
    now_us = SystemClock().now_us()
    return catalog.pin(name, epoch=manifest.epoch, now_us=now_us, note=note)


def unpin(store: str, name: str) -> Named:
    """Take a name away.

    Raises:
        SnapshotNotFoundError: There is no such name.
    """
    return open_store(store).unpin(name)


def lease(
    address: str, *, lasts: str | timedelta = "10 minutes"
) -> AbstractContextManager[Lease]:
    """Keep an epoch while it is read: ``with rl.stores.lease("store@41"): ...``.

    Who reads for longer calls ``renew()`` of what ``with`` gives.

    Raises:
        SnapshotNotFoundError: There is no such epoch.
    """
    catalog, manifest = open_address(address)
    return leased(catalog, manifest.epoch, lasts=duration(lasts))


def expire(  # noqa: PLR0913 - three limits, and how
    store: str,
    *,
    epochs: int | None = None,
    older_than: str | timedelta | None = None,
    max_bytes: int | None = None,
    grace: str | timedelta = "10 minutes",
    dry_run: bool = False,
) -> Expiry:
    """Delete old epochs and the files that only they refer to; returns what went.

    The newest epoch, and those that have a name, a fork or a reader, always stay.

    Args:
        store: The store.
        epochs: So many of the newest stay.
        older_than: Epochs decided longer ago go.
        max_bytes: The oldest go until all state files have at most so many bytes.
        grace: Epochs decided less long ago stay.
        dry_run: Only say what would go.

    Raises:
        InvalidConfigError: No limit is given.
        SnapshotCorruptedError: A manifest is damaged; nothing was deleted.
    """
    catalog, now_us = open_store(store), SystemClock().now_us()
    limits = expiry.Limits(
        epochs=epochs,
        age=None if older_than is None else duration(older_than),
        bytes=max_bytes,
        grace=duration(grace),
    )
    plan = expiry.plan_expiry(catalog, limits, now_us=now_us)
    if not dry_run:
        expiry.expire(catalog, plan, now_us=now_us)
    return plan
