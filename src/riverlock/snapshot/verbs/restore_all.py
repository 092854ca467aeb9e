"""Going back with all regions of a flow, to one consistent cut (format §6.5).

The put of ``restoring.json`` is the decision. From then on each region goes back by an
epoch of its own; whoever starts next completes what a crash left.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from riverlock.core import faults
from riverlock.core.errors import (
    InvalidConfigError,
    SnapshotNotFoundError,
    StorageNotFoundError,
)
from riverlock.snapshot.claims import check_stopped
from riverlock.snapshot.format.cut_log import CutLog
from riverlock.snapshot.format.cuts.cut_records import Restoring
from riverlock.snapshot.format.sealed import unseal
from riverlock.snapshot.format.store_layout import RESTORING
from riverlock.snapshot.verbs.restore import plan_restore, restore

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from riverlock.snapshot.catalog import Catalog
    from riverlock.snapshot.format.records import Manifest, Named
    from riverlock.snapshot.verbs.restore import Restore

__all__ = [
    "RestoreAll",
    "complete_restore",
    "give_up_cuts",
    "plan_restore_all",
    "restore_all",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreAll:
    """A way back for all regions, before it is taken.

    Attributes:
        named: The snapshot.
        parts: What happens in each region.
        keep_output: Whether file sinks keep the output of undone epochs in sight.
    """

    named: Named
    parts: Mapping[str, Restore]
    keep_output: bool = False

    @property
    def is_done(self) -> bool:
        """Whether all regions are there."""
        return all(part.is_done for part in self.parts.values())

    def __str__(self) -> str:
        """Return where it leads, on one line."""
        parts = sorted((name, p.target.epoch) for name, p in self.parts.items())
        shown = ", ".join(f"{name} to epoch {epoch}" for name, epoch in parts)
        return f"back to {self.named.name}: {shown}"


def plan_restore_all(
    catalog: Catalog, name: str, *, keep_output: bool = False
) -> RestoreAll:
    """Return what going back to a named snapshot would do; do nothing.

    Raises:
        SnapshotNotFoundError: There is no such name.
        InvalidConfigError: It does not have all regions of the flow.
    """
    named = next((n for n in catalog.snapshots() if n.name == name), None)
    if named is None:
        names = [n.name for n in catalog.snapshots()]
        raise SnapshotNotFoundError.among(
            f"snapshot {name!r}",
            store=catalog.storage.uri,
            kind="snapshot",
            names=names,
        )
    missing = sorted(set(catalog.regions()) - named.regions.keys())
    if missing:
        raise InvalidConfigError(
            f"restore to {name!r}",
            expected="a snapshot of all regions",
            found=f"none of region {', '.join(missing)}",
            hint="nothing was changed; take one with `riverlock snapshot` while the"
            " flow runs",
        )
    parts = {}
    for region in named.regions:
        part = catalog.of(region)
        parts[region] = plan_restore(part, part.named(named), keep_output=keep_output)
    return RestoreAll(named=named, parts=parts, keep_output=keep_output)


def restore_all(
    catalog: Catalog,
    plan: RestoreAll,
    *,
    now_us: int,
    then: Callable[[Catalog, Manifest], object],
) -> dict[str, Manifest]:
    """Go back; return the new newest manifest of each region.

    Args:
        catalog: The store.
        plan: What was planned.
        now_us: The present.
        then: Called for each region that has gone back.

    Raises:
        FencedError: A region runs; nothing was changed.
        InvalidConfigError: Another restore is under way, or a region has continued
            since the plan was made; the next start completes what was begun.
    """
    for region in plan.parts:
        check_stopped(catalog.of(region))
    record = Restoring(
        name=plan.named.name,
        regions=dict(plan.named.regions),
        last={region: part.last for region, part in plan.parts.items()},
        keep_output=plan.keep_output,
        asked_us=now_us,
    )
    if not catalog.hold_all(RESTORING, record, record.regions.items()):
        raise InvalidConfigError(
            f"restore of {catalog.storage.uri}",
            expected="no other restore that is under way",
            found=f"{RESTORING}",
            hint="start the flow, or repeat this: it completes the other one first",
        )
    return complete_restore(catalog, now_us=now_us, then=then)


def give_up_cuts(catalog: Catalog, *, why: str) -> None:
    """Give up the cuts that are being taken: epochs that bear them may be undone."""
    cuts = CutLog(catalog.storage)
    for proposal in cuts.found().still:
        cuts.give_up(proposal.number, why)


def complete_restore(
    catalog: Catalog, *, now_us: int, then: Callable[[Catalog, Manifest], object]
) -> dict[str, Manifest]:
    """Complete a restore of all regions that was decided; return what it made.

    Raises:
        FencedError: A region runs: stop it first, so that all go back.
    """
    try:
        data = catalog.storage.get(RESTORING)
    except StorageNotFoundError:
        return {}
    record = unseal(data, Restoring, path=RESTORING)
    give_up_cuts(catalog, why=f"the flow went back to {record.name!r}")
    made = {}
    for region, epoch in record.regions.items():
        part = catalog.of(region)
        plan = plan_restore(part, part.manifest(epoch), keep_output=record.keep_output)
        # What was decided after the record is undone too: it did not know of it.
        made[region] = restore(part, plan, now_us=now_us, why=f"restore {record.name}")
        then(part, made[region])
        faults.hit("V8")
    catalog.storage.delete(RESTORING)
    return made
