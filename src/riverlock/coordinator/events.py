"""What the shell reports: facts that have happened, in the past tense.

An answer repeats the ``turn`` of the instruction it answers. A turn is one attempt at
an epoch; an answer to an earlier turn comes too late and is ignored. Answers about
sinks repeat the epoch instead, since a commit of an epoch is the same in every turn.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, TypeAlias

from riverlock.coordinator.markers import Markers

if TYPE_CHECKING:
    from collections.abc import Mapping

    from riverlock.coordinator.votes import Vote
    from riverlock.core.errors import RiverlockError
    from riverlock.snapshot.format.records import (
        Change,
        InputRange,
        Manifest,
        StateFile,
        Watermark,
    )

__all__ = [
    "AbortReason",
    "Asked",
    "CommitOutcome",
    "Compacted",
    "Event",
    "Fenced",
    "ManifestPut",
    "NothingToDo",
    "PlanFailed",
    "Planned",
    "PutFailed",
    "Recovered",
    "RereadFailed",
    "RescaleRequested",
    "Restarted",
    "SinkCommitted",
    "SinkFailed",
    "StageFailed",
    "StageVoted",
    "StopRequested",
]


class AbortReason(StrEnum):
    """Why an epoch did not happen; the value is the sentence for people."""

    PLANNING = "its inputs could not be planned"
    USER_CODE = "user code raised"
    TASK = "a task failed"
    SOURCE = "an input could not be read"
    AWAY = "the system of an input or sink does not answer"
    CHANGED = "an input is not as it was planned"
    STATE = "state could not be read or written"
    STORAGE = "the store could not be read or written"
    VOTES = "the votes of a stage do not fit the plan"
    RACE = "another run decided this epoch"
    FENCED = "another run owns the region"


class CommitOutcome(StrEnum):
    """What a sink that did not commit said."""

    REJECTED = "refused for good"
    UNKNOWN = "did not answer: committed or not"
    RETRY = "did not commit but may later"
    AWAY = "cannot be reached"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Event:
    region: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovered(_Event):
    """The store was read: first after claiming the run number, then on Reread.

    Attributes:
        newest: The newest manifest.
        settled: Sinks that do not get it: it was not decided for them.
    """

    newest: Manifest | None
    settled: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class RereadFailed(_Event):
    """The newest manifest could not be read."""

    cause: str
    retryable: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned(_Event):
    """The shell chose what the next epoch reads.

    Attributes:
        inputs: Ranges by source; sources with nothing new may be left out.
        watermarks: Event time the epoch is to use, by declaration.
        gaps: Sources that lost data and whose gap the user has accepted; all others
            must start where the parent ended.
        markers: What the epoch says of cuts.
    """

    turn: int
    inputs: Mapping[str, InputRange]
    watermarks: Mapping[str, Watermark]
    now_us: int
    seed: int
    started_us: int
    gaps: frozenset[str] = field(default=frozenset())
    markers: Markers = field(default_factory=Markers)


@dataclass(frozen=True, slots=True, kw_only=True)
class NothingToDo(_Event):
    """There is no input and no timer is due."""

    turn: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanFailed(_Event):
    """Inputs could not be planned; ``error`` is what to stop with."""

    turn: int
    reason: AbortReason
    cause: str
    retryable: bool
    error: RiverlockError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StageVoted(_Event):
    """A stage ended; its votes in the order they came."""

    turn: int
    stage: str
    votes: tuple[Vote, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StageFailed(_Event):
    """A stage failed; ``error`` is what to stop with, such as a UserCodeError."""

    turn: int
    stage: str
    reason: AbortReason
    cause: str
    retryable: bool
    error: RiverlockError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestPut(_Event):
    """The store answered the put: created by us now, or already there."""

    turn: int
    created: bool
    decided_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PutFailed(_Event):
    """The store did not answer the put: the manifest may exist or not."""

    turn: int
    cause: str
    retryable: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkCommitted(_Event):
    """The sink holds the epoch, durably, once."""

    sink: str
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkFailed(_Event):
    """The sink did not confirm."""

    sink: str
    epoch: int
    outcome: CommitOutcome
    cause: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Compacted(_Event):
    """A compaction beside the loop ended; its files are durable."""

    operator: str
    replaced: tuple[str, ...]
    by: tuple[StateFile, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StopRequested(_Event):
    """The user wants the run to end after the epoch in progress."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RescaleRequested(_Event):
    """Someone wants another number of tasks per keyed stage."""

    parallelism: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked(_Event):
    """A request was read from the store; the next epoch takes it up.

    Attributes:
        number: Its number; they come in order.
        change: Of parameters; None: it asked for something else.
    """

    number: int
    change: Change | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fenced(_Event):
    """A newer run has claimed the region, or one of a copy of the store a sink."""

    owner: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Restarted(_Event):
    """The delay of RestartAfter has passed."""


Event: TypeAlias = (
    Recovered
    | RereadFailed
    | Planned
    | NothingToDo
    | PlanFailed
    | StageVoted
    | StageFailed
    | ManifestPut
    | PutFailed
    | SinkCommitted
    | SinkFailed
    | Compacted
    | StopRequested
    | RescaleRequested
    | Asked
    | Fenced
    | Restarted
)
