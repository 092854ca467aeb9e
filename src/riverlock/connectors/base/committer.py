"""The driver's part of a sink: makes a decided epoch visible, once."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from riverlock.core.errors import (
    CommitRejectedError,
    FencedError,
    ForeignEpochError,
    InvalidConfigError,
)
from riverlock.snapshot.past import Claim, Past

if TYPE_CHECKING:
    from riverlock.snapshot.format.records import SinkOutput
    from riverlock.snapshot.past import Commit

__all__ = [
    "Committer",
    "Owner",
    "check_kept",
    "check_past",
    "fenced",
    "foreign",
    "lacking",
    "of_the_origin",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """On whose behalf a sink is written."""

    flow: str  # the id of the store's flow
    sink: str
    run: int
    # Of a fork: the flow that it was forked from.
    origin: str | None = None
    # Tells this run from any other, also from those of a copy of the store.
    token: str = ""
    # What the store knows of runs and epochs before.
    past: Past = field(default_factory=Past)

    @property
    def mark(self) -> dict[str, str]:
        """The text that marks a place as this sink's."""
        return {"flow": self.flow, "sink": self.sink}

    @property
    def claim(self) -> Claim:
        """What a sink remembers about who opened it last."""
        return Claim(run=self.run, token=self.token)


class Committer(Protocol):
    """Makes epochs visible.

    Order of calls: ``open`` once per run, then ``commit`` for epochs in order; the
    newest epoch may be committed again by this or a later run, with the same output.
    ``commit`` returns when readers see the whole epoch. It is idempotent. It is called
    from one thread of the driver.

    Whether a sink has an epoch is decided by ``commit_of(epoch, output)``, never by the
    epoch's number: a store that was put back from a backup decides the same numbers
    again.

    Raises:
        FencedError: A run of another copy of the store has opened the sink since.
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
    """Return the error for a fork that would write where its origin writes.

    Both read the same input from the epoch of the fork on: readers would see it twice.
    """
    return InvalidConfigError(
        f"sink {sink!r} of a fork",
        expected="an output of its own",
        found=f"{place}, which the flow it was forked from has written",
        hint="nothing was written; name another place, or, if the fork is to"
        " replace that flow there, give the sink another uid",
    )


def check_past(
    owner: Owner, claim: Claim | None, commit: Commit | None, place: str
) -> None:
    """Check that what a sink remembers belongs to the past of the store that opens it.

    Args:
        owner: Who opens it.
        claim: Who opened it last, as the sink remembers.
        commit: The newest epoch that it has.
        place: The sink's place, for people.

    Raises:
        FencedError: A newer run of this store has opened it.
        ForeignEpochError: This store has not decided that epoch.
    """
    if claim is not None and claim.run > owner.run and owner.past.has_run(claim):
        raise fenced(owner, claim)
    if commit is not None and not owner.past.has(commit, owner.sink):
        raise foreign(owner, commit, place)


def check_kept(owner: Owner, commit: Commit | None, *, place: str, name: str) -> None:
    """Check that a sink still has what it received: it may have been put back.

    The newest epoch of the store is not required. It may wait for its commit.

    Args:
        owner: Who opens the sink.
        commit: The newest epoch that it has; None: it has none.
        place: As manifests have it; a place that is new has nothing yet.
        name: The sink's place, for people.

    Raises:
        CommitRejectedError: It lacks epochs.
    """
    output, past = owner.past.output(owner.sink), owner.past
    # Whoever remembers one of our epochs is a copy of what we wrote, wherever it is.
    is_new = commit is None and (output is None or output.place != place)
    expected = None if is_new else past.expected(owner.sink, place)
    has = None if commit is None else commit.epoch
    if expected is not None and (has is None or has < expected):
        raise lacking(owner, has, expected, name)


def lacking(
    owner: Owner, has: int | None, given: int, name: str, way_out: str = ""
) -> CommitRejectedError:
    """Return the error for a sink that has lost epochs.

    Args:
        owner: Who opens it.
        has: The newest epoch that it has.
        given: The newest epoch that it certainly had.
        name: The sink's place, for people.
        way_out: How to continue without these rows; by default with another uid.
    """
    lost, back = f"epochs up to {given}", ""
    if has is not None:
        first = has + 1
        lost = f"epoch {given}" if first == given else f"epochs {first} to {given}"
        back = f", or have the flow go back to epoch {has} with riverlock restore"
    go_on = way_out or "give the sink another uid"
    return CommitRejectedError(
        owner.sink,
        epoch=None,
        what=f"{name} lacks the rows of {lost}, which it had: was it put back from a"
        " backup, or did it lose what it had acknowledged? nothing was written; bring"
        f" the newer one back{back}; or, if these rows are to be abandoned, {go_on}",
    )


def fenced(owner: Owner, found: Claim) -> FencedError:
    """Return the error for a run whose sink another run has opened since."""
    is_ours = found.run > owner.run and owner.past.has_run(found)
    whose = "" if is_ours else " of another copy of the store"
    return FencedError(
        store=f"sink {owner.sink!r}", run=owner.run, owner=f"run {found.run}{whose}"
    )


def foreign(owner: Owner, found: Commit, place: str) -> ForeignEpochError:
    """Return the error for a sink with an epoch that this store has not decided."""
    return ForeignEpochError(
        owner.sink, place=place, epoch=found.epoch, newest=owner.past.newest
    )
