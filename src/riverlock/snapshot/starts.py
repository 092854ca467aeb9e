"""Starts: what is about to become a run, and may take a while until it claims one.

Until Spark is there, nothing can be claimed: whether the flow may run at all is not
known. So a start announces itself, and can be asked to stop by its id before it has a
number (format §3.2).
"""

from __future__ import annotations

import contextlib
import os
import socket
import uuid
from typing import TYPE_CHECKING

from riverlock.core.errors import SnapshotCorruptedError, StorageNotFoundError
from riverlock.snapshot.format.records import Start, Stop
from riverlock.snapshot.format.requests import requests_after
from riverlock.snapshot.format.sealed import seal, unseal
from riverlock.snapshot.format.store_layout import FLOW
from riverlock.snapshot.owner import process_start
from riverlock.storage.local import TEMPORARY

if TYPE_CHECKING:
    from collections.abc import Iterator

    from riverlock.snapshot.catalog import Catalog
    from riverlock.snapshot.format.records import Run

__all__ = ["announced", "is_of", "starts", "stop_of", "tell", "withdraw"]

# How long one on another machine is believed; here its process is looked for.
_PATIENCE_US = 10 * 60 * 1_000_000


@contextlib.contextmanager
def announced(catalog: Catalog, *, now_us: int) -> Iterator[Start]:
    """Announce a start until it is withdrawn, at the latest at the end.

    If this process has announced one before, that is the one.
    """
    mine = [s for s in _read(catalog) if _is_ours(s)]
    if mine:
        yield mine[-1]
        return
    is_new = not catalog.storage.exists(FLOW)
    start = Start(
        id=uuid.uuid4().hex,
        host=socket.gethostname(),
        pid=os.getpid(),
        process=process_start(os.getpid()) or "",
        started_us=now_us,
    )
    for dead in (s for s in _read(catalog) if not _is_alive(s, now_us)):
        withdraw(catalog, dead)
    catalog.storage.put(catalog.paths.start(start.id), seal(start))
    try:
        yield start
    finally:
        withdraw(catalog, start)
        if is_new:
            _tidy(catalog)


def withdraw(catalog: Catalog, start: Start) -> None:
    """Take an announcement back: the start has a run, or has ended."""
    catalog.storage.delete(catalog.paths.start(start.id))


def tell(catalog: Catalog, start: Start) -> None:
    """Announce a start anew: what it waits for has changed, or it still waits."""
    catalog.storage.put(catalog.paths.start(start.id), seal(start))


def stop_of(catalog: Catalog, start: Start) -> Stop | None:
    """Return what asks a start to stop, if anything does."""
    newest = catalog.newest()
    for request in requests_after(catalog, 0 if newest is None else newest.requests):
        if isinstance(request.what, Stop) and request.what.start == start.id:
            return request.what
    return None


def starts(catalog: Catalog, *, now_us: int) -> list[Start]:
    """Return the starts in progress, oldest first."""
    found = [s for s in _read(catalog) if _is_alive(s, now_us)]
    return sorted(found, key=lambda s: s.started_us)


def is_of(run: Run, start: Start) -> bool:
    """Tell whether a run is what became of a start."""
    return (run.host, run.pid, run.process) == (start.host, start.pid, start.process)


def _read(catalog: Catalog) -> list[Start]:
    found = []
    for entry in catalog.storage.list(catalog.paths.starts):
        # Withdrawn since it was listed, or cut short: then it announces nothing.
        with contextlib.suppress(StorageNotFoundError, SnapshotCorruptedError):
            data = catalog.storage.get(entry.path)
            found.append(unseal(data, Start, path=entry.path))
    return found


def _is_ours(start: Start) -> bool:
    is_here = start.host == socket.gethostname() and start.pid == os.getpid()
    return is_here and start.process == (process_start(os.getpid()) or "")


def _is_alive(start: Start, now_us: int) -> bool:
    if start.host == socket.gethostname():
        found = process_start(start.pid)
        return found is not None and start.process in ("", found)
    return now_us - (start.seen_us or start.started_us) < _PATIENCE_US


def _tidy(catalog: Catalog) -> None:
    """Remove the folders of a store that was not made after all, if they are empty."""
    root = catalog.storage.local_path(FLOW)
    if root is None or root.exists():
        return
    region = root.parent / catalog.paths.root
    starting = root.parent / catalog.paths.starts
    temporary = root.parent / TEMPORARY
    for folder in (starting, region, region.parent, temporary, root.parent):
        with contextlib.suppress(OSError):  # not there, or of use to somebody
            folder.rmdir()
