"""Whether the place that a sink's files go to answers."""

from __future__ import annotations

from riverlock.core.errors import SinkUnavailableError, StorageError
from riverlock.storage.object import ObjectStorage

__all__ = ["reach"]

# Who asks wants to know now; a run is more patient.
_IMPATIENT = {"retry_config": {"max_retries": 1}}


def reach(path: str) -> None:
    """Ask an object store for an object; local directories need no asking.

    Raises:
        SinkUnavailableError: It does not answer, has no such bucket, or denies access.
    """
    if "://" not in path:
        return
    try:
        ObjectStorage(path, _IMPATIENT).exists("_riverlock/owner.json")
    except StorageError as error:
        raise SinkUnavailableError(path, epoch=None, what=str(error)) from error
