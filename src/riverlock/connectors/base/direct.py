"""Rows that leave with their task, before their epoch is decided: `at least once`.

The one mechanism for it: a sink that can take rows from tasks has a second stager, and
that delivers them and returns no tokens. So the manifest lists nothing for a committer
to do, and nobody else has to know. Other sinks get their rows when the epoch is
decided, which keeps the promise as well.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from riverlock.connectors.base.sink import Sink
from riverlock.core.errors import (
    CommitRejectedError,
    EpochAbortedError,
    SinkUnavailableError,
)
from riverlock.core.guarantees import AT_LEAST_ONCE, AT_MOST_ONCE
from riverlock.core.user_lines import raising_line

if TYPE_CHECKING:
    from collections.abc import Iterator

    from riverlock.connectors.base.sink import SinkUse
    from riverlock.connectors.base.stager import Stager

__all__ = ["DirectSink", "delivering", "direct_stager", "promised"]

_DIRECT = "at least once: rows leave with their task, and again if it is tried again"
_ONCE = "at most once: rows are handed over once, when their epoch is decided"


@runtime_checkable
class DirectSink(Sink, Protocol):
    """A sink that can take rows from tasks, in a region that is `at least once`."""

    def direct_stager(self, use: SinkUse) -> Stager | None:
        """Return what delivers rows inside tasks; None: they wait for the decision.

        Its ``stage`` returns no tokens, and only when the sink has the rows for good.
        What it raises aborts the epoch, whose input is read again (see ``delivering``).
        """
        ...


def direct_stager(sink: Sink, use: SinkUse, guarantee: str) -> Stager | None:
    """Return what delivers rows of a region inside tasks; None: they are staged."""
    if guarantee == AT_LEAST_ONCE and isinstance(sink, DirectSink):
        return sink.direct_stager(use)
    return None


def promised(sink: Sink, use: SinkUse, guarantee: str, otherwise: str) -> str:
    """Return what readers of a sink get in a region, in words.

    Args:
        sink: The sink.
        use: How the flow uses it.
        guarantee: What the region promises.
        otherwise: What the committer says.
    """
    if guarantee == AT_MOST_ONCE:
        return _ONCE
    return otherwise if direct_stager(sink, use, guarantee) is None else _DIRECT


@contextmanager
def delivering(sink: str, epoch: int) -> Iterator[None]:
    """Report what keeps rows from being delivered as what becomes of the epoch.

    Raises:
        CommitRejectedError: The sink refuses them for good.
        SinkUnavailableError: It does not answer: it is waited for.
        EpochAbortedError: It did not work; rows may be there, and come again.
    """
    try:
        yield
    except (CommitRejectedError, SinkUnavailableError):
        raise
    except Exception as error:
        line = raising_line(error.__traceback__)
        raise EpochAbortedError(
            epoch=epoch,
            reason=f"delivering rows to sink {sink!r}",
            cause=f"{type(error).__name__}: {error}" + (f" ({line})" if line else ""),
        ) from error
