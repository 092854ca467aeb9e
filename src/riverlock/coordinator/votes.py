"""What tasks say they have staged; a manifest refers to nothing else.

Several attempts of one task may vote: retries, speculation, a duplicated message. One
vote for each partition counts, whole, and all others are as if they had never been.
"""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003 - msgspec reads the annotations
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from riverlock.snapshot.format.records import StateFile, TimerHeads

if TYPE_CHECKING:
    from collections.abc import Iterable

    from riverlock.coordinator.plan import RegionPlan

__all__ = ["OperatorVote", "Vote", "find_fault", "first_votes"]


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorVote:
    """What one task changed in the state of one operator.

    Attributes:
        files: Change files; none if nothing changed.
        timers: Earliest timers pending in the task's whole range, changed or not.
        entries_delta: Entries added minus entries deleted.
    """

    files: tuple[StateFile, ...] = ()
    timers: TimerHeads = field(default_factory=TimerHeads)
    entries_delta: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Vote:
    """One successful attempt of one task.

    Attributes:
        partition: Which task of the stage it was.
        attempt: What makes the names of its files unique.
        operators: State changes by operator uid.
        outputs: Tokens for each sink, in the sink's own JSON.
        output_rows: Rows behind the tokens of each sink.
        staged: Tokens for later stages of the same epoch; not part of the manifest.
        max_times: Greatest event time seen, by ``event_time`` declaration that had
            rows; None: none of them moves the watermark.
        partition_times: The same by partition, of declarations that have any.
        rows: Rows read.
        metrics: Figures to be added up over the stage.
    """

    partition: int
    attempt: str
    operators: Mapping[str, OperatorVote] = field(default_factory=dict)
    outputs: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    output_rows: Mapping[str, int] = field(default_factory=dict)
    staged: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    max_times: Mapping[str, int | None] = field(default_factory=dict)
    partition_times: Mapping[str, Mapping[str, int | None]] = field(
        default_factory=dict
    )
    rows: int = 0
    metrics: Mapping[str, float] = field(default_factory=dict)


def first_votes(votes: Iterable[Vote]) -> tuple[Vote, ...]:
    """Return the first vote of each partition, ordered by partition."""
    kept: dict[int, Vote] = {}
    for vote in votes:
        kept.setdefault(vote.partition, vote)
    return tuple(kept[p] for p in sorted(kept))


def find_fault(
    votes: tuple[Vote, ...], *, stage: str, epoch: int, plan: RegionPlan
) -> str | None:
    """Return why a stage's votes cannot become part of a manifest, or None."""
    operators = plan.operators_of(stage)
    voted = [v.partition for v in votes]
    if operators and voted != list(range(plan.parallelism)):
        return f"expected votes of {plan.parallelism} partitions, found {voted}"
    for vote in votes:
        fault = _fault_of(vote, set(operators), epoch, plan)
        if fault:
            return f"partition {vote.partition}, attempt {vote.attempt}: {fault}"
    return None


def _fault_of(
    vote: Vote, operators: set[str], epoch: int, plan: RegionPlan
) -> str | None:
    if set(vote.operators) != operators:
        found = sorted(vote.operators)
        return f"expected operators {sorted(operators)}, found {found}"
    for what, names, known in (
        ("sinks", vote.outputs, plan.sinks),
        ("event times", vote.max_times, plan.event_times),
        ("event times", vote.partition_times, plan.event_times),
    ):
        if not set(names) <= set(known):
            return f"expected {what} among {sorted(known)}, found {sorted(names)}"
    for operator in vote.operators.values():
        for file in operator.files:
            if (file.first_epoch, file.last_epoch) != (epoch, epoch):
                return f"{file.path} is not of epoch {epoch}"
    return None
