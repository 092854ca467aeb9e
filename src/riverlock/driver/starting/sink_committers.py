"""Finds the committer of a sink that needs nothing of an engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from riverlock.connectors.base.sink import TwoPhaseSink
from riverlock.connectors.builtin_committers import (
    ConsoleCommitter,
    MemoryCommitter,
)
from riverlock.core.errors import InvalidFlowError
from riverlock.sinks import ConsoleSink, MemorySink

if TYPE_CHECKING:
    from riverlock.connectors.base.committer import Committer
    from riverlock.connectors.base.sink import SinkUse
    from riverlock.program.graph import Write
    from riverlock.storage.base import Storage

__all__ = ["committer_of"]


def committer_of(write: Write, use: SinkUse, storage: Storage) -> Committer:
    """Return what commits a sink.

    Raises:
        InvalidFlowError: Nothing does.
    """
    sink = write.sink
    match sink:
        case MemorySink():
            return MemoryCommitter(sink, storage, replaces=write.replaces)
        case ConsoleSink():
            return ConsoleCommitter(sink, storage)
        case TwoPhaseSink():
            return sink.committer(use, storage)
        case _:
            raise InvalidFlowError(
                "write()",
                expected="a sink from rl.sinks, or a TwoPhaseSink",
                found=repr(sink),
            )
