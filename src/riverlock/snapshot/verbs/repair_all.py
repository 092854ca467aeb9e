"""Repair of several regions: to whole epochs that fit together.

A region whose newest epoch is damaged goes back, and so does each region that has read
of it what is undone by that. A region whose rows are damaged, before they were read,
goes back to before it wrote them, and writes them again. What that takes with it is
found by going through all channels until nothing more has to go back: no other whole
epochs that fit together are newer in any region. The way back is a reset: one put.
"""

from __future__ import annotations

from collections import defaultdict
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from riverlock.core.errors import SnapshotError, SnapshotNotFoundError
from riverlock.snapshot.claims import claim, release
from riverlock.snapshot.format.channels import channel_ends
from riverlock.snapshot.format.records import Named
from riverlock.snapshot.in_flight import between
from riverlock.snapshot.kept_epochs import held_by
from riverlock.snapshot.retention.deletion import move_aside
from riverlock.snapshot.timeline import decider, spans
from riverlock.snapshot.verbs.inspection import QUARANTINE, Damage, inspect
from riverlock.snapshot.verbs.repair import must_stay
from riverlock.snapshot.verbs.restore import Restore, plan_restore
from riverlock.snapshot.verbs.restore_alone import has_led_to

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from riverlock.snapshot.catalog import Catalog
    from riverlock.snapshot.format.records import Manifest
    from riverlock.snapshot.verbs.inspection import Inspection

__all__ = ["REPAIR", "RepairAll", "plan_repair_all", "quarantine_all"]

# What the reset is called: no snapshot has the name.
REPAIR = "repair"


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairAll:
    """What a repair of all regions does.

    Attributes:
        named: The epochs that fit together, one of each region, as if they had a name.
        back: The way back of each region that has to go.
        why: Why it has to.
        lost: By region, the epochs that one can no longer go back to.
        moved: Files that go to the quarantine.
        left: Damage that cannot be repaired.
    """

    named: Named
    back: Mapping[str, Restore]
    why: Mapping[str, str]
    lost: Mapping[str, tuple[int, ...]]
    moved: tuple[str, ...]
    left: tuple[Damage, ...]

    @property
    def is_needed(self) -> bool:
        """Whether there is anything to do."""
        return bool(self.back or self.moved)


def plan_repair_all(catalog: Catalog) -> RepairAll:
    """Return what a repair would do; do nothing.

    Raises:
        SnapshotNotFoundError: No whole epochs fit together.
        SnapshotError: ``flow.json`` is damaged: put it back from a backup.
    """
    found = inspect(catalog)
    line = _Line(catalog, found)
    at = line.found()
    flying = between(catalog, at.values())
    named = Named(
        name=REPAIR,
        regions={region: manifest.epoch for region, manifest in at.items()},
        created_us=0,
        in_flight=tuple(each.span for each in flying),
        tokens={region: decider(manifest) for region, manifest in at.items()},
    )
    needed = {(each.span.writer, epoch) for each in flying for epoch in each.outputs}
    # Also one whose state is whole, if rows that it has sent have to be sent again.
    lost = {
        region: tuple(
            e
            for e in dict.fromkeys([*line.lost.get(region, ()), line.last[region]])
            if e != at[region].epoch
            and (e in line.lost.get(region, ()) or line.is_unreadable(region, e))
        )
        for region in at
    }
    lost = {region: epochs for region, epochs in lost.items() if epochs}
    names = [
        f"snapshots/{each.name}.json"
        for each in catalog.snapshots_that_can_be_read()
        if any(e in lost.get(r, ()) for r, e in each.regions.items())
        or any(line.is_unreadable(r, e) for r, e in held_by(each))
    ]
    manifests = [
        catalog.of(region).paths.manifest(epoch)
        for region, epochs in lost.items()
        for epoch in epochs
        if (region, epoch) not in needed
    ]
    stays = [d for d in found.damages if must_stay(d.path)]
    damaged = [d.path for d in found.damages if not must_stay(d.path)]
    still = {catalog.of(r).paths.manifest(e) for r, e in needed}
    moved = dict.fromkeys([*manifests, *names, *damaged, *found.foreign])
    return RepairAll(
        named=named,
        back={
            region: plan_restore(catalog.of(region), manifest)
            for region, manifest in at.items()
            if manifest.epoch != line.last[region]
        },
        why=line.why,
        lost=lost,
        moved=tuple(p for p in moved if p not in still and catalog.storage.exists(p)),
        left=tuple(stays),
    )


