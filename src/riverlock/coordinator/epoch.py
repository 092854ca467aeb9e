"""The three lives of an epoch, each a type of its own.

    PendingEpoch ──seal──► SealedEpoch ──manifest put──► PublishedEpoch
    votes come in          every vote is in              the epoch exists;
                           nothing exists yet            sinks are told

Nothing turns back: an aborted epoch is redone as a new pending one with a higher turn.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from riverlock.coordinator.markers import Markers

if TYPE_CHECKING:
    from collections.abc import Mapping

    from riverlock.coordinator.votes import Vote
    from riverlock.core.errors import SinkError
    from riverlock.snapshot.format.records import (
        InputRange,
        Manifest,
        StateFile,
        Watermark,
    )
    from riverlock.snapshot.format.stored_parameters import Parameters

__all__ = [
    "FIRST_EPOCH",
    "Compaction",
    "PendingEpoch",
    "PlannedInputs",
    "PublishedEpoch",
    "SealedEpoch",
    "epoch_after",
]

FIRST_EPOCH = 0


def epoch_after(parent: Manifest | None) -> int:
    """Return the number of the epoch that follows a manifest."""
    return FIRST_EPOCH if parent is None else parent.epoch + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedInputs:
    """What an epoch will read, and the time and randomness its user code will see."""

    inputs: Mapping[str, InputRange]
    watermarks: Mapping[str, Watermark]
    now_us: int
    seed: int
    started_us: int
    # Watermarks that operators used, by uid, of an epoch that is replayed.
    recorded: Mapping[str, int | None] = field(default_factory=dict)
    # What is in force in all tries at the epoch, and the last request in it.
    parameters: Parameters = field(default_factory=dict)
    requests: int = 0
    markers: Markers = field(default_factory=Markers)


@dataclass(frozen=True, slots=True, kw_only=True)
class Compaction:
    """Files of one operator that hold the same entries as the files they replace."""

    operator: str
    replaced: tuple[str, ...]
    by: tuple[StateFile, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingEpoch:
    """An epoch whose stages are running; votes hold one vote for each partition."""

    region: str
    epoch: int
    turn: int
    planned: PlannedInputs
    votes: Mapping[str, tuple[Vote, ...]] = field(default_factory=dict)
    compactions: tuple[Compaction, ...] = ()

    def with_votes(self, stage: str, votes: tuple[Vote, ...]) -> PendingEpoch:
        """Return the epoch with the votes of one more stage."""
        return dataclasses.replace(self, votes={**self.votes, stage: votes})

    def with_compactions(self, compactions: tuple[Compaction, ...]) -> PendingEpoch:
        """Return the epoch with compactions to take up when it is sealed."""
        return dataclasses.replace(self, compactions=compactions)


@dataclass(frozen=True, slots=True, kw_only=True)
class SealedEpoch:
    """An epoch with all its votes: its manifest may be put, and is never altered."""

    region: str
    epoch: int
    turn: int
    manifest: Manifest
    # What the manifest refers to and the store does not have yet, by path.
    lists: Mapping[str, bytes] = field(default_factory=dict)
    # Settled by this manifest, whether taken up or refused.
    compactions: tuple[Compaction, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedEpoch:
    """An epoch that exists, until every sink has committed it.

    Attributes:
        waiting: Sinks that have not committed yet.
        tries: Failed commits of each sink.
        troubles: Why a sink is being retried.
    """

    region: str
    manifest: Manifest
    waiting: frozenset[str]
    tries: Mapping[str, int] = field(default_factory=dict)
    troubles: Mapping[str, SinkError] = field(default_factory=dict)

    def awaits(self, sink: str, epoch: int) -> bool:
        """Tell whether an answer of a sink is about what we wait for."""
        return epoch == self.manifest.epoch and sink in self.waiting

    def with_committed(self, sink: str) -> PublishedEpoch:
        """Return the epoch with one sink less to wait for."""
        troubles = {s: e for s, e in self.troubles.items() if s != sink}
        return dataclasses.replace(
            self, waiting=self.waiting - {sink}, troubles=troubles
        )

    def with_trouble(self, sink: str, error: SinkError) -> PublishedEpoch:
        """Return the epoch with one more failure of a sink."""
        return dataclasses.replace(
            self,
            tries={**self.tries, sink: self.tries.get(sink, 0) + 1},
            troubles={**self.troubles, sink: error},
        )
