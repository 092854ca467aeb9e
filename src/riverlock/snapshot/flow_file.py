"""``flow.json``: whose store it is, and what its readers must know (format §2, §9)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from riverlock.core.errors import (
    InvalidConfigError,
    SnapshotNotFoundError,
    StorageNotFoundError,
    UnsupportedFormatError,
)
from riverlock.snapshot.format.records import (
    FORMAT,
    JOINED_FEATURE,
    LISTS_FEATURE,
    PARENTS_FEATURE,
    REGIONS_FEATURE,
    RESETS_FEATURE,
    Flow,
)
from riverlock.snapshot.format.sealed import seal, unseal
from riverlock.snapshot.format.store_layout import FLOW

if TYPE_CHECKING:
    from riverlock.storage.base import Storage

__all__ = ["FEATURES", "add_features", "opened_flow", "read_flow"]

FEATURES = frozenset(
    {PARENTS_FEATURE, REGIONS_FEATURE, LISTS_FEATURE, JOINED_FEATURE, RESETS_FEATURE}
)


def read_flow(storage: Storage) -> Flow:
    """Return the flow of a store.

    Raises:
        SnapshotNotFoundError: There is no store here.
        UnsupportedFormatError: A newer version wrote it.
    """
    try:
        data = storage.get(FLOW)
    except StorageNotFoundError as error:
        raise SnapshotNotFoundError(
            "a store", store=storage.uri, available="no flow.json"
        ) from error
    found = unseal(data, Flow, path=FLOW)
    if found.format > FORMAT or not FEATURES.issuperset(found.features):
        raise UnsupportedFormatError(
            FLOW,
            supported=FORMAT,
            found=f"{found.format} with features {list(found.features)}",
        )
    return found


def opened_flow(storage: Storage, fresh: Flow) -> Flow:
    """Return the flow of a store, which gets a fresh one if it has none.

    Raises:
        InvalidConfigError: The store belongs to another flow, or the number of key
            groups differs.
    """
    if not storage.exists(FLOW) and storage.put_if_absent(FLOW, seal(fresh)):
        return fresh
    found = read_flow(storage)
    if found.name != fresh.name:
        raise InvalidConfigError(
            f"store {storage.uri}",
            expected=f"the store of flow {fresh.name!r}",
            found=f"flow {found.name!r}",
            hint="give each flow a store of its own",
        )
    if found.key_groups != fresh.key_groups:
        raise InvalidConfigError(
            f"key_groups={fresh.key_groups} of flow {fresh.name!r}",
            expected=f"{found.key_groups}, fixed when the store was made",
            found=str(fresh.key_groups),
        )
    return add_features(storage, found, fresh.features)


def add_features(storage: Storage, flow: Flow, features: tuple[str, ...]) -> Flow:
    """Return a flow with these features, which the store has from now on."""
    missing = [f for f in features if f not in flow.features]
    if not missing:
        return flow
    found = msgspec.structs.replace(flow, features=(*flow.features, *missing))
    storage.put(FLOW, seal(found))
    return found
