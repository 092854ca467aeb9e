"""Going back with all regions of a flow, to one consistent cut (format §6.5).

The put of a reset is the decision. From then on each region goes back by an epoch of
its own, before anything else that it decides.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from riverlock.core import faults
from riverlock.core.errors import (
    InvalidConfigError,
    SnapshotNotFoundError,
    StorageNotFoundError,
)
from riverlock.snapshot.flow_file import add_features
from riverlock.snapshot.format.cut_log import CutLog
from riverlock.snapshot.format.cuts.cut_records import Reset, Restoring
from riverlock.snapshot.format.cuts.reset_log import ResetLog
from riverlock.snapshot.format.records import RESETS_FEATURE
from riverlock.snapshot.format.sealed import unseal
from riverlock.snapshot.format.store_layout import RESTORING
from riverlock.snapshot.retention.lease import leased
from riverlock.snapshot.verbs.restore import newest_readable, plan_restore

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping

    from riverlock.snapshot.catalog import Catalog
    from riverlock.snapshot.format.records import Named
    from riverlock.snapshot.verbs.restore import Restore

__all__ = [
    "RestoreAll",
    "adopt_older",
    "decide_reset",
    "give_up_cuts",
    "plan_restore_all",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreAll:
    """A way back for all regions, before it is taken.

    Attributes:
        named: The snapshot.
        parts: What happens in each region.
        keep_output: Whether file sinks keep the output of undone epochs in sight.
        waiting: The regions that have not gone back yet, once it was decided: they do
            when they plan their next epoch, or when they start.
    """

    named: Named
    parts: Mapping[str, Restore]
    keep_output: bool = False
    waiting: tuple[str, ...] = ()

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


def decide_reset(
    catalog: Catalog,
    named: Named,
    *,
    now_us: int,
    held: Iterable[tuple[str, int]],
    keep_output: bool = False,
) -> Reset:
    """Decide that all regions go back; return the reset that says so.

    Args:
        catalog: The store.
        named: What they go back to.
        now_us: The present.
        held: The epochs that must be there, each with its region.
        keep_output: Whether file sinks keep the output of undone epochs in sight.

    Raises:
        SnapshotNotFoundError: An epoch is no longer retained; nothing was changed.
    """
    add_features(catalog.storage, catalog.flow(), (RESETS_FEATURE,))
    with ExitStack() as stack:
        # Until the record is there, which keeps them from then on.
        for region, epoch in dict.fromkeys(held):
            stack.enter_context(leased(catalog.of(region), epoch))
        faults.hit("V2")
        while True:
            reset = Reset(
                number=_last(catalog) + 1,
                name=named.name,
                regions=dict(named.regions),
                tokens=dict(named.tokens),
                in_flight=named.in_flight,
                keep_output=keep_output,
                asked_us=now_us,
            )
            if ResetLog(catalog.storage).decide(reset):
                break
        faults.hit("V3")
    # Somebody may have written the flow meanwhile, who did not know of it.
    add_features(catalog.storage, catalog.flow(), (RESETS_FEATURE,))
    return reset


def _last(catalog: Catalog) -> int:
    """Return the greatest number that is in use."""
    last = ResetLog(catalog.storage).last()
    newest = [newest_readable(catalog.of(region)) for region in catalog.regions()]
    said = [manifest.reset for manifest in newest if manifest is not None]
    return max([0 if last is None else last.number, *said])


def give_up_cuts(
    catalog: Catalog, *, why: str, of: Container[int] | None = None
) -> None:
    """Give up the cuts that are being taken: epochs that bear them may be undone.

    Args:
        catalog: The store.
        why: The reason.
        of: Only of these numbers.
    """
    cuts = CutLog(catalog.storage)
    for proposal in cuts.found().still:
        if of is None or proposal.number in of:
            cuts.give_up(proposal.number, why)


def adopt_older(catalog: Catalog) -> None:
    """Decide what an earlier version has left: it is a reset from now on."""
    try:
        data = catalog.storage.get(RESTORING)
    except StorageNotFoundError:
        return
    record = unseal(data, Restoring, path=RESTORING)
    log = ResetLog(catalog.storage)
    last = log.last()
    # We may have died before we could delete it.
    if last is None or (last.name, last.asked_us) != (record.name, record.asked_us):
        add_features(catalog.storage, catalog.flow(), (RESETS_FEATURE,))
        reset = Reset(
            number=_last(catalog) + 1,
            name=record.name,
            regions=record.regions,
            tokens={},
            asked_us=record.asked_us,
            keep_output=record.keep_output,
        )
        log.decide(reset)
    catalog.storage.delete(RESTORING)
