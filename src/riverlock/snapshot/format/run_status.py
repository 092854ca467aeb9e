"""The live status of a region: what ``riverlock status`` and the progress line show."""

from __future__ import annotations

from typing import Any

import msgspec

from riverlock.snapshot.format.input_times import InputTime
from riverlock.snapshot.format.records import Manifest, Record

__all__ = ["Status", "input_rows", "late_rows", "phases_of", "status_of"]


class Status(Record, frozen=True, kw_only=True):
    """``status.json``: overwritten after each epoch; a hint, never the truth."""

    flow: str
    region: str
    run: int
    state: str  # running, waiting, stopped, failed
    epoch: int | None
    updated_us: int
    rows: int = 0
    rows_per_second: float = 0.0
    epoch_seconds: float = 0.0
    lag_rows: dict[str, int | None] = msgspec.field(default_factory=dict)
    watermark_us: int | None = None
    # Event time by input: which are idle, which hold the others back.
    inputs: tuple[InputTime, ...] = ()
    state_entries: int = 0
    state_bytes: int = 0
    state_files: int = 0
    parallelism: int = 0
    bad_rows: int = 0
    # Files that cannot be opened by their names; their rows are not read.
    files_set_aside: int = 0
    # Of this run: records that came too late for what they belong to.
    late_rows: int = 0
    dead_letters: int = 0
    error: str | None = None
    # The newest epoch that all sinks are known to have.
    committed: int | None = None
    # Seconds of the epoch: ``run`` until it was decided, ``commit`` in the sinks.
    phases: dict[str, float] = msgspec.field(default_factory=dict)


def input_rows(manifest: Manifest) -> int:
    """Return the rows an epoch read, as far as sources or tasks know."""
    known = [r.rows for r in manifest.inputs.values() if r.rows is not None]
    if len(known) == len(manifest.inputs):
        return sum(known)
    stages: dict[str, Any] = manifest.metrics.get("stages", {})
    return int(max((s.get("rows", 0) for s in stages.values()), default=0))


def late_rows(manifest: Manifest) -> int:
    """Return how many records of an epoch came too late."""
    stages: dict[str, Any] = manifest.metrics.get("stages", {})
    return int(sum(s.get("late_rows", 0) for s in stages.values()))


def status_of(manifest: Manifest, *, updated_us: int, **more: Any) -> Status:
    """Return the status after an epoch."""
    seconds = max(1, manifest.decided_us - manifest.started_us) / 1_000_000
    rows = input_rows(manifest)
    files = [f for s in manifest.operators.values() for f in s.files]
    marks = [
        m.watermark_us
        for m in manifest.watermarks.values()
        if m.watermark_us is not None
    ]
    stages: dict[str, Any] = manifest.metrics.get("stages", {})
    return Status(
        flow=manifest.flow,
        region=manifest.region,
        run=manifest.run,
        epoch=manifest.epoch,
        updated_us=updated_us,
        rows=rows,
        rows_per_second=round(rows / seconds, 1),
        epoch_seconds=round(seconds, 3),
        watermark_us=min(marks, default=None),
        state_entries=sum(s.entries for s in manifest.operators.values()),
        state_bytes=sum(f.bytes for f in files),
        state_files=len(files),
        parallelism=manifest.parallelism,
        dead_letters=int(sum(s.get("dead_letters", 0) for s in stages.values())),
        **more,
    )


def phases_of(manifest: Manifest, took_us: int) -> dict[str, float]:
    """Return the seconds until the epoch was decided, and then in its sinks."""
    decided_us = manifest.decided_us - manifest.started_us
    return {
        "run": round(decided_us / 1_000_000, 3),
        "commit": round((took_us - decided_us) / 1_000_000, 3),
    }
