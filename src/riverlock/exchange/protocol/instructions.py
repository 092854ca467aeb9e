"""What the protocol of a task tells the shell to do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from riverlock.core.errors import ExchangeError
    from riverlock.exchange.protocol.frames import Frame

__all__ = ["End", "HasFrames", "Instruction", "LookAgain", "Transmit"]


@dataclass(frozen=True, slots=True, kw_only=True)
class HasFrames:
    """Tell ``Writable`` when the connection to a peer can take a frame."""

    peer: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Transmit:
    """Send a frame: the answer to ``Writable``; none, if there is nothing to send."""

    peer: int
    frame: Frame


@dataclass(frozen=True, slots=True)
class LookAgain:
    """What the task may be waiting for has changed: tables, room, turns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """The generation is over; nothing more will come of it."""

    error: ExchangeError


Instruction: TypeAlias = HasFrames | Transmit | LookAgain | End
