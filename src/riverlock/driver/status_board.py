"""The status of a run: what it shows, to those who ask the store and to the caller."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from riverlock.core.errors import StorageError
from riverlock.snapshot.format.run_status import Status, status_of
from riverlock.snapshot.format.sealed import seal

if TYPE_CHECKING:
    from collections.abc import Callable

    from riverlock.coordinator.plan import RegionPlan
    from riverlock.core.clock import Clock
    from riverlock.core.errors import SinkUnavailableError, SourceUnavailableError
    from riverlock.snapshot.catalog import Catalog
    from riverlock.snapshot.format.records import Manifest

__all__ = ["Board"]

log = logging.getLogger(__name__)


@dataclass
class Board:
    """Shows the status; used from one thread."""

    plan: RegionPlan
    catalog: Catalog
    clock: Clock
    on_status: Callable[[Status], None]
    status: Status | None = None

    def show(self, status: Status) -> None:
        """Show a status; a store that does not take it is no reason to stop."""
        self.status = status
        try:
            self.catalog.storage.put(self.catalog.paths.status, seal(status))
        except StorageError as error:
            log.warning("status not written: %s", error)
        self.on_status(status)

    def show_state(
        self, state: str, error: str | None, parent: Manifest | None
    ) -> None:
        """Show the last status with another state."""
        now_us = self.clock.now_us()
        before = self.status
        if before is None and parent is not None:
            before = status_of(parent, updated_us=now_us, state=state)
        if before is None:
            before = Status(
                flow=self.plan.flow,
                region=self.plan.region,
                run=self.plan.run,
                state=state,
                epoch=None,
                updated_us=now_us,
            )
        self.show(
            msgspec.structs.replace(
                before,
                run=self.plan.run,
                state=state,
                error=error,
                updated_us=now_us,
                rows_per_second=0.0,
            )
        )

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

    def take_back(self, parent: Manifest | None) -> None:
        """Say that nothing is waited for any more, if that was said."""
        if self.status is not None and self.status.state == "waiting":
            self.show_state("running", None, parent)
