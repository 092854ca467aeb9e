"""What a step of an epoch raised, as errors of ours, and what it means."""

from __future__ import annotations

from typing import TYPE_CHECKING

from riverlock.coordinator.events import AbortReason, PlanFailed, StageFailed
from riverlock.core.errors import (
    CommitRejectedError,
    EpochAbortedError,
    InputChangedError,
    InternalError,
    RiverlockError,
    SinkError,
    SinkUnavailableError,
    SnapshotError,
    SourceError,
    SourceUnavailableError,
    StateError,
    StorageError,
    TimeRangeError,
    UserCodeError,
)
from riverlock.core.user_lines import raising_line
from riverlock.operators.boundary import user_error

if TYPE_CHECKING:
    from riverlock.coordinator.instructions import RunStage

__all__ = [
    "as_ours",
    "is_retryable",
    "may_pass",
    "plan_failed",
    "reason_of",
    "stage_failed",
]


def as_ours(cause: Exception, *, where: str, epoch: int | None) -> RiverlockError:
    """Return what a step raised as one of our errors, saying whose it is."""
    if isinstance(cause, RiverlockError):
        return cause
    text = f"{type(cause).__name__}: {cause}"
    if isinstance(cause, OSError):
        return EpochAbortedError(epoch=epoch, reason=where, cause=text)
    if raising_line(cause.__traceback__):
        return user_error(cause, operator=where, where="the driver", epoch=epoch)
    return InternalError(f"{where} raised {text}")


def is_retryable(error: RiverlockError) -> bool:
    """Tell whether the same step may succeed another time."""
    if isinstance(error, StorageError):
        return error.retryable
    return isinstance(
        error, EpochAbortedError | SourceUnavailableError | SinkUnavailableError
    )


def may_pass(error: RiverlockError) -> bool:
    """Tell whether a run that begins anew may get past what has ended one."""
    if isinstance(error, SinkError):
        return not isinstance(error, CommitRejectedError)
    return is_retryable(error)


def reason_of(error: RiverlockError) -> AbortReason:
    """Return to which part of an epoch an error belongs."""
    match error:
        case UserCodeError() | TimeRangeError():
            return AbortReason.USER_CODE
        case InputChangedError():
            return AbortReason.CHANGED
        case SourceUnavailableError() | SinkUnavailableError():
            return AbortReason.AWAY
        case SourceError():
            return AbortReason.SOURCE
        case StateError() | SnapshotError():
            return AbortReason.STATE
        case StorageError():
            return AbortReason.STORAGE
        case _:
            return AbortReason.TASK


def plan_failed(region: str, turn: int, error: RiverlockError) -> PlanFailed:
    """Return the event of a plan that could not be made."""
    return PlanFailed(
        region=region,
        turn=turn,
        reason=reason_of(error),
        cause=str(error),
        retryable=is_retryable(error),
        error=error,
    )


def stage_failed(order: RunStage, error: RiverlockError) -> StageFailed:
    """Return the event of a stage that has no votes."""
    return StageFailed(
        region=order.region,
        turn=order.turn,
        stage=order.stage,
        reason=reason_of(error),
        cause=str(error),
        retryable=is_retryable(error),
        error=error,
    )
