"""Readers and retention: an epoch may be deleted while it is read."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from riverlock.core.errors import SnapshotCorruptedError, SnapshotNotFoundError
from riverlock.snapshot.format.store_layout import RegionPaths

if TYPE_CHECKING:
    from collections.abc import Iterator

    from riverlock.snapshot.format.records import Manifest
    from riverlock.storage.base import Storage

__all__ = ["while_retained"]


@contextlib.contextmanager
def while_retained(storage: Storage, manifest: Manifest) -> Iterator[None]:
    """Distinguish a file that is missing because its epoch is gone from damage (§8.1).

    Raises:
        SnapshotNotFoundError: The epoch has been deleted meanwhile.
        SnapshotCorruptedError: It has not, and a file is missing or altered.
    """
    try:
        yield
    except SnapshotCorruptedError as error:
        path = RegionPaths(manifest.region).manifest(manifest.epoch)
        if storage.exists(path):
            raise
        raise SnapshotNotFoundError(
            f"epoch {manifest.epoch}",
            store=storage.uri,
            available="no such epoch any more: it was deleted while it was read."
            " Give an epoch a name to keep it ('riverlock snapshot')",
        ) from error
