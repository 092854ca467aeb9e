"""``STORE@EPOCH``: a store, and optionally one of its epochs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from riverlock.query.snapshot import Snapshot
    from riverlock.snapshot.catalog import Catalog
    from riverlock.snapshot.format.records import Manifest

__all__ = ["open_place", "open_snapshot", "place_argument"]

place_argument = click.argument("place", metavar="STORE[@EPOCH|NAME]")


def open_place(
    place: str, at: str | None = None, *, operator: str | None = None
) -> tuple[Catalog, Manifest]:
    """Open a store and the epoch that its address or an option names.

    Of several regions it is that of the operator, or else the first.

    Raises:
        UsageError: Both name one.
        SnapshotNotFoundError: There is no such store, epoch or name.
    """
    from riverlock.snapshot.address import open_store, split_address

    store, named = split_address(place)
    if at is not None and named is not None:
        raise click.UsageError("give the epoch once: STORE@EPOCH or --at")
    catalog = open_store(store)
    found = catalog.resolve_all(at or named)
    with_it = (m for m in found if operator in m.operators)
    manifest = next(with_it, found[0])
    return catalog.of(manifest.region), manifest


def open_snapshot(place: str) -> tuple[Catalog, Snapshot]:
    """Open a store and the snapshot that its address names, of all regions.

    Raises:
        SnapshotNotFoundError: There is no such store, epoch or name.
    """
    from riverlock.query.snapshot import Snapshot
    from riverlock.snapshot.address import open_store, split_address

    store, at = split_address(place)
    catalog = open_store(store)
    first, *others = catalog.resolve_all(at)
    return catalog, Snapshot(catalog.storage, first, tuple(others))
