"""What a step of an epoch raised, as errors of ours, and what it means."""

from __future__ import annotations

from riverlock.coordinator.events import AbortReason
from riverlock.core.errors import (
    EpochAbortedError,
    InputChangedError,
    InternalError,
    RiverlockError,
    SnapshotError,
    SourceError,
    SourceUnavailableError,
    StateError,
    StorageError,
    TimeRangeError,
    UserCodeError,
)
from riverlock.operators.boundary import user_error, user_line

__all__ = ["as_ours", "is_retryable", "reason_of"]


def as_ours(cause: Exception, *, where: str, epoch: int | None) -> RiverlockError:
    """Return what a step raised as one of our errors, saying whose it is."""
    if isinstance(cause, RiverlockError):
        return cause
    text = f"{type(cause).__name__}: {cause}"
    if isinstance(cause, OSError):
        return EpochAbortedError(epoch=epoch, reason=where, cause=text)
    if user_line(cause.__traceback__):
        return user_error(cause, operator=where, where="the driver", epoch=epoch)
    return InternalError(f"{where} raised {text}")


def is_retryable(error: RiverlockError) -> bool:
    """Tell whether the same step may go well another time."""
    if isinstance(error, StorageError):
        return error.retryable
    return isinstance(error, EpochAbortedError | SourceUnavailableError)


def reason_of(error: RiverlockError) -> AbortReason:
    """Return in which part of an epoch an error belongs."""
    match error:
        case UserCodeError() | TimeRangeError():
            return AbortReason.USER_CODE
        case InputChangedError():
            return AbortReason.CHANGED
        case SourceUnavailableError():
            return AbortReason.AWAY
        case SourceError():
            return AbortReason.SOURCE
        case StateError() | SnapshotError():
            return AbortReason.STATE
        case StorageError():
            return AbortReason.STORAGE
        case _:
            return AbortReason.TASK
