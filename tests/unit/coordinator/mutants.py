"""Coordinators and shells that are wrong on purpose, each in one way."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tests.unit.coordinator.simulation import REGION, Simulation
from tests.unit.coordinator.world import Store

from riverlock.coordinator import (
    CommitOutcome,
    CommitSink,
    ManifestPut,
    Planned,
    Recovered,
    RetrySink,
    SinkCommitted,
    SinkFailed,
    StageVoted,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tests.unit.coordinator.simulation import Driver

    from riverlock.coordinator import (
        Compaction,
        Event,
        PendingEpoch,
        Vote,
    )
    from riverlock.snapshot.format.records import InputRange, Manifest, StateFile

__all__ = ["MUTANTS", "PATCHES"]


class OverwritingStore(Store):
    """Puts without the condition: no fence."""

    def put(self, manifest: Manifest) -> bool:
        self.manifests[manifest.epoch] = manifest
        return True


class BelievesItsPut(Simulation):
    """Takes a manifest that was already there for its own."""

    def on_event(self, driver: Driver, event: Event) -> Event:
        if isinstance(event, ManifestPut):
            return replace(event, created=True)
        return event


class DoesNotCommitAgain(Simulation):
    """Trusts that the run before had told all sinks."""

    def commit(
        self, driver: Driver, order: CommitSink | RetrySink, cause: Event
    ) -> None:
        if isinstance(cause, Recovered):
            done = SinkCommitted(region=REGION, sink=order.sink, epoch=order.epoch)
            driver.mailbox.append(done)
        else:
            super().commit(driver, order, cause)


class TakesUnknownForDone(Simulation):
    """Goes on when a sink has not answered."""

    def on_event(self, driver: Driver, event: Event) -> Event:
        if isinstance(event, SinkFailed) and event.outcome is CommitOutcome.UNKNOWN:
            return SinkCommitted(region=REGION, sink=event.sink, epoch=event.epoch)
        return event


class ForgetsTurns(Simulation):
    """Takes late answers for answers to the newest question."""

    def on_event(self, driver: Driver, event: Event) -> Event:
        if isinstance(event, StageVoted | Planned):
            return replace(event, turn=driver.coordinator._turn)
        return event


MUTANTS: dict[str, Callable[[int], Simulation]] = {
    "overwriting store": lambda s: Simulation(
        s, store=OverwritingStore(), is_validated=False
    ),
    "believes its put": lambda s: BelievesItsPut(s, is_validated=False),
    "does not commit again": lambda s: DoesNotCommitAgain(s, is_validated=False),
    "takes unknown for done": lambda s: TakesUnknownForDone(s, is_validated=False),
    "forgets turns": lambda s: ForgetsTurns(s, is_validated=False),
}


def _all_votes(votes: Iterable[Vote]) -> tuple[Vote, ...]:
    return tuple(sorted(votes, key=lambda v: v.partition))


def _no_fault(votes: object, **plan: object) -> None:
    return None


def _compact_blindly(
    live: tuple[StateFile, ...], compaction: Compaction
) -> tuple[StateFile, ...]:
    kept = [f for f in live if f.path not in compaction.replaced]
    return (*kept, *compaction.by)


def _only_new_inputs(
    pending: PendingEpoch, parent: Manifest | None
) -> dict[str, InputRange]:
    return dict(pending.planned.inputs)


# By name: which functions of which modules are replaced by what.
PATCHES: dict[str, list[tuple[str, str, Callable[..., Any]]]] = {
    "refers to rival votes": [
        ("region", "first_votes", _all_votes),
        ("region", "find_fault", _no_fault),
    ],
    "compacts what is not live": [("sealing", "compact", _compact_blindly)],
    "forgets idle inputs": [("sealing", "_inputs", _only_new_inputs)],
}
