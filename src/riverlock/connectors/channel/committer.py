"""The driver's part of a channel: nothing, for the manifest itself commits its rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from riverlock.connectors.base.committer import Owner
    from riverlock.snapshot.format.records import SinkOutput

__all__ = ["ChannelCommitter"]


class ChannelCommitter:
    """Has nothing to do: what a decided epoch lists, readers see."""

    guarantee = "exactly once: rows are there when their epoch is decided"

    def open(self, owner: Owner) -> None:
        """Nothing to open."""

    def commit(self, epoch: int, output: SinkOutput) -> None:
        """Nothing to do."""
