"""One retained epoch, as data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from riverlock.core.errors import SnapshotNotFoundError
from riverlock.core.times import from_micros
from riverlock.query.in_flight import in_flight_rows
from riverlock.query.relation import Relation
from riverlock.query.views import TIMERS, View, checked_state
from riverlock.snapshot.state_reader import operator_of

if TYPE_CHECKING:
    from datetime import datetime

    from riverlock.query.rows import Rows
    from riverlock.snapshot.format.records import Manifest
    from riverlock.storage.base import Storage

__all__ = ["Snapshot"]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The state at the end of one epoch.

    Attributes:
        storage: The store.
        manifest: The epoch's record.
        others: Those of other regions, of a flow that has several.
    """

    storage: Storage
    manifest: Manifest
    others: tuple[Manifest, ...] = ()

    @property
    def epoch(self) -> int:
        """The number of the epoch."""
        return self.manifest.epoch

    @property
    def now(self) -> datetime:
        """The processing time that user code saw; what expired by then is not shown."""
        return from_micros(self.manifest.now_us)

    @property
    def operators(self) -> dict[str, tuple[str, ...]]:
        """The operators that have state, and the names of their state variables."""
        return {
            uid: tuple(state.variables)
            for manifest in self.manifests
            for uid, state in manifest.operators.items()
        }

    @property
    def manifests(self) -> tuple[Manifest, ...]:
        """The records of all regions."""
        return (self.manifest, *self.others)

    @property
    def channels(self) -> tuple[str, ...]:
        """The channels between its regions."""
        return tuple(in_flight_rows(self))

    def in_flight(self, channel: str) -> Rows:
        """Return the rows that were in a channel between two regions: sent, not read.

        Raises:
            SnapshotNotFoundError: There is no such channel, or an epoch that wrote some
                of the rows is no longer retained.
        """
        found = in_flight_rows(self)
        if channel not in found:
            raise SnapshotNotFoundError.among(
                f"channel {channel!r}",
                store=self.storage.uri,
                kind="channel",
                names=list(found),
            )
        return found[channel]

    def _with(self, operator: str) -> Manifest:
        """Return the manifest that has an operator, or else the first."""
        found = (m for m in self.others if operator in m.operators)
        return next(found, self.manifest)

    def state(self, operator: str, name: str | None = None) -> Relation:
        """Return the state of an operator as a relation; nothing is read yet.

        Args:
            operator: Its uid.
            name: A state variable, or ``timers``. Without it there is one row per key,
                with a column for each variable.

        Raises:
            SnapshotNotFoundError: There is no such operator or state.
        """
        uri, manifest = self.storage.uri, self._with(operator)
        state = operator_of(manifest, operator, store=uri)
        if name is not None:
            checked_state(state, name, uid=operator, store=uri)
        return Relation(
            storage=self.storage,
            manifest=manifest,
            operator=operator,
            view=View(state, name),
        )

    def timers(self, operator: str) -> Relation:
        """Return the pending timers of an operator.

        Raises:
            SnapshotNotFoundError: There is no such operator.
        """
        return self.state(operator, TIMERS)
