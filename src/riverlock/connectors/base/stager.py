"""The tasks' part of a sink: rows are staged, nothing is visible yet."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from riverlock.core.ids import MAIN_REGION
from riverlock.snapshot.format.store_layout import RegionPaths

if TYPE_CHECKING:
    import pyarrow as pa

    from riverlock.storage.base import Storage

__all__ = ["StagePoint", "Stager"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StagePoint:
    """Where and when a task stages."""

    storage: Storage
    folder: str  # of the epoch, below the store
    epoch: int
    attempt: str  # unique for ever
    flow: str = ""  # the id of the store's flow, as in the Owner of the committer
    token: str = ""  # of the run, as there
    region: str = MAIN_REGION

    def channel_file(self, channel: str) -> str:
        """Return where the task puts what it adds to a channel."""
        return RegionPaths(self.region).channel_file(channel, self.epoch, self.attempt)


class Stager(Protocol):
    """Stages the rows of one task for one sink.

    Called at most once per task attempt, with a table that has at least one row. What
    it returns (JSON) goes into the manifest and comes back to the sink's commit.
    Everything it wrote must be durable when it returns, and invisible to readers of the
    sink; attempts that are not voted for are never referred to again. Picklable.
    """

    def stage(self, table: pa.Table, at: StagePoint) -> list[Any]:
        """Write the rows; return tokens."""
        ...
