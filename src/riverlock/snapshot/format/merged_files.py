"""Merged files that wait for the epoch that will refer to them (format §5.4).

A run may end before its next epoch. The record lets the next run take them up, and
keeps them from deletion until then.
"""

from __future__ import annotations

import contextlib
import uuid
from typing import TYPE_CHECKING

from riverlock.core.errors import SnapshotCorruptedError, StorageNotFoundError
from riverlock.snapshot.format.records import Merged
from riverlock.snapshot.format.sealed import seal, unseal
from riverlock.snapshot.format.store_layout import records

if TYPE_CHECKING:
    from collections.abc import Iterator

    from riverlock.snapshot.catalog import Catalog
    from riverlock.snapshot.format.records import Manifest

__all__ = ["damaged", "fits", "forget_merged", "is_there", "note_merged", "waiting"]


def note_merged(catalog: Catalog, merged: Merged) -> str | None:
    """Record what waits; return where, or None if some of it is already gone.

    In this order: whoever looks from now on spares the files; whoever looked before may
    have deleted some of them.
    """
    path = f"{catalog.paths.merged}{uuid.uuid4().hex}.json"
    catalog.storage.put(path, seal(merged))
    if is_there(catalog, merged):
        return path
    forget_merged(catalog, path)
    return None


def is_there(catalog: Catalog, merged: Merged) -> bool:
    """Tell whether all merged files exist."""
    return all(catalog.storage.exists(file.path) for file in merged.by)


def waiting(catalog: Catalog) -> Iterator[tuple[str, Merged]]:
    """Yield what was merged and may still wait, each with its path.

    Raises:
        SnapshotCorruptedError: A record is damaged: which files it keeps is unknown.
    """
    for path in _listed(catalog):
        # Whoever merged it forgets it when it is settled.
        with contextlib.suppress(StorageNotFoundError):
            yield path, _read(catalog, path)


def damaged(catalog: Catalog) -> Iterator[tuple[str, SnapshotCorruptedError]]:
    """Yield the records that cannot be read, each with its path."""
    for path in _listed(catalog):
        try:
            with contextlib.suppress(StorageNotFoundError):
                _read(catalog, path)
        except SnapshotCorruptedError as error:
            yield path, error


def _listed(catalog: Catalog) -> list[str]:
    return [e.path for e in records(catalog.storage.list(catalog.paths.merged))]


def _read(catalog: Catalog, path: str) -> Merged:
    return unseal(catalog.storage.get(path), Merged, path=path)


def fits(merged: Merged, newest: Manifest) -> bool:
    """Tell whether an epoch after this one can take it up."""
    state = newest.operators.get(merged.operator)
    live = set() if state is None else {file.path for file in state.files}
    return live.issuperset(merged.replaced)


def forget_merged(catalog: Catalog, path: str) -> None:
    """Release what was taken up, or never will be."""
    catalog.storage.delete(path)
