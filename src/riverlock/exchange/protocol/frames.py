"""What peers send each other, as the protocol sees it: without bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

__all__ = ["Cancel", "Credit", "Frame", "Goodbye", "Marker", "Rows"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Some rows of an edge and epoch.

    Attributes:
        size: In bytes, as it counts against credit; both sides count the same.
        count: How many rows.
        content: The rows; only the shell knows in what form.
    """

    edge: int
    epoch: int
    turn: int
    size: int
    count: int
    content: object


@dataclass(frozen=True, slots=True, kw_only=True)
class Marker:
    """No more rows of this edge, epoch and turn come from the sender.

    It tells what there was, so that nothing can be missing or twice unnoticed.
    """

    edge: int
    epoch: int
    turn: int
    frames: int
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Credit:
    """How far the other side may send on an edge.

    Both limits are told as totals since the generation began, so that credit can be
    told late, or less often, but never counted twice.

    Attributes:
        turn: The newest turn that the one who gives credit had heard of.
        bytes: Rows may be sent while fewer bytes than this were.
        epoch: The first epoch that may not be sent yet.
    """

    edge: int
    turn: int
    bytes: int
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancel:
    """Of this and later epochs, all that has a lower turn is void."""

    epoch: int
    turn: int


@dataclass(frozen=True, slots=True)
class Goodbye:
    """Nothing more comes: the sender's end is no death."""


Frame: TypeAlias = Rows | Marker | Credit | Cancel | Goodbye
