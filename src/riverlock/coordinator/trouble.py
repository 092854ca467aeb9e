"""The errors a run stops with, made from what the shell has reported."""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from riverlock.coordinator.events import CommitOutcome
from riverlock.coordinator.phase import Deciding, Planning, Recovering
from riverlock.core.errors import (
    CommitRejectedError,
    CommitUnknownError,
    EpochAbortedError,
    SinkError,
    SinkUnavailableError,
    StorageError,
)

if TYPE_CHECKING:
    from riverlock.coordinator.events import (
        PlanFailed,
        PutFailed,
        SinkFailed,
        StageFailed,
    )
    from riverlock.coordinator.phase import BackingOff
    from riverlock.core.errors import RiverlockError

__all__ = ["aborted_error", "error_if_stopped", "put_error", "sink_error"]


def aborted_error(event: PlanFailed | StageFailed, epoch: int) -> RiverlockError:
    """Return the shell's own error, which knows more, or else the reason as one."""
    if event.error is not None:
        return event.error
    return EpochAbortedError(epoch=epoch, reason=event.reason.value, cause=event.cause)


def put_error(event: PutFailed, epoch: int) -> StorageError:
    """Return why it is unknown whether an epoch exists."""
    what = f"the manifest of epoch {epoch}"
    return StorageError("put", what, event.cause, retryable=event.retryable)


def error_if_stopped(state: BackingOff) -> RiverlockError | None:
    """Return what a stop request in the middle of a delay ends with.

    An aborted epoch has left nothing behind, so that stopping is no failure; an epoch
    of which it is unknown whether it exists is left to the next run, and said so.
    """
    match state.then:
        case Planning():
            return None
        case Recovering() | Deciding():
            return state.error
        case _:
            assert_never(state.then)


def sink_error(event: SinkFailed) -> SinkError:
    """Return the error that says whether the outcome is known."""
    match event.outcome:
        case CommitOutcome.REJECTED:
            kind: type[SinkError] = CommitRejectedError
        case CommitOutcome.UNKNOWN:
            kind = CommitUnknownError
        case CommitOutcome.RETRY:
            kind = SinkError
        case CommitOutcome.AWAY:
            kind = SinkUnavailableError
        case _:
            assert_never(event.outcome)
    return kind(event.sink, epoch=event.epoch, what=event.cause)
