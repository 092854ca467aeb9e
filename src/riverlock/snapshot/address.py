"""``store@epoch`` and ``store@name``: how people name a snapshot."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from riverlock.core.errors import InvalidConfigError, SnapshotNotFoundError
from riverlock.snapshot.catalog import Catalog
from riverlock.snapshot.format.records import REGIONS_FEATURE
from riverlock.snapshot.format.store_layout import FLOW
from riverlock.storage.open import open_storage

if TYPE_CHECKING:
    from riverlock.snapshot.format.records import Manifest

__all__ = [
    "open_address",
    "open_cut",
    "open_region",
    "open_store",
    "split_address",
]

_ADDRESS = re.compile(r"(?P<store>.+)@(?P<at>[A-Za-z0-9][A-Za-z0-9_.-]{0,99})")


def open_store(store: str | os.PathLike[str]) -> Catalog:
    """Open a store that exists.

    Raises:
        SnapshotNotFoundError: There is none.
        InvalidConfigError: The address also names an epoch.
    """
    catalog = Catalog(open_storage(store))
    try:
        catalog.flow()
    except SnapshotNotFoundError:
        match = _ADDRESS.fullmatch(os.fspath(store))
        if match is None or not open_storage(match["store"]).exists(FLOW):
            raise
        raise InvalidConfigError(
            f"store {os.fspath(store)!r}",
            expected="a store as a whole",
            found=f"one of its epochs, @{match['at']}",
            hint=f"leave out @{match['at']}",
        ) from None
    return catalog


def split_address(address: str) -> tuple[str, str | None]:
    """Return the store and what follows the last ``@``, unless that is in its name.

    >>> split_address("store@v1"), split_address("/home/me@work/store")
    (('store', 'v1'), ('/home/me@work/store', None))
    """
    match = _ADDRESS.fullmatch(address)
    if match is None or open_storage(address).exists(FLOW):
        return address, None
    return match["store"], match["at"]


def open_address(address: str) -> tuple[Catalog, Manifest]:
    """Open a store and the manifest of an epoch; by default the newest.

    Raises:
        SnapshotNotFoundError: There is no such store, epoch or name.
    """
    store, at = split_address(address)
    catalog = open_store(store)
    return catalog, catalog.resolve(at)


def open_cut(address: str) -> tuple[Catalog, tuple[Manifest, ...]]:
    """Open a store and one epoch of each region, such that they fit together.

    Raises:
        SnapshotNotFoundError: There is no such store, epoch or name.
        InvalidConfigError: There are several regions, and the address has no name.
    """
    store, at = split_address(address)
    catalog = open_store(store)
    if at is None and REGIONS_FEATURE in catalog.flow().features:
        names = ", ".join(named.name for named in catalog.snapshots())
        raise InvalidConfigError(
            f"the snapshot {address!r}",
            expected=f"the name of one ({names or 'none yet'})",
            found="none: the newest epochs of several regions need not fit together",
            hint="take one while the flow runs: riverlock snapshot STORE NAME",
        )
    return catalog, catalog.resolve_all(at)


def open_region(address: str, region: str | None) -> tuple[Catalog, Manifest]:
    """Open an epoch of one region: by its number, or by the name of a snapshot.

    Args:
        address: As for ``open_address``.
        region: The region; may be left out if there is only one.

    Raises:
        SnapshotNotFoundError: There is no such store, region, epoch or name.
        InvalidConfigError: There are several regions, and none is named.
    """
    store, at = split_address(address)
    catalog = open_store(store)
    if region is None:
        catalog.check_one_region(f"epoch {at or 'newest'} of {store}")
        return catalog, catalog.resolve(at)
    known = catalog.regions()
    if region not in known:
        raise SnapshotNotFoundError.among(
            f"region {region!r}", store=store, kind="region", names=known
        )
    return catalog.of(region), catalog.of(region).resolve(at)
