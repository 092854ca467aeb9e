"""``STORE@EPOCH``: a store, and optionally one of its epochs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from riverlock.snapshot.catalog import Catalog
    from riverlock.snapshot.format.records import Manifest

__all__ = ["open_place", "place_argument"]

place_argument = click.argument("place", metavar="STORE[@EPOCH|NAME]")


def open_place(place: str, at: str | None = None) -> tuple[Catalog, Manifest]:
    """Open a store and the epoch that its address or an option names.

    Raises:
        UsageError: Both name one.
        SnapshotNotFoundError: There is no such store, epoch or name.
    """
    from riverlock.snapshot.address import open_store, split_address

    store, named = split_address(place)
    if at is not None and named is not None:
        raise click.UsageError("give the epoch once: STORE@EPOCH or --at")
    catalog = open_store(store)
    return catalog, catalog.resolve(at or named)
