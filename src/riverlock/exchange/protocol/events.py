"""What the shell tells the protocol of a task."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from riverlock.core.errors import ExchangeError
    from riverlock.exchange.protocol.frames import Frame

__all__ = [
    "Abandoned",
    "Arrived",
    "CancelOrdered",
    "Closing",
    "EdgeFinished",
    "Event",
    "PeerLost",
    "Released",
    "RowsGiven",
    "Writable",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class RowsGiven:
    """The task has rows for a peer, or for itself."""

    peer: int
    edge: int
    epoch: int
    turn: int
    size: int
    count: int
    content: object


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgeFinished:
    """The task has no more rows for an edge of an epoch."""

    edge: int
    epoch: int
    turn: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Released:
    """The task does not need the table of an edge and epoch any more."""

    edge: int
    epoch: int
    turn: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelOrdered:
    """The driver wants this and later epochs dropped, and done again with this turn."""

    epoch: int
    turn: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrived:
    """A frame came from a peer; those of one peer come in the order of sending."""

    peer: int
    frame: Frame


@dataclass(frozen=True, slots=True, kw_only=True)
class Writable:
    """A connection can take one more frame."""

    peer: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerLost:
    """The connection to a peer has ended."""

    peer: int
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Abandoned:
    """The generation is over for a reason that is not in the protocol."""

    error: ExchangeError


@dataclass(frozen=True, slots=True)
class Closing:
    """The task ends in order, once everything is sent."""


Event: TypeAlias = (
    RowsGiven
    | EdgeFinished
    | Released
    | CancelOrdered
    | Arrived
    | Writable
    | PeerLost
    | Abandoned
    | Closing
)
