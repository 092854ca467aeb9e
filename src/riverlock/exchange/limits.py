"""How much tasks may have in flight, and how long they wait for each other."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Limits"]

_MIB = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds of a generation; all its tasks have the same.

    What is bounded is what is in flight *beside* the epoch that is being collected: its
    own table must be in memory as a whole, and how large it is follows from what the
    driver admits.

    Attributes:
        credit_bytes: How much of later epochs a task keeps for each edge and peer.
        open_epochs: How many epochs of an edge may be open at a time.
        waiting_bytes: How much a task may have waiting to be sent before it stops
            reading its sources.
        frame_bytes: How large frames are made, if rows are not larger themselves.
        greatest_frame_bytes: No frame is larger; one that claims to be is refused.
        hello_seconds: How long a stranger may take to prove who it is.
        greatest_strangers: How many may be about it at a time.
        ping_seconds: How often the driver asks tasks whether they are there.
        silent_seconds: After how long without an answer a task is lost.
        goodbye_seconds: How long the end of a task waits for what is still to be sent.
    """

    credit_bytes: int = 8 * _MIB
    open_epochs: int = 4
    waiting_bytes: int = 32 * _MIB
    frame_bytes: int = _MIB
    greatest_frame_bytes: int = 512 * _MIB
    hello_seconds: float = 10.0
    greatest_strangers: int = 64
    ping_seconds: float = 5.0
    silent_seconds: float = 60.0
    goodbye_seconds: float = 5.0
