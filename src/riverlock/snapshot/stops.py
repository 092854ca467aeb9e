"""Asking a run to stop, from another process: a file that its heart looks for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from riverlock.core.errors import SnapshotCorruptedError, StorageNotFoundError
from riverlock.snapshot.records import StopRequest
from riverlock.snapshot.sealed import seal, unseal

if TYPE_CHECKING:
    from riverlock.snapshot.catalog import Catalog
    from riverlock.snapshot.records import Run

__all__ = ["ask_to_stop", "forget_stop", "stop_request"]


def ask_to_stop(
    catalog: Catalog, run: Run, *, savepoint: str | None, now_us: int
) -> None:
    """Ask a run to finish the epoch under way and end.

    Args:
        catalog: The store.
        run: The run.
        savepoint: A name for the last epoch of the run.
        now_us: The present.

    Raises:
        InvalidConfigError: The name is taken.
    """
    if savepoint is not None:
        catalog.check_name(savepoint)
    asked = StopRequest(run=run.run, asked_us=now_us, savepoint=savepoint)
    catalog.storage.put(catalog.paths.stop_request(run.run), seal(asked))


def stop_request(catalog: Catalog, run: int) -> StopRequest | None:
    """Return what a run was asked; a request that is damaged asks nothing."""
    path = catalog.paths.stop_request(run)
    try:
        return unseal(catalog.storage.get(path), StopRequest, path=path)
    except (StorageNotFoundError, SnapshotCorruptedError):
        return None


def forget_stop(catalog: Catalog, run: int) -> None:
    """Remove what a run was asked, once it has ended."""
    catalog.storage.delete(catalog.paths.stop_request(run))
