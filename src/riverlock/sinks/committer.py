"""What runs in the driver for a sink: makes a decided epoch visible, once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from riverlock.snapshot.records import SinkOutput

__all__ = ["Committer", "Owner"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """On whose behalf a sink is written."""

    flow: str  # the id of the store's flow
    sink: str
    run: int


class Committer(Protocol):
    """Makes epochs visible.

    Order of calls: ``open`` once per run, then ``commit`` for epochs in order; the
    newest epoch may be committed again by this or a later run, with the same output.
    ``commit`` returns when readers see the epoch, whole. It is idempotent. Called from
    one thread of the driver.

    Raises:
        CommitRejectedError: The sink refuses this output for good.
        CommitUnknownError: It did not answer; the driver calls ``commit`` again.
        SinkError, StorageError: It did not work; the driver calls ``commit`` again.
    """

    @property
    def guarantee(self) -> str:
        """What readers get, in words."""
        ...

    def open(self, owner: Owner) -> None:
        """Check that the sink can be written by this flow."""
        ...

    def commit(self, epoch: int, output: SinkOutput) -> None:
        """Make the output of a decided epoch visible."""
        ...
