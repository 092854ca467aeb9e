"""What people ask of a flow, through its store: numbered files, in order.

Whoever asks adds the file of the next number; files are never changed or deleted. The
run that owns the store looks for the next one about once a second. A stop, or another
parallelism, is asked of one run; a change of parameters, of whichever comes first. So
manifests record the last request that their epoch took up.
"""

from __future__ import annotations

import socket
from contextlib import suppress
from typing import TYPE_CHECKING

from riverlock.core.errors import SnapshotCorruptedError, StorageNotFoundError
from riverlock.snapshot.format.records import Change, Request
from riverlock.snapshot.format.sealed import seal, unseal
from riverlock.snapshot.format.store_layout import numbered

if TYPE_CHECKING:
    from collections.abc import Iterator

    from riverlock.snapshot.catalog import Catalog
    from riverlock.snapshot.format.records import Manifest, Rescale, Stop

__all__ = ["add_request", "pending_changes", "requests_after", "taken_at"]


def add_request(
    catalog: Catalog, what: Stop | Rescale | Change, *, now_us: int
) -> Request:
    """Ask for something; return once the request is durable."""
    while True:
        number = _last(catalog) + 1
        request = Request(
            number=number, asked_us=now_us, host=socket.gethostname(), what=what
        )
        path = catalog.paths.request(number)
        if catalog.storage.put_if_absent(path, seal(request)):
            return request


def _last(catalog: Catalog) -> int:
    """Return the greatest number in use; a fork begins after that of its origin."""
    listed = [n for n, _ in numbered(catalog.storage.list(catalog.paths.requests))]
    taken = 0
    # A flow whose newest manifest is damaged can still be asked to stop.
    with suppress(SnapshotCorruptedError):
        newest = catalog.newest()
        taken = 0 if newest is None else newest.requests
    return max(taken, *listed, 0)


def requests_after(catalog: Catalog, number: int) -> Iterator[Request]:
    """Yield the requests after one, in order; a damaged one has no effect."""
    while True:
        number += 1
        path = catalog.paths.request(number)
        try:
            yield unseal(catalog.storage.get(path), Request, path=path)
        except StorageNotFoundError:
            return
        except SnapshotCorruptedError:
            continue


def pending_changes(catalog: Catalog, newest: Manifest) -> list[Change]:
    """Return changes of parameters that no epoch has taken up yet, in order."""
    found = requests_after(catalog, newest.requests)
    return [r.what for r in found if isinstance(r.what, Change)]


def taken_at(catalog: Catalog, number: int, *, after: int | None) -> Manifest | None:
    """Return the first retained epoch that has taken up a request.

    Args:
        catalog: The store.
        number: The request.
        after: The newest epoch before it was asked; None: there was none.
    """
    for epoch in catalog.epochs():
        if after is None or epoch > after:
            manifest = catalog.manifest(epoch)
            if manifest.requests >= number:
                return manifest
    return None