@dataclass
class _Line:
    """The newest whole epochs that fit together."""

    catalog: Catalog
    inspected: Inspection

    def __post_init__(self) -> None:
        """Know nothing yet."""
        self.why: dict[str, str] = {}
        self._manifests: dict[tuple[str, int], Manifest | None] = {}
        self._damaged = {damage.path for damage in self.inspected.damages}

    @cached_property
    def last(self) -> dict[str, int]:
        """The newest epoch of each region, whole or not."""
        found: dict[str, int] = {}
        for report in self.inspected.epochs:
            found[report.region] = max(report.epoch, found.get(report.region, -1))
        return found

    @cached_property
    def lost(self) -> dict[str, tuple[int, ...]]:
        """The epochs of each region that one can no longer go back to."""
        found: dict[str, list[int]] = defaultdict(list)
        for report in self.inspected.epochs:
            region, epoch = report.region, report.epoch
            stays = report.is_whole and epoch == self.last[region]
            if not stays and (not report.is_whole or self.is_unreadable(region, epoch)):
                found[region].append(epoch)
        return {region: tuple(epochs) for region, epochs in found.items()}

    def found(self) -> dict[str, Manifest]:
        """Return one epoch of each region.

        Raises:
            SnapshotNotFoundError: There are none.
        """
        at: dict[str, Manifest] = {}
        for region, last in self.last.items():
            if last in self.lost.get(region, ()):
                self.why[region] = f"its epoch {last} is damaged"
            at[region] = self._whole(region, last + 1)
        while (problem := next(self._problems(at), None)) is not None:
            region, below, why = problem
            self.why.setdefault(region, why)
            at[region] = self._whole(region, below)
        return at

    def _whole(self, region: str, below: int) -> Manifest:
        """Return the newest whole epoch of a region before one."""
        for report in reversed(self.inspected.epochs):
            if report.region != region or report.epoch >= below or not report.is_whole:
                continue
            manifest = self._manifest(region, report.epoch)
            # Of the newest, rows that were read may be damaged: it stays where it is.
            is_newest = report.epoch == self.last[region]
            if manifest is not None and (
                is_newest or not self.is_unreadable(region, report.epoch)
            ):
                return manifest
        raise SnapshotNotFoundError(
            f"a whole epoch of region {region!r} that fits what is left of the others"
            f" ({self.why.get(region, 'all are damaged')})",
            store=self.catalog.storage.uri,
            available="none: put back a backup of the whole store, or fork a snapshot"
            " that riverlock verify does not name; nothing was changed",
        )

    def _problems(self, at: Mapping[str, Manifest]) -> Iterator[tuple[str, int, str]]:
        """Yield regions that have to go back further, to before an epoch, and why."""
        for reader, manifest in at.items():
            for _, writer, channel, end in channel_ends(manifest):
                other = at.get(writer)
                if other is None or not has_led_to(end - 1, other):
                    why = f"it has read epoch {end - 1} of region {writer!r}"
                    yield reader, manifest.epoch, f"{why}, which is undone or gone"
                    continue
                for a, b in spans(other):
                    for epoch in range(max(a, end), b + 1):
                        if not self._has_rows(writer, epoch, channel):
                            why = f"rows of its epoch {epoch} for channel {channel!r}"
                            yield writer, epoch, f"{why} are damaged, and not read yet"

    def _has_rows(self, region: str, epoch: int, channel: str) -> bool:
        manifest = self._manifest(region, epoch)
        if manifest is None:
            return False
        output = manifest.outputs.get(channel)
        paths = [t["path"] for t in (() if output is None else output.tokens)]
        return self._damaged.isdisjoint(paths)

    def is_unreadable(self, region: str, epoch: int) -> bool:
        """Tell whether the rows that an epoch has sent cannot all be read."""
        manifest = self._manifest(region, epoch)
        return manifest is None or not all(
            self._has_rows(region, epoch, uid)
            for uid, output in manifest.outputs.items()
            if output.kind == "channel"
        )

    def _manifest(self, region: str, epoch: int) -> Manifest | None:
        key = region, epoch
        if key not in self._manifests:
            self._manifests[key] = None
            with suppress(SnapshotError):
                self._manifests[key] = self.catalog.of(region).manifest(epoch)
        return self._manifests[key]


def quarantine_all(catalog: Catalog, plan: RepairAll, *, now_us: int) -> str:
    """Move aside what a plan says and is still damaged or foreign; return the folder.

    May be repeated.

    Raises:
        FencedError: A region runs; nothing was changed.
    """
    folder = f"{QUARANTINE}{now_us}/"
    parts = [catalog.of(region) for region in catalog.regions()]
    with ExitStack() as stack:
        for part in parts:
            stack.callback(release, part, claim(part, now_us=now_us))
        still = set(plan_repair_all(catalog).moved)
        left = [path for path in plan.moved if path in still]
        for part in parts:
            # The number of an epoch stays taken: see closed numbers.
            move_aside(
                part, [p for p in left if p.startswith(part.paths.epochs)], folder
            )
        roots = tuple(part.paths.epochs for part in parts)
        move_aside(catalog, [p for p in left if not p.startswith(roots)], folder)
    return folder
