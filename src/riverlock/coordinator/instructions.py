"""What the shell must do, in the imperative; carried out in this order."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping

    from riverlock.coordinator.epoch import PlannedInputs
    from riverlock.coordinator.events import AbortReason
    from riverlock.coordinator.votes import Vote
    from riverlock.core.errors import RiverlockError
    from riverlock.snapshot.format.records import Manifest, SinkOutput

__all__ = [
    "AbortEpoch",
    "CleanUp",
    "CommitSink",
    "GiveUpSink",
    "Instruction",
    "PlanInputs",
    "PublishStatus",
    "PutManifest",
    "Reread",
    "RestartAfter",
    "RetrySink",
    "RunStage",
    "Stop",
    "Wait",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Instruction:
    region: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanInputs(_Instruction):
    """Choose the inputs of an epoch; answer Planned, NothingToDo or PlanFailed.

    Attributes:
        retry_of: Plan of the aborted epoch this one redoes: its ranges must be used
            again. None if they are no longer what they were.
        skips: Whether to leave out what waits, and go on with the newest input.
    """

    epoch: int
    turn: int
    parent: Manifest | None
    retry_of: PlannedInputs | None
    skips: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStage(_Instruction):
    """Run one stage; answer StageVoted or StageFailed.

    Attributes:
        planned: What the epoch reads and sees.
        earlier: The votes that count of the stages before, for what they staged.
        parallelism: How many tasks a keyed stage has in this epoch.
    """

    epoch: int
    turn: int
    stage: str
    planned: PlannedInputs
    earlier: Mapping[str, tuple[Vote, ...]]
    parallelism: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PutManifest(_Instruction):
    """Put the manifest if absent, with ``decided_us`` set to now.

    Before that, put the lists that it refers to, by path. Answer ManifestPut if the
    store has answered, else PutFailed.
    """

    epoch: int
    turn: int
    manifest: Manifest
    lists: Mapping[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitSink(_Instruction):
    """Commit a decided epoch, again if need be; answer SinkCommitted or SinkFailed."""

    epoch: int
    sink: str
    output: SinkOutput


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrySink(_Instruction):
    """Wait, then do as for CommitSink; a stop request need not wait."""

    epoch: int
    sink: str
    output: SinkOutput
    delay_us: int
    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GiveUpSink(_Instruction):
    """Note that a sink may lack rows of an epoch, and never gets them; no answer."""

    epoch: int
    sink: str
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishStatus(_Instruction):
    """Show that the epoch is complete; no answer."""

    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanUp(_Instruction):
    """Let compaction and retention run beside the loop; may lead to Compacted."""

    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AbortEpoch(_Instruction):
    """Forget an epoch that did not happen; no answer."""

    epoch: int
    turn: int
    reason: AbortReason
    cause: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait(_Instruction):
    """Wait for input or time, then answer PlanInputs of the same turn once more."""

    turn: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartAfter(_Instruction):
    """Wait, then answer Restarted; a stop request need not wait."""

    delay_us: int
    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Reread(_Instruction):
    """Read claims and newest manifest again: answer Fenced if there is a newer run.

    Otherwise answer Recovered or RereadFailed.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop(_Instruction):
    """End the run, with an error or without; nothing is handled after it."""

    error: RiverlockError | None


Instruction: TypeAlias = (
    PlanInputs
    | RunStage
    | PutManifest
    | CommitSink
    | RetrySink
    | GiveUpSink
    | PublishStatus
    | CleanUp
    | AbortEpoch
    | Wait
    | RestartAfter
    | Reread
    | Stop
)
