"""One commit of a sink, and what became of it, as an event."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from riverlock.coordinator import events as ev
from riverlock.core.errors import (
    CommitRejectedError,
    CommitUnknownError,
    FencedError,
    RiverlockError,
    SinkUnavailableError,
)
from riverlock.core.user_lines import raising_line

if TYPE_CHECKING:
    from riverlock.connectors.base.committer import Committer
    from riverlock.coordinator.instructions import CommitSink, RetrySink

__all__ = ["committed"]

log = logging.getLogger(__name__)


def committed(
    committer: Committer, order: CommitSink | RetrySink
) -> ev.SinkCommitted | ev.SinkFailed | ev.Fenced:
    """Commit an epoch to a sink; whatever it raises becomes an event."""
    try:
        committer.commit(order.epoch, order.output)
    except FencedError as error:
        owner = f"{error.owner}, in {error.store},"
        return ev.Fenced(region=order.region, owner=owner)
    except CommitRejectedError as error:
        return _failed(order, ev.CommitOutcome.REJECTED, error)
    except CommitUnknownError as error:
        return _failed(order, ev.CommitOutcome.UNKNOWN, error)
    except SinkUnavailableError as error:
        return _failed(order, ev.CommitOutcome.AWAY, error)
    except Exception as error:  # noqa: BLE001 - sinks run user code and drivers
        return _failed(order, ev.CommitOutcome.RETRY, error)
    return ev.SinkCommitted(region=order.region, sink=order.sink, epoch=order.epoch)


def _failed(
    order: CommitSink | RetrySink, outcome: ev.CommitOutcome, error: Exception
) -> ev.SinkFailed:
    cause = f"{type(error).__name__}: {error}".removesuffix(": ")
    # Ours have said it all; of others, the line of the user's function.
    is_ours = isinstance(error, RiverlockError)
    line = "" if is_ours else raising_line(error.__traceback__)
    if line:
        cause += f" ({line})"
    log.warning("sink %s failed in epoch %s: %s", order.sink, order.epoch, cause)
    return ev.SinkFailed(
        region=order.region,
        sink=order.sink,
        epoch=order.epoch,
        outcome=outcome,
        cause=cause,
    )
