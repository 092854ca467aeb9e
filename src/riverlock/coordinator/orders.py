"""Instructions made from the epoch they are about, so that names cannot disagree."""

from __future__ import annotations

from typing import TYPE_CHECKING

from riverlock.coordinator import instructions as do

if TYPE_CHECKING:
    from riverlock.coordinator.epoch import PendingEpoch, PublishedEpoch, SealedEpoch
    from riverlock.coordinator.events import AbortReason

__all__ = [
    "abort",
    "commit_sinks",
    "give_up_sink",
    "put_manifest",
    "retry_sink",
    "run_stage",
]


def run_stage(pending: PendingEpoch, stage: str, parallelism: int) -> do.RunStage:
    """Order a stage of a pending epoch."""
    return do.RunStage(
        region=pending.region,
        epoch=pending.epoch,
        turn=pending.turn,
        stage=stage,
        planned=pending.planned,
        earlier=pending.votes,
        parallelism=parallelism,
    )


def put_manifest(sealed: SealedEpoch) -> do.PutManifest:
    """Order the put that makes a sealed epoch exist."""
    return do.PutManifest(
        region=sealed.region,
        epoch=sealed.epoch,
        turn=sealed.turn,
        manifest=sealed.manifest,
        lists=sealed.lists,
    )


def commit_sinks(published: PublishedEpoch) -> tuple[do.CommitSink, ...]:
    """Order the commits of all sinks that a published epoch waits for."""
    return tuple(
        do.CommitSink(
            region=published.region,
            epoch=published.manifest.epoch,
            sink=sink,
            output=output,
        )
        for sink, output in published.manifest.outputs.items()
        if sink in published.waiting
    )


def retry_sink(published: PublishedEpoch, sink: str, delay_us: int) -> do.RetrySink:
    """Order one more commit of a sink that has failed."""
    return do.RetrySink(
        region=published.region,
        epoch=published.manifest.epoch,
        sink=sink,
        output=published.manifest.outputs[sink],
        delay_us=delay_us,
        attempt=published.tries[sink],
    )


def give_up_sink(published: PublishedEpoch, sink: str) -> do.GiveUpSink:
    """Order to note that a sink may lack rows of an epoch."""
    return do.GiveUpSink(
        region=published.region,
        epoch=published.manifest.epoch,
        sink=sink,
        rows=published.manifest.outputs[sink].rows,
    )


def abort(
    epoch: PendingEpoch | SealedEpoch, reason: AbortReason, cause: str
) -> do.AbortEpoch:
    """Order to forget an epoch that did not happen."""
    return do.AbortEpoch(
        region=epoch.region,
        epoch=epoch.epoch,
        turn=epoch.turn,
        reason=reason,
        cause=cause,
    )
