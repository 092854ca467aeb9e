"""What parameters are in force in an epoch: declared, set before, and asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from riverlock.coordinator.epoch import epoch_after
from riverlock.snapshot.format.stored_parameters import Parameters, carried, changed

if TYPE_CHECKING:
    from collections.abc import Iterable

    from riverlock.coordinator.plan import RegionPlan
    from riverlock.snapshot.format.records import Change, Manifest

__all__ = ["planned_parameters"]


def planned_parameters(
    parent: Manifest | None, plan: RegionPlan, changes: Iterable[Change]
) -> Parameters:
    """Return the parameters of the epoch that follows a manifest, by operator."""
    states = {} if parent is None else parent.operators
    found: Parameters = {
        uid: carried(declared, states[uid].parameters if uid in states else {})
        for uid, declared in plan.parameters.items()
    }
    for change in changes:
        found = changed(found, change, epoch=epoch_after(parent))
    return found
