"""When a region goes back with all others, and what it may read until they have.

A reset is decided by one put, which gives it a number and names an epoch of each
region: a consistent cut. Regions take it up one by one, each when it plans its next
epoch, and no one waits for another one. Three rules keep them consistent meanwhile,
with a fourth for cuts (``coordinator/cuts``):

1. before it plans an epoch, a region takes up the last reset that it knows of; that
   epoch and all later ones say its number;
2. of a writer that has not taken up the same reset, a region reads what belongs to the
   cut, and nothing else;
3. no region reads an epoch that says a greater number than its own;
4. the epochs of a cut say one number.

The number is a field of the writer's manifest, so a region learns of a reset no later
than of rows behind it. All that is asked here is in the store: whoever died, or has not
heard of the reset otherwise, decides the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping

    from riverlock.snapshot.timeline import Span

__all__ = [
    "GoBack",
    "Order",
    "Reset",
    "Say",
    "Standing",
    "Stray",
    "Writer",
    "held_at",
    "is_ahead",
    "resumed_at",
    "taken_up",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reset:
    """A decision to go back. Numbers grow and are never used again.

    Attributes:
        number: From 1.
        epochs: The epoch that each region goes back to.
    """

    number: int
    epochs: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """Where a region stands when it plans an epoch.

    Attributes:
        region: The region.
        reset: The number that its newest epoch says.
        same_as: Its newest epoch, and the one that this has gone back to if it has:
            the epochs whose state it has. Empty: it has no epoch.
    """

    region: str
    reset: int = 0
    same_as: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GoBack:
    """Undo what was decided since an epoch, by one that says the number."""

    reset: int
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Say:
    """Nothing is to be undone: an epoch is due that says the number."""

    reset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Stray:
    """The region has epochs, and no place in the cut: it must not go on."""

    reset: int


Order: TypeAlias = GoBack | Say | Stray


def taken_up(standing: Standing, last: Reset | None) -> Order | None:
    """Return what a region does about resets before it plans; None: nothing.

    Args:
        standing: Where it stands.
        last: The last reset there is. Those before it need not be taken up any more.
    """
    if last is None or last.number <= standing.reset:
        return None
    if not standing.same_as:
        return Say(reset=last.number)  # it begins behind the reset
    target = last.epochs.get(standing.region)
    if target is None:
        return Stray(reset=last.number)
    if target in standing.same_as:
        return Say(reset=last.number)
    return GoBack(reset=last.number, epoch=target)


def is_ahead(own: int, said: int) -> bool:
    """Tell whether an epoch of a writer must not be read yet.

    Args:
        own: The number of the reader.
        said: The number that the epoch says.
    """
    return said > own


def held_at(own: Reset | None, writer: str, position: int) -> int | None:
    """Return the first epoch of a writer that is behind the cut.

    It and all after it must not be read before it is known that the writer has taken
    up the reset too; whether an earlier one belongs to the cut, the writer's epoch in
    the cut says.

    Args:
        own: What the reader has taken up last.
        writer: The region that fills the channel.
        position: The first epoch that is not read yet.

    Returns:
        None if there is no such epoch: nothing was taken up, or the reader has read on
        since, which it could not have done otherwise.
    """
    target = None if own is None else own.epochs.get(writer)
    if target is None or position > target + 1:
        return None
    return target + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Writer:
    """The newest epoch of a writer.

    Attributes:
        epoch: Its number.
        reset: The number of the reset that it says.
        timeline: The epochs that led to it.
    """

    epoch: int
    reset: int
    timeline: tuple[Span, ...]


def resumed_at(own: int, held: int, writer: Writer) -> int | None:
    """Return where a reader goes on behind the cut; None: it does not yet.

    What the writer has decided before it took up the reset is passed over at once: it
    was undone, and nobody's position is among it.

    Args:
        own: The number of the reader.
        held: The first epoch behind the cut.
        writer: The newest epoch of the writer.
    """
    if writer.reset != own:
        return None
    after = [max(first, held) for first, end in writer.timeline if end >= held]
    return min(after, default=writer.epoch + 1)
