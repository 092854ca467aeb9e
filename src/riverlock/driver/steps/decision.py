"""The put that decides an epoch, and what became of it, as an event."""

from __future__ import annotations

from typing import TYPE_CHECKING

from riverlock.coordinator import events as ev
from riverlock.core.errors import StorageError
from riverlock.snapshot.claims import describe
from riverlock.snapshot.file_lists import put_lists

if TYPE_CHECKING:
    from riverlock.coordinator import instructions as do
    from riverlock.driver.ownership import Heartbeat
    from riverlock.snapshot.catalog import Catalog
    from riverlock.snapshot.format.records import Manifest

__all__ = ["decided"]


def decided(
    catalog: Catalog,
    heartbeat: Heartbeat,
    order: do.PutManifest,
    manifest: Manifest,
) -> ev.ManifestPut | ev.PutFailed | ev.Fenced:
    """Put a manifest if it is absent and the store is still that of this run.

    Args:
        catalog: The region.
        heartbeat: Of the run.
        order: What the coordinator wants.
        manifest: The manifest of the order, with the time at which it is decided.

    Raises:
        StoreChangedError: The store lacks what this run has written.
    """
    region, turn = manifest.region, order.turn
    try:
        put_lists(catalog, order.lists)
        # It must be known, not only looked for: a run that is fenced may decide one
        # epoch more, if it slept just here, but not two (format/closed_numbers).
        owner = heartbeat.check()
        if owner is not None:
            return ev.Fenced(region=region, owner=describe(owner))
        heartbeat.check_store(manifest)
        created = catalog.decide(manifest)
    except StorageError as error:
        return ev.PutFailed(
            region=region, turn=turn, cause=str(error), retryable=error.retryable
        )
    return ev.ManifestPut(
        region=region, turn=turn, created=created, decided_us=manifest.decided_us
    )
