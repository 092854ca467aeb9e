"""The live status of a region: what ``riverlock status`` and the progress line show."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from riverlock.core.times import from_micros, to_iso, watermark_time
from riverlock.snapshot.format.input_times import InputTime
from riverlock.snapshot.format.records import Manifest, Record

if TYPE_CHECKING:
    from datetime import datetime

__all__ = [
    "ROWS_READ",
    "Status",
    "input_rows",
    "late_rows",
    "phases_of",
    "rows_by_source",
    "skipped_rows",
    "status_of",
]

# Before the uid of a source, the metric of a stage that says what was read of it.
ROWS_READ = "rows_read:"


class Status(Record, frozen=True, kw_only=True):
    """How a run is doing: from ``flow.run``, ``Handle.status`` and ``on_status``.

    Also ``status.json``: overwritten after each epoch; a hint, never the truth.

    Attributes:
        flow: The name of the flow.
        region: The region of the flow.
        run: The number of the run; None: it was stopped before it had one.
        state: ``running``, ``waiting``, ``stopped`` or ``failed``.
        epoch: The newest epoch; None: there is none yet.
        updated_us: When this was written, in microseconds since 1970: see ``updated``.
        rows: Records that the epoch read from its sources.
        rows_per_second: The same per second.
        epoch_seconds: How long the epoch took until it was decided.
        lag_rows: Rows that wait, by source; None: the source cannot tell.
        loops: Rows that wait in each loop, by its uid.
        watermark_us: The least watermark, in microseconds: see ``watermark``.
        inputs: Event time by input: which are idle, which hold the others back.
        state_entries: Entries of state.
        state_bytes: Bytes of the files that hold state.
        state_files: Their number.
        parallelism: Tasks per keyed stage.
        bad_rows: Rows of this run that could not be parsed.
        files_set_aside: Files and folders that are not read; the log says why.
        late_rows: Records of this run that came too late.
        skipped_rows: Rows of sources that this run left out after a failure, as far as
            sources can tell: its region is `at most once`.
        undelivered_rows: Rows of this run that sinks may lack, and never get; the same.
        dead_letters: Records of the epoch that went to ``on_error`` sinks.
        error: What the run waits for, or what ended it.
        committed: The newest epoch that all sinks are known to have.
        phases: Seconds of the epoch: ``run`` until it was decided, ``commit`` in the
            sinks.
    """

    flow: str
    region: str
    run: int | None
    state: str
    epoch: int | None
    updated_us: int
    rows: int = 0
    rows_per_second: float = 0.0
    epoch_seconds: float = 0.0
    lag_rows: dict[str, int | None] = msgspec.field(default_factory=dict)
    loops: dict[str, int] = msgspec.field(default_factory=dict)
    watermark_us: int | None = None
    inputs: tuple[InputTime, ...] = ()
    state_entries: int = 0
    state_bytes: int = 0
    state_files: int = 0
    parallelism: int = 0
    bad_rows: int = 0
    files_set_aside: int = 0
    late_rows: int = 0
    skipped_rows: int = 0
    undelivered_rows: int = 0
    dead_letters: int = 0
    error: str | None = None
    committed: int | None = None
    phases: dict[str, float] = msgspec.field(default_factory=dict)

    def __str__(self) -> str:
        """Return the status in a line, with times that a person can read."""
        parts = [
            f"{self.flow}: {self.state}",
            "no epoch yet" if self.epoch is None else f"epoch {self.epoch}",
            f"{self.rows:,} records ({self.rows_per_second:,.0f}/s)",
            f"{self.state_entries:,} entries of state",
            f"updated {to_iso(self.updated_us)}",
        ]
        if self.watermark_us is not None:
            parts.insert(3, f"watermark {to_iso(self.watermark_us)}")
        if self.error:
            parts.append(self.error)
        return ", ".join(parts)

    @property
    def updated(self) -> datetime:
        """When this was written."""
        return from_micros(self.updated_us)

    @property
    def watermark(self) -> datetime | None:
        """No more records at or before this instant are expected; None: unknown."""
        return watermark_time(self.watermark_us)


def rows_by_source(manifest: Manifest) -> dict[str, int | None]:
    """Return the rows an epoch read of each source; None: nobody has counted them."""
    stages: dict[str, Any] = manifest.metrics.get("stages", {})
    found: dict[str, int | None] = {}
    for uid, read in manifest.inputs.items():
        counts = [s[ROWS_READ + uid] for s in stages.values() if ROWS_READ + uid in s]
        # A source that several stages read gave each of them all of its rows.
        counted = int(max(counts)) if counts else None
        found[uid] = counted if read.rows is None else read.rows
    return found


def input_rows(manifest: Manifest) -> int:
    """Return the rows an epoch read, as far as sources or tasks know."""
    known = [rows for rows in rows_by_source(manifest).values() if rows is not None]
    if len(known) == len(manifest.inputs):
        return sum(known)
    stages: dict[str, Any] = manifest.metrics.get("stages", {})
    return int(max((s.get("rows", 0) for s in stages.values()), default=0))


def late_rows(manifest: Manifest) -> int:
    """Return how many records of an epoch came too late."""
    stages: dict[str, Any] = manifest.metrics.get("stages", {})
    return int(sum(s.get("late_rows", 0) for s in stages.values()))


def skipped_rows(manifest: Manifest) -> int:
    """Return how many rows were left out before an epoch, as far as sources know."""
    return sum(read.skipped or 0 for read in manifest.inputs.values())


def status_of(
    manifest: Manifest, *, updated_us: int, flow: str | None = None, **more: Any
) -> Status:
    """Return the status after an epoch; ``flow`` is its name, if that is known."""
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
        flow=flow or manifest.flow,
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
