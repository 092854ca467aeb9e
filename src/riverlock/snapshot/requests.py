"""What people ask of a running flow, through its store.

A request is a hint like the heartbeat: one file, overwritten, addressed to one run. The
run looks for it about once a second, and answers with what it decides from then on.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from riverlock.core.errors import (
    InvalidConfigError,
    SnapshotCorruptedError,
    StorageNotFoundError,
)
from riverlock.snapshot.owner import read_beat
from riverlock.snapshot.records import Record
from riverlock.snapshot.sealed import seal, unseal

if TYPE_CHECKING:
    from riverlock.snapshot.catalog import Catalog

__all__ = ["Request", "ask", "read_request"]


class Request(Record, frozen=True):
    """``request.json``: what one run is asked to do."""

    id: str
    run: int
    parallelism: int


def ask(catalog: Catalog, *, parallelism: int) -> Request:
    """Ask the run that owns the store for another parallelism.

    Raises:
        InvalidConfigError: No run is there to be asked.
    """
    beat = read_beat(catalog)
    if beat is None or beat.has_ended:
        raise InvalidConfigError(
            f"rescale of {catalog.storage.uri}",
            expected="a flow that runs",
            found="none" if beat is None else f"run {beat.run}, which has ended",
            hint=f"start it with parallelism {parallelism}",
        )
    request = Request(id=uuid.uuid4().hex, run=beat.run, parallelism=parallelism)
    catalog.storage.put(catalog.paths.request, seal(request))
    return request


def read_request(catalog: Catalog) -> Request | None:
    """Return what was asked last; None if nothing, or nothing that can be read."""
    path = catalog.paths.request
    try:
        return unseal(catalog.storage.get(path), Request, path=path)
    except (StorageNotFoundError, SnapshotCorruptedError):
        return None
