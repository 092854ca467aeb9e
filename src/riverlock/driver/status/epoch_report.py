"""What a run has noticed so far, as the status after each epoch."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from riverlock.snapshot.format.input_times import input_times
from riverlock.snapshot.format.run_status import (
    Status,
    input_rows,
    late_rows,
    phases_of,
    skipped_rows,
    status_of,
)

if TYPE_CHECKING:
    from riverlock.coordinator.instructions import GiveUpSink
    from riverlock.core.clock import Clock
    from riverlock.driver.intake.planner import Planner
    from riverlock.snapshot.format.records import Manifest

__all__ = ["Report"]

log = logging.getLogger(__name__)


@dataclass
class Report:
    """Counts over the epochs of one run."""

    flow: str
    planner: Planner
    clock: Clock
    bad_rows: int = 0
    late_rows: int = 0
    skipped_rows: int = 0
    undelivered_rows: int = 0

    def after(self, manifest: Manifest, took_us: int | None) -> Status:
        """Learn from an epoch and return the status after it.

        Args:
            manifest: The epoch.
            took_us: How long it took; None: an earlier run has decided it.
        """
        noticed: dict[str, float] = {}
        turning = self.planner.turning
        if took_us is not None:
            noticed = self.planner.learn(input_rows(manifest), took_us)
            self._count(manifest, int(noticed.get("bad_rows", 0)))
        return status_of(
            manifest,
            flow=self.flow,
            updated_us=self.clock.now_us(),
            state="running",
            lag_rows=dict(self.planner.lag_rows),
            loops={} if turning is None else turning.rows_in_loops(manifest),
            bad_rows=self.bad_rows,
            files_set_aside=int(noticed.get("files_set_aside", 0)),
            late_rows=self.late_rows,
            skipped_rows=self.skipped_rows,
            undelivered_rows=self.undelivered_rows,
            phases={} if took_us is None else phases_of(manifest, took_us),
            inputs=input_times(
                manifest, now_us=manifest.now_us, since_us=self.planner.since_us
            ),
        )

    def gave_up(self, order: GiveUpSink) -> None:
        """Count rows that a sink may lack, and will not be handed again."""
        self.undelivered_rows += order.rows
        log.warning(
            "epoch %s: sink %s may lack %d rows, which are not sent again: its region"
            " is at most once",
            order.epoch,
            order.sink,
            order.rows,
        )

    def _count(self, manifest: Manifest, bad: int) -> None:
        self.skipped_rows += skipped_rows(manifest)
        self.bad_rows += bad
        if bad:
            log.warning("epoch %s: %d rows could not be parsed", manifest.epoch, bad)
        late = late_rows(manifest)
        self.late_rows += late
        if late:
            log.info("epoch %s: %d records came too late", manifest.epoch, late)
