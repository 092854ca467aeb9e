"""Expiring epochs on demand: by count, age or bytes; also while the flow runs.

Only manifests and what they alone refer to are deleted. Files that no manifest has
referred to yet may belong to the run, which alone knows when they may be deleted.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from riverlock.core.errors import InvalidConfigError
from riverlock.core.times import from_micros, micros
from riverlock.snapshot.format.channels import channels_of
from riverlock.snapshot.format.references import references, state_files
from riverlock.snapshot.retention.deletion import Round
from riverlock.snapshot.retention.inventory import look

if TYPE_CHECKING:
    from collections.abc import Iterable

    from riverlock.snapshot.catalog import Catalog
    from riverlock.snapshot.format.records import Manifest
    from riverlock.snapshot.retention.inventory import Look

__all__ = ["Expiry", "Limits", "expire", "plan_expiry"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How much history may stay; what exceeds any limit is deleted, oldest first.

    Attributes:
        epochs: This many of the newest epochs stay.
        age: Epochs decided longer ago are deleted.
        bytes: The most bytes that the state files of all epochs may have together.
        grace: Epochs decided less long ago stay: somebody may be reading them.
    """

    epochs: int | None = None
    age: timedelta | None = None
    bytes: int | None = None
    grace: timedelta = timedelta(minutes=10)

    def __post_init__(self) -> None:
        """Refuse limits that limit nothing.

        Raises:
            InvalidConfigError: There is none, or one makes no sense.
        """
        if self.epochs is None and self.age is None and self.bytes is None:
            raise InvalidConfigError(
                "expire",
                expected="a limit: a number of epochs, an age or bytes",
                found="none",
                hint="see what would go: riverlock expire STORE --keep-epochs 5"
                " --dry-run",
            )
        if self.epochs is not None and self.epochs < 1:
            raise InvalidConfigError(
                "expire", expected="at least 1 epoch to keep", found=str(self.epochs)
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Expiry:
    """What an expiry deletes, and why other epochs stay though they exceed a limit.

    Attributes:
        limits: What it was made for.
        epochs: The epochs to delete, oldest first.
        files: Paths that nothing refers to afterwards.
        bytes: Of these state files.
        bytes_left: Of the state files that stay.
        spared: Epochs that stay, with the reasons.
    """

    limits: Limits
    epochs: tuple[int, ...]
    files: tuple[str, ...]
    bytes: int
    bytes_left: int
    spared: dict[int, tuple[str, ...]]


def plan_expiry(catalog: Catalog, limits: Limits, *, now_us: int) -> Expiry:
    """Return what would be deleted; delete nothing.

    Raises:
        SnapshotCorruptedError: A manifest is damaged: what it needs is unknown.
    """
    return _plan(look(catalog, now=from_micros(now_us)), limits)


def _plan(found: Look, limits: Limits) -> Expiry:
    manifests = found.manifests
    going = _over(found, limits)
    spared = _reasons(found, limits)
    if limits.bytes is not None:
        going |= _too_large(manifests, going, set(spared), limits.bytes)
    gone = going - set(spared)
    kept = [m for e, m in manifests.items() if e not in gone]
    reached: set[str] = set().union(*(references(m) for m in kept))
    sizes = _sizes(manifests[e] for e in gone)
    files = set().union(*(references(manifests[e]) for e in gone)) - reached
    return Expiry(
        limits=limits,
        epochs=tuple(sorted(gone)),
        files=tuple(sorted(files)),
        bytes=sum(size for path, size in sizes.items() if path in files),
        bytes_left=sum(_sizes(kept).values()),
        spared={e: spared[e] for e in sorted(going & set(spared))},
    )


def _over(found: Look, limits: Limits) -> set[int]:
    epochs, over = sorted(found.written), set[int]()
    if limits.epochs is not None:
        over.update(epochs[: -limits.epochs])
    if limits.age is not None:
        oldest = found.now - limits.age
        over.update(
            epoch
            for epoch, made in found.manifests.items()
            # By both: the clock of the driver may have been wrong.
            if made.decided_us < micros(oldest) and found.written[epoch] < oldest
        )
    return over


def _reasons(found: Look, limits: Limits) -> dict[int, tuple[str, ...]]:
    """Return the epochs that must stay, and why."""
    young = found.younger_than(limits.grace)
    because: tuple[str, ...] = ("decided within the grace period",)
    why = dict.fromkeys(young, because)
    for pin in found.pins:
        for epoch in found.kept_by(pin):
            why[epoch] = (*why.get(epoch, ()), str(pin))
    if found.newest is not None:
        why[found.newest] = ("the newest",)
    return why


def _too_large(
    manifests: dict[int, Manifest], going: set[int], spared: set[int], limit: int
) -> set[int]:
    """Return the oldest epochs without which the rest does not exceed the limit."""
    left = {e: m for e, m in manifests.items() if e not in going or e in spared}
    more: set[int] = set()
    for epoch in sorted(left.keys() - spared):
        if sum(_sizes(left.values()).values()) <= limit:
            break
        more.add(epoch)
        del left[epoch]
    return more


def _sizes(manifests: Iterable[Manifest]) -> dict[str, int]:
    found: dict[str, int] = {}
    for manifest in manifests:
        found |= {f.path: f.bytes for f in state_files(manifest)}
    return found


def expire(catalog: Catalog, plan: Expiry) -> int:
    """Delete what a plan says and its limits still allow; return how many files.

    The store may have changed since the plan was made: somebody went back to an old
    epoch, named one, or put a backup in its place. So the limits are applied again, to
    what exists now, and only what was agreed to is deleted. The present is what the
    clock of the storage says: that of whoever asks may be wrong by years.

    Manifests go first: whatever happens then, no remaining epoch lacks a file.
    """
    agreed, deletion = set(plan.epochs), Round(catalog)

    def choose(found: Look) -> set[int]:
        return agreed.intersection(_plan(found, plan.limits).epochs)

    def leftovers(_: Look) -> list[str]:
        # What no manifest has referred to yet may be of the run: not ours to delete.
        named = [references(m) for m in deletion.manifests_removed()]
        return sorted(set().union(*named))

    deletion.run(choose, leftovers)
    return len(deletion.gone)


def readers_first(catalog: Catalog) -> list[Catalog]:
    """Return the regions so that whatever reads another comes before it.

    What a reader keeps of its writer is less when its own epochs are gone.
    """
    newest = {r: catalog.of(r).newest() for r in catalog.regions()}
    readers = {
        region: [] if made is None else [r for _, r, _ in channels_of(made)]
        for region, made in newest.items()
    }
    found = dict[str, None]()

    def visit(region: str, path: frozenset[str]) -> None:
        for reader in readers.get(region, ()):
            if reader in readers and reader not in path:
                visit(reader, path | {reader})
        found.setdefault(region)

    for region in readers:
        visit(region, frozenset({region}))
    return [catalog.of(region) for region in found] or [catalog]
