"""The status of a run: what it shows, to those who ask the store and to the caller."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from riverlock.core.errors import StorageError
from riverlock.snapshot.format.run_status import Status, status_of
from riverlock.snapshot.format.sealed import seal

if TYPE_CHECKING:
    from collections.abc import Callable

    from riverlock.coordinator.bounds import Hold
    from riverlock.coordinator.plan import RegionPlan
    from riverlock.core.clock import Clock
    from riverlock.core.errors import SinkUnavailableError, SourceUnavailableError
    from riverlock.snapshot.catalog import Catalog
    from riverlock.snapshot.format.records import Manifest

__all__ = ["Board"]

log = logging.getLogger(__name__)
# Somebody who looks at the store need not see each of many small epochs.
_PACE_US = 100_000


@dataclass
class Board:
    """Shows the status; used from one thread."""

    plan: RegionPlan
    catalog: Catalog
    clock: Clock
    on_status: Callable[[Status], object]
    _shown: Status | None = None
    # The channels whose readers the next epoch waits for.
    _held: set[str] = field(default_factory=set)
    # What the store has; when it was put, by a clock that does not jump.
    _put: Status | None = None
    _put_us: int = 0

    def status(self, parent: Manifest | None) -> Status:
        """Return what was shown last; before that, what is known of the run."""
        return self._shown or self._first(parent, "running")

    def show(self, status: Status) -> None:
        """Show a status: to the caller at once, to others at a pace.

        In the store it changes at once only if more than numbers have changed. A store
        that does not take it is no reason to stop.
        """
        self._shown = status
        put = self._put
        is_news = put is None or (put.state, put.error) != (status.state, status.error)
        self._keep_up(at_once=is_news)
        self.on_status(status)

    def _keep_up(self, *, at_once: bool = False) -> None:
        """Put what is shown, unless something was put a moment ago."""
        status, now_us = self._shown, time.monotonic_ns() // 1_000
        is_due = at_once or now_us - self._put_us >= _PACE_US
        if status is None or status is self._put or not is_due:
            return
        self._put, self._put_us = status, now_us
        try:
            self.catalog.storage.put(self.catalog.paths.status, seal(status))
        except StorageError as error:
            log.warning("status not written: %s", error)

    def show_state(
        self, state: str, error: str | None, parent: Manifest | None
    ) -> None:
        """Show the last status with another state."""
        self.show(
            msgspec.structs.replace(
                self._shown or self._first(parent, state),
                state=state,
                error=error,
                updated_us=self.clock.now_us(),
                rows_per_second=0.0,
            )
        )

    def _first(self, parent: Manifest | None, state: str) -> Status:
        """Return the status of a run that has not shown any, after an earlier one."""
        now_us, name = self.clock.now_us(), self.plan.name or self.plan.flow
        if parent is None:
            return Status(
                flow=name,
                region=self.plan.region,
                run=self.plan.run,
                state=state,
                epoch=None,
                updated_us=now_us,
            )
        found = status_of(parent, updated_us=now_us, flow=name, state=state)
        return msgspec.structs.replace(found, run=self.plan.run, rows_per_second=0.0)

    def await_commit(
        self, sink: str, epoch: int, cause: str, parent: Manifest | None
    ) -> None:
        """Say what holds all sinks at this epoch; the next status takes it back."""
        self.show_state(
            "waiting",
            f"waiting for sink {sink!r}: epoch {epoch} is decided and will be"
            f" committed there; {cause}",
            parent,
        )

    def await_sink(
        self, sink: str, why: SinkUnavailableError, parent: Manifest | None
    ) -> None:
        """Say what keeps the run from beginning."""
        self.show_state(
            "waiting",
            f"waiting for sink {sink!r}: the run begins when it answers;"
            f" {type(why).__name__}: {why}",
            parent,
        )

    def await_delivery(
        self, why: SinkUnavailableError, parent: Manifest | None
    ) -> None:
        """Say what keeps tasks from handing over their rows."""
        log.warning("waiting for sink %r: %s", why.sink, why)
        self.show_state(
            "waiting",
            f"waiting for sink {why.sink!r}: the epoch is tried again when it answers;"
            f" {type(why).__name__}: {why}",
            parent,
        )

    def await_source(
        self, why: SourceUnavailableError, parent: Manifest | None
    ) -> None:
        """Say what keeps the next epoch from being read."""
        log.warning("waiting for source %r: %s", why.source, why)
        self.show_state(
            "waiting",
            f"waiting for source {why.source!r}: the next epoch is read when it"
            f" answers; {type(why).__name__}: {why.message}",
            parent,
        )

    def tell_abort(self, epoch: int, cause: str, parent: Manifest | None) -> None:
        """Say what an epoch failed for; the next plan takes it back."""
        log.warning("epoch %s aborted: %s", epoch, cause)
        # If a source is away, that was said, in better words.
        if self._shown is None or self._shown.state != "waiting":
            text = f"epoch {epoch} failed and is tried again: {cause}"
            self.show_state("waiting", text, parent)

    def show_plan(self, holds: tuple[Hold, ...], parent: Manifest | None) -> None:
        """Say for whom the next epoch waits, or that nothing is waited for any more.

        Called before each epoch, and again and again while there is nothing to do.
        """
        self._keep_up()
        if not holds:
            self._take_back(parent)
            return
        channels = {each.channel for each in holds}
        is_said = self._shown is not None and self._shown.state == "waiting"
        if channels != self._held or not is_said:
            text = "; ".join(map(str, holds))
            log.info("waiting for %s", text)
            self.show_state("waiting", f"waiting for {text}", parent)
        self._held = channels

    def _take_back(self, parent: Manifest | None) -> None:
        """Say that nothing is waited for any more, if that was said."""
        self._held = set()
        if self._shown is not None and self._shown.state == "waiting":
            self.show_state("running", None, parent)
