"""Where a region is in the life of its epoch."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, ClassVar, TypeAlias

if TYPE_CHECKING:
    from riverlock.coordinator.epoch import (
        PendingEpoch,
        PlannedInputs,
        PublishedEpoch,
        SealedEpoch,
    )
    from riverlock.core.errors import RiverlockError

__all__ = [
    "TRANSITIONS",
    "BackingOff",
    "Committing",
    "Deciding",
    "Phase",
    "Planning",
    "Recovering",
    "Running",
    "State",
    "Stopped",
]


#                 newest           sinks          inputs          votes
#     RECOVERING ───────► COMMITTING ───► PLANNING ─────► RUNNING ────► DECIDING
#      │ │ ▲ ▲                 ▲          ▲  │ ▲             │           │ │ │ ▲
#      │ │ │ │                 └──────────┼──┼─┼─────────────┼── created ┘ │ │ │
#      │ │ │ └────────────────────────────┼──┼─┼─────────────┼── exists ───┘ │ │
#      │ └─┼──────── no epoch yet ────────┘  │ │             │               │ │
#      │   │                          failed │ │ redo        │ failed        │ │
#      │   │ read again                      ▼ │             ▼     no answer │ │
#      └───┴───────────────────────────► BACKING_OFF ◄───────────────────────┘ │
#                                             └──────── put again ─────────────┘
#
# COMMITTING tries its sinks again in place: what is decided is never aborted. Every
# phase may lead to STOPPED, and nothing leads out of it.
class Phase(Enum):
    """What the region is waiting for."""

    RECOVERING = auto()  # the newest manifest
    PLANNING = auto()  # inputs of the next epoch
    RUNNING = auto()  # votes
    DECIDING = auto()  # the put of the manifest
    COMMITTING = auto()  # sinks
    BACKING_OFF = auto()  # a delay
    STOPPED = auto()  # nothing, for ever


TRANSITIONS: dict[Phase, frozenset[Phase]] = {
    Phase.RECOVERING: frozenset(
        {Phase.COMMITTING, Phase.PLANNING, Phase.BACKING_OFF, Phase.STOPPED}
    ),
    Phase.PLANNING: frozenset({Phase.RUNNING, Phase.BACKING_OFF, Phase.STOPPED}),
    Phase.RUNNING: frozenset(
        {Phase.RUNNING, Phase.DECIDING, Phase.BACKING_OFF, Phase.STOPPED}
    ),
    Phase.DECIDING: frozenset(
        {Phase.COMMITTING, Phase.RECOVERING, Phase.BACKING_OFF, Phase.STOPPED}
    ),
    Phase.COMMITTING: frozenset({Phase.COMMITTING, Phase.PLANNING, Phase.STOPPED}),
    Phase.BACKING_OFF: frozenset(
        {Phase.RECOVERING, Phase.PLANNING, Phase.DECIDING, Phase.STOPPED}
    ),
    Phase.STOPPED: frozenset(),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovering:
    """Waiting for the newest manifest.

    Attributes:
        lost: The epoch whose manifest was already there: another run's, or our own
            if the answer to an earlier put was lost.
    """

    phase: ClassVar[Phase] = Phase.RECOVERING
    lost: SealedEpoch | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Planning:
    """Waiting for the inputs of the next epoch."""

    phase: ClassVar[Phase] = Phase.PLANNING
    retry_of: PlannedInputs | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """Waiting for the votes of the first stage that has none."""

    phase: ClassVar[Phase] = Phase.RUNNING
    pending: PendingEpoch


@dataclass(frozen=True, slots=True, kw_only=True)
class Deciding:
    """Waiting for the store to answer the put."""

    phase: ClassVar[Phase] = Phase.DECIDING
    sealed: SealedEpoch


@dataclass(frozen=True, slots=True, kw_only=True)
class Committing:
    """Waiting for the sinks of a decided epoch."""

    phase: ClassVar[Phase] = Phase.COMMITTING
    published: PublishedEpoch


@dataclass(frozen=True, slots=True, kw_only=True)
class BackingOff:
    """Waiting for a delay, then continuing with ``then``; ``error`` is why."""

    phase: ClassVar[Phase] = Phase.BACKING_OFF
    then: Recovering | Planning | Deciding
    error: RiverlockError


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopped:
    """The run is over."""

    phase: ClassVar[Phase] = Phase.STOPPED
    error: RiverlockError | None


State: TypeAlias = (
    Recovering | Planning | Running | Deciding | Committing | BackingOff | Stopped
)
