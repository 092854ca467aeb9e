"""Files of a fork that are in the store it was forked from (format §6.2).

``parents/<flow>/<path>`` is ``<path>`` of the store that ``parents/<flow>.json`` names,
unless the fork has a file of that very name itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from riverlock.core.errors import StorageNotFoundError
from riverlock.snapshot.format.records import Origin
from riverlock.snapshot.format.sealed import unseal
from riverlock.snapshot.format.store_layout import PARENTS, parent_path
from riverlock.storage.open import open_storage

if TYPE_CHECKING:
    from riverlock.storage.base import Storage

__all__ = ["holds", "locate", "own_path", "parent_in", "read_parent"]


def parent_in(path: str) -> str | None:
    """Return the flow whose store a path leads to; None: it is our own."""
    if not path.startswith(PARENTS):
        return None
    return path.removeprefix(PARENTS).partition("/")[0]


def own_path(path: str) -> str:
    """Return the path of a file in the store that it was written to."""
    flow = parent_in(path)
    return path if flow is None else path.removeprefix(f"{PARENTS}{flow}/")


def read_parent(storage: Storage, flow: str) -> Origin | None:
    """Return where the files of another flow are."""
    path = parent_path(flow)
    try:
        return unseal(storage.get(path), Origin, path=path)
    except StorageNotFoundError:
        return None


def locate(storage: Storage, path: str) -> tuple[Storage, str]:
    """Return the storage that holds a referenced file, and its path there."""
    flow = parent_in(path)
    if flow is None or storage.exists(path):
        return storage, path
    parent = read_parent(storage, flow)
    if parent is None:
        return storage, path
    return open_storage(parent.store), own_path(path)


def holds(storage: Storage, path: str) -> bool:
    """Tell whether a referenced file exists."""
    home, inner = locate(storage, path)
    return home.exists(inner)
