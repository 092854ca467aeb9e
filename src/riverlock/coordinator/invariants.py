"""What must be true of a region at rest; a breach is our bug and stops the run."""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

import msgspec

from riverlock.coordinator.epoch import FIRST_EPOCH, epoch_after
from riverlock.coordinator.phase import (
    BackingOff,
    Committing,
    Deciding,
    Planning,
    Recovering,
    Running,
    Stopped,
)
from riverlock.core.errors import InternalError

if TYPE_CHECKING:
    from riverlock.coordinator.epoch import PendingEpoch, PublishedEpoch
    from riverlock.coordinator.events import Planned
    from riverlock.coordinator.phase import State
    from riverlock.coordinator.plan import RegionPlan
    from riverlock.snapshot.format.records import Manifest, StateFile

__all__ = [
    "check_planned",
    "check_recovered",
    "check_state",
    "require",
]


def require(*, holds: bool, what: str) -> None:
    """Raise unless an invariant holds.

    Raises:
        InternalError: It does not.
    """
    if not holds:
        raise InternalError(what)


def check_recovered(newest: Manifest, plan: RegionPlan) -> None:
    """Check that a manifest read from the store is of this region."""
    for name in ("flow", "region", "key_groups"):
        ours, theirs = getattr(plan, name), getattr(newest, name)
        require(
            holds=ours == theirs,
            what=f"epoch {newest.epoch} has {name} {theirs!r}, expected {ours!r}",
        )


def check_planned(event: Planned, state: Planning, parent: Manifest | None) -> None:
    """Check that inputs continue where the parent ended, and a redo reads the same."""
    before = {} if parent is None else parent.inputs
    for source, chosen in event.inputs.items():
        if source in before and source not in event.gaps:
            require(
                holds=_same(chosen.start, before[source].end),
                what=f"source {source!r} starts at {chosen.start!r}, but its last "
                f"epoch ended at {before[source].end!r}",
            )
    if state.retry_of is not None:
        require(
            holds=_same(event.inputs, state.retry_of.inputs),
            what="an aborted epoch was planned again with other inputs",
        )


def _same(a: object, b: object) -> bool:
    """Compare as JSON: an offset that was read back may hold lists for tuples."""
    if a == b:
        return True
    encode = msgspec.json.Encoder(order="deterministic").encode
    return encode(a) == encode(b)


def check_state(
    state: State, parent: Manifest | None, plan: RegionPlan, *, turn: int
) -> None:
    """Check what the coordinator believes between two events."""
    match state:
        case Running(pending=pending):
            require(holds=pending.turn == turn, what="a turn has been skipped")
            _check_pending(pending, parent, plan)
        case Deciding(sealed=sealed):
            require(holds=sealed.turn == turn, what="a turn has been skipped")
            _check_manifest(sealed.manifest, parent)
        case Committing(published=published):
            _check_published(published, parent, plan)
        case BackingOff(then=then):
            check_state(then, parent, plan, turn=turn)
        case Recovering() | Planning() | Stopped():
            pass
        case _:
            assert_never(state)


def _check_pending(
    pending: PendingEpoch, parent: Manifest | None, plan: RegionPlan
) -> None:
    """Check that votes are of the first stages, one for each partition."""
    require(
        holds=pending.epoch == epoch_after(parent),
        what=f"epoch {pending.epoch} is in progress, expected {epoch_after(parent)}",
    )
    voted = tuple(pending.votes)
    require(
        holds=voted == plan.stages[: len(voted)] and len(voted) < len(plan.stages),
        what=f"stages {voted} have voted out of {plan.stages}",
    )
    for stage, votes in pending.votes.items():
        partitions = [v.partition for v in votes]
        require(
            holds=partitions == sorted(set(partitions)),
            what=f"stage {stage!r} holds votes of partitions {partitions}",
        )


def _check_manifest(manifest: Manifest, parent: Manifest | None) -> None:
    """Check that a manifest may follow its parent."""
    before = None if parent is None else parent.epoch
    require(
        holds=manifest.epoch == epoch_after(parent) and manifest.parent == before,
        what=f"epoch {manifest.epoch} names parent {manifest.parent}, not {before}",
    )
    for uid, operator in manifest.operators.items():
        _check_files(uid, operator.files, manifest.epoch)
    if parent is None:
        return
    require(
        holds=manifest.run >= parent.run,
        what=f"run {manifest.run} follows run {parent.run}",
    )
    require(
        holds=manifest.requests >= parent.requests,
        what=f"request {manifest.requests} follows request {parent.requests}",
    )
    for what in ("inputs", "operators", "watermarks"):
        gone = set(getattr(parent, what)) - set(getattr(manifest, what))
        require(holds=not gone, what=f"{what} {sorted(gone)} of the parent are gone")
    for name, mark in parent.watermarks.items():
        now = manifest.watermarks[name].watermark_us
        require(
            holds=mark.watermark_us is None
            or (now is not None and now >= mark.watermark_us),
            what=f"watermark {name!r} went back from {mark.watermark_us} to {now}",
        )


def _check_files(uid: str, files: tuple[StateFile, ...], epoch: int) -> None:
    paths = {f.path for f in files}
    require(
        holds=len(paths) == len(files),
        what=f"operator {uid!r} refers to a state file twice",
    )
    order = [(f.first_epoch, f.first_group) for f in files]
    require(
        holds=order == sorted(order),
        what=f"state files of operator {uid!r} are out of order",
    )
    require(
        holds=all(FIRST_EPOCH <= f.first_epoch <= f.last_epoch <= epoch for f in files),
        what=f"operator {uid!r} refers to a state file of another time",
    )


def _check_published(
    published: PublishedEpoch, parent: Manifest | None, plan: RegionPlan
) -> None:
    """Check that the epoch being committed is the newest, and its sinks are ours."""
    require(
        holds=published.manifest is parent,
        what=f"epoch {published.manifest.epoch} is committed but is not the newest",
    )
    outputs = set(published.manifest.outputs) & set(plan.sinks)
    require(
        holds=bool(published.waiting) and published.waiting <= outputs,
        what=f"waiting for sinks {sorted(published.waiting)} out of {sorted(outputs)}",
    )
    require(
        holds=set(published.troubles) <= published.waiting,
        what=f"sinks {sorted(published.troubles)} are retried without need",
    )
