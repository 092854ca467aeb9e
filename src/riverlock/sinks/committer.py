"""What runs in the driver for a sink: makes a decided epoch visible, once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from riverlock.core.errors import InvalidConfigError

if TYPE_CHECKING:
    from riverlock.snapshot.records import SinkOutput

__all__ = ["Committer", "Owner", "of_the_origin"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """On whose behalf a sink is written."""

    flow: str  # the id of the store's flow
    sink: str
    run: int
    # Of a fork: the flow that it was forked from.
    origin: str | None = None


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


def of_the_origin(sink: str, place: str) -> InvalidConfigError:
    """Return the error of a fork that would write where its origin writes.

    Both read the same input from the epoch of the fork on: readers would see it twice.
    """
    return InvalidConfigError(
        f"sink {sink!r} of a fork",
        expected="an output of its own",
        found=f"{place}, which the flow it was forked from has written",
        hint="nothing was written; name another place, or, if the fork is to go on"
        " there in place of that flow, give the sink another uid",
    )
