"""A reader's hold on an epoch: it ends by itself, should the reader die."""

from __future__ import annotations

import os
import socket
import uuid
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

import msgspec

from riverlock.core.clock import SystemClock
from riverlock.core.errors import StorageError
from riverlock.snapshot.format.records import LeaseRecord
from riverlock.snapshot.format.sealed import seal
from riverlock.snapshot.format.store_layout import lease_path

if TYPE_CHECKING:
    from collections.abc import Iterator

    from riverlock.core.clock import Clock
    from riverlock.snapshot.catalog import Catalog

__all__ = ["Lease", "leased"]

_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True)
class Lease:
    """An epoch that retention spares until the lease runs out.

    Whoever reads for longer calls ``renew`` in time: at half of the time, since clocks
    of machines differ.
    """

    catalog: Catalog
    record: LeaseRecord
    clock: Clock

    def renew(self, lasts: timedelta = timedelta(minutes=10)) -> None:
        """Let it run out later."""
        until = self.clock.now_us() + lasts // _MICROSECOND
        renewed = msgspec.structs.replace(self.record, expires_us=until)
        self.catalog.storage.put(lease_path(self.record.id), seal(renewed))

    def release(self) -> None:
        """Release it."""
        self.catalog.storage.delete(lease_path(self.record.id))


@contextmanager
def leased(
    catalog: Catalog,
    epoch: int,
    *,
    lasts: timedelta = timedelta(minutes=10),
    clock: Clock | None = None,
    before: int | None = None,
) -> Iterator[Lease]:
    """Keep an epoch and its files while it is read, or until another is decided.

    Raises:
        SnapshotNotFoundError: It is not retained, or not whole.
    """
    clock = clock or SystemClock()
    record = LeaseRecord(
        id=uuid.uuid4().hex,
        regions={catalog.region: epoch},
        expires_us=clock.now_us() + lasts // _MICROSECOND,
        holder=f"process {os.getpid()} on {socket.gethostname()}",
        before=before,
    )
    catalog.hold(lease_path(record.id), record, epoch=epoch)
    lease = Lease(catalog, record, clock)
    try:
        yield lease
    except StorageError:
        # What was asked of the storage may yet happen: the lease ends by itself.
        raise
    except BaseException:
        lease.release()
        raise
    lease.release()
