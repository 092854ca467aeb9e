"""What is in a store: flows, epochs, runs, named snapshots.

The only module that knows which file decides what. Listing happens at start, in
commands and beside the loop; never while an epoch runs.
"""

from __future__ import annotations

import contextlib
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from riverlock.core import faults
from riverlock.core.errors import (
    InvalidConfigError,
    RiverlockError,
    SnapshotCorruptedError,
    SnapshotError,
    SnapshotNotFoundError,
    StorageNotFoundError,
    UnsupportedFormatError,
)
from riverlock.core.ids import MAIN_REGION, check_name
from riverlock.snapshot.file_lists import as_stored, whole
from riverlock.snapshot.flow_file import opened_flow, read_flow
from riverlock.snapshot.format.closed_numbers import CLOSED, without_closed
from riverlock.snapshot.format.cut_log import CutLog
from riverlock.snapshot.format.records import (
    FORMAT,
    REGIONS_FEATURE,
    Flow,
    Manifest,
    Named,
    Run,
)
from riverlock.snapshot.format.references import first_missing, references
from riverlock.snapshot.format.sealed import seal, unseal
from riverlock.snapshot.format.store_layout import (
    REGIONS,
    SNAPSHOTS,
    RegionPaths,
    numbered,
    records,
    snapshot_path,
)
from riverlock.snapshot.kept_epochs import held_by
from riverlock.snapshot.retention.expiring import announced, written_at
from riverlock.snapshot.timeline import decider

if TYPE_CHECKING:
    from collections.abc import Iterable

    from riverlock.snapshot.format.cuts.cut_records import Reset
    from riverlock.snapshot.format.records import Record
    from riverlock.storage.base import Entry, Storage

__all__ = ["Catalog"]


@dataclass(frozen=True, slots=True)
class Catalog:
    """Reads and writes the records of a store."""

    storage: Storage
    region: str = MAIN_REGION

    @property
    def paths(self) -> RegionPaths:
        """The paths of the region."""
        return RegionPaths(self.region)

    def of(self, region: str) -> Catalog:
        """Return the same store, for another region."""
        return Catalog(self.storage, region)

    def regions(self) -> list[str]:
        """Return the regions that have an epoch; lists the store."""
        found = {
            entry.path.removeprefix(REGIONS).partition("/")[0]
            for entry in self.storage.list(REGIONS)
            if "/epochs/" in entry.path
        }
        return sorted(found)

    def living_regions(self) -> list[str]:
        """Return the regions that have an epoch, a run or a start; lists the store."""
        alive = ("epochs", "runs", "starting")
        parts = [e.path.split("/") for e in self.storage.list(REGIONS)]
        return sorted({p[1] for p in parts if len(p) > 3 and p[2] in alive})

    def check_one_region(
        self, what: str, *, hint: str = "say which: region=, or --region"
    ) -> None:
        """Refuse what is only there for flows of one region.

        Raises:
            InvalidConfigError: The flow has several.
        """
        if REGIONS_FEATURE not in self.flow().features:
            return
        raise InvalidConfigError(
            what,
            expected="the store of a flow with one region",
            found=f"regions {', '.join(self.regions()) or 'without epochs'}",
            hint=f"nothing was changed; {hint}",
        )

    def flow(self) -> Flow:
        """Return the flow of the store.

        Raises:
            SnapshotNotFoundError: There is no store here.
            UnsupportedFormatError: A newer version wrote it.
        """
        return read_flow(self.storage)

    def open_flow(
        self,
        name: str,
        *,
        key_groups: int,
        now_us: int,
        features: tuple[str, ...] = (),
    ) -> Flow:
        """Return the store's flow, making the store if it is new.

        Args:
            name: Of the flow.
            key_groups: Of the flow.
            now_us: The present.
            features: What readers of the store must know from now on.

        Raises:
            InvalidConfigError: The store belongs to another flow, or the number of key
                groups differs.
        """
        fresh = Flow(
            format=FORMAT,
            name=name,
            id=uuid.uuid4().hex,
            key_groups=key_groups,
            created_us=now_us,
            features=features,
        )
        return opened_flow(self.storage, fresh)

    def listed_epochs(self) -> list[tuple[int, Entry]]:
        """Return the retained epochs and their manifests, oldest first."""
        return without_closed(numbered(self.storage.list(self.paths.epochs)))

    def epochs(self) -> list[int]:
        """Return the retained epochs, oldest first."""
        return [epoch for epoch, _ in self.listed_epochs()]

    def newest(self) -> Manifest | None:
        """Return the newest manifest, or None before the first epoch."""
        epochs = self.epochs()
        return self.manifest(epochs[-1]) if epochs else None

    def manifest(self, epoch: int) -> Manifest:
        """Return the manifest of a retained epoch, with all its files.

        Raises:
            SnapshotNotFoundError: It is not retained.
            SnapshotCorruptedError: It was altered, or lists that it refers to.
        """
        stored = self.stored(epoch)
        try:
            return whole(self.storage, stored)
        except SnapshotCorruptedError:
            # Deleted meanwhile, and its lists after it?
            self.stored(epoch)
            raise

    def stored(self, epoch: int) -> Manifest:
        """Return a manifest as it is stored: without the files that lists have.

        Raises:
            SnapshotNotFoundError: It is not retained.
            SnapshotCorruptedError: It was altered.
        """
        found = self.find_manifest(epoch)
        if found is None:
            raise self.no_epoch(f"epoch {epoch}")
        return found

    def find_manifest(self, epoch: int) -> Manifest | None:
        """Return a manifest as it is stored, or None; one read, and no listing.

        Raises:
            SnapshotCorruptedError: It was altered.
        """
        path = self.paths.manifest(epoch)
        try:
            data = self.storage.get(path)
        except StorageNotFoundError:
            return None
        if data == CLOSED:
            return None
        found = unseal(data, Manifest, path=path)
        if found.format > FORMAT:
            raise UnsupportedFormatError(path, supported=FORMAT, found=found.format)
        return found

    def decide(self, manifest: Manifest) -> bool:
        """Put the manifest if absent: the commit point. False: already decided.

        The lists that it refers to must be there.
        """
        return self.storage.put_if_absent(
            self.paths.manifest(manifest.epoch), seal(as_stored(manifest))
        )

    def newest_run(self) -> Run | None:
        """Return the newest claim of the region."""
        claims = self.listed_runs()
        return self.run(claims[-1][0]) if claims else None

    def listed_runs(self) -> list[tuple[int, Entry]]:
        """Return the run numbers that were claimed, with the files that say so."""
        return numbered(self.storage.list(self.paths.runs))

    def run(self, number: int) -> Run | None:
        """Return the claim of a run number, or None."""
        path = self.paths.run(number)
        try:
            return unseal(self.storage.get(path), Run, path=path)
        except StorageNotFoundError:
            return None

    def claim(self, run: Run) -> bool:
        """Claim a run number; False if another run has it."""
        return self.storage.put_if_absent(self.paths.run(run.run), seal(run))

    def snapshots(self) -> list[Named]:
        """Return the named snapshots."""
        # A pin that came too late takes its name back.
        return self._named(StorageNotFoundError)

    def snapshots_that_can_be_read(self) -> list[Named]:
        """Return the named snapshots whose records are whole."""
        return self._named(StorageNotFoundError, SnapshotCorruptedError)

    def _named(self, *passed_over: type[RiverlockError]) -> list[Named]:
        found = []
        for entry in records(self.storage.list(SNAPSHOTS)):
            with contextlib.suppress(*passed_over):
                data = self.storage.get(entry.path)
                found.append(unseal(data, Named, path=entry.path))
        return found

    def pin(self, name: str, *, epoch: int, now_us: int, note: str = "") -> Named:
        """Name an epoch, so that retention keeps it.

        Raises:
            InvalidConfigError: The name is taken, or a number.
            SnapshotNotFoundError: The epoch is not retained, or not whole.
        """
        self.check_name(name)
        named = Named(
            name=name,
            regions={self.region: epoch},
            created_us=now_us,
            note=note,
            tokens={self.region: decider(self.manifest(epoch))},
        )
        if not self.hold(snapshot_path(name), named, epoch=epoch):
            raise _taken(name)
        return named

    def pin_all(self, named: Named) -> None:
        """Name one epoch of each region, and what was in flight between them.

        Raises:
            InvalidConfigError: The name is taken.
            SnapshotNotFoundError: An epoch is not retained, or not whole; nothing is
                left behind.
        """
        tokens = {r: decider(self.of(r).manifest(e)) for r, e in named.regions.items()}
        named = msgspec.structs.replace(named, tokens=tokens)
        if not self.hold_all(snapshot_path(named.name), named, held_by(named)):
            raise _taken(named.name)

    def check_name(self, name: str) -> None:
        """Check that a name can be given to an epoch.

        Raises:
            InvalidFlowError: It cannot be part of a path.
            InvalidConfigError: It is taken, or a number.
        """
        check_name("snapshot name", name)
        if name.isdecimal():
            raise InvalidConfigError(
                f"snapshot name {name!r}",
                expected="a name that is not a number: numbers are epochs",
                found=name,
            )
        if self.storage.exists(snapshot_path(name)):
            raise _taken(name)

    def unpin(self, name: str) -> Named:
        """Remove a name; its epoch is kept no longer than others.

        Raises:
            SnapshotNotFoundError: There is no such name.
        """
        for named in self.snapshots():
            if named.name == name:
                if named.cut is not None:
                    # Without its name, regions would take the cut for an open one.
                    CutLog(self.storage).drop(named.cut)
                self.storage.delete(snapshot_path(name))
                return named
        raise self._unknown_name(name)

    def hold(self, path: str, record: Record, *, epoch: int) -> bool:
        """Write a record that keeps an epoch from retention; False if it exists.

        Raises:
            SnapshotNotFoundError: The epoch is not retained, or not whole; nothing is
                left behind.
        """
        return self.hold_all(path, record, [(self.region, epoch)])

    def hold_all(
        self, path: str, record: Record, held: Iterable[tuple[str, int]]
    ) -> bool:
        """Write a record that keeps epochs of several regions; False if it exists.

        Raises:
            SnapshotNotFoundError: One is not retained, or not whole; nothing is left
                behind.
        """
        if not self.storage.put_if_absent(path, seal(record)):
            return False
        faults.hit("V5")
        try:
            self.check_all_held(path, held)
        except SnapshotError:
            self.storage.delete(path)
            raise
        return True

    def check_all_held(self, path: str, held: Iterable[tuple[str, int]]) -> None:
        """Check that the record keeps these epochs, each with its region.

        Raises:
            SnapshotNotFoundError: One is not retained, or not whole.
        """
        for region, epoch in dict.fromkeys(held):
            self.of(region).check_held(path, epoch=epoch)

    def check_held(self, path: str, *, epoch: int) -> None:
        """Check that the record keeps its epoch.

        From now on retention spares it; it may have been deleted just before, or be
        about to be.

        Raises:
            SnapshotNotFoundError: The epoch is not retained, or not whole.
        """
        if epoch in announced(self, now=written_at(self, path)):
            raise SnapshotNotFoundError(
                f"epoch {epoch}",
                store=self.storage.uri,
                available="it only until it is deleted, which has begun",
            )
        self.check_whole(epoch)

    def check_whole(self, epoch: int) -> None:
        """Check that an epoch and all it refers to exist; reads no file.

        Raises:
            SnapshotNotFoundError: Something does not.
        """
        needed = references(self.manifest(epoch))
        missing = first_missing(self.storage, needed, below=self.paths.root)
        if missing is not None:
            raise SnapshotNotFoundError(
                f"epoch {epoch}",
                store=self.storage.uri,
                available=f"its manifest, but not {missing}",
            )

    def resolve(self, at: str | int | None) -> Manifest:
        """Return the manifest meant by a number, a name, or None for the newest.

        Raises:
            SnapshotNotFoundError: There is no such epoch or name.
        """
        if at is None:
            found = self.newest()
            if found is None:
                raise SnapshotNotFoundError(
                    "an epoch", store=self.storage.uri, available="no epoch yet"
                )
            return found
        text = str(at)
        if text.isdecimal():
            return self.manifest(int(text))
        for named in self.snapshots():
            if named.name == text and self.region in named.regions:
                return self.named(named)
        raise self._unknown_name(text)

    def named(self, named: Named | Reset) -> Manifest:
        """Return the epoch of this region that a name stands for.

        Raises:
            SnapshotNotFoundError: It is not retained, or is another one by now: the
                region was put back from a backup, without its names.
        """
        epoch, token = named.regions[self.region], named.tokens.get(self.region)
        found = self.manifest(epoch)
        if token and decider(found) not in ("", token):
            raise SnapshotNotFoundError(
                f"epoch {epoch} of region {self.region!r} that {named.name!r} names",
                store=self.storage.uri,
                available="another epoch of that number since it was put back from a"
                " backup",
            )
        return found

    def resolve_all(self, at: str | int | None) -> tuple[Manifest, ...]:
        """Return the manifest of each region meant by a name, or None for the newest.

        The newest epochs of several regions are not one cut: a region may have read
        more or less of another than that one has decided.

        Raises:
            SnapshotNotFoundError: There is no such epoch or name.
            InvalidConfigError: A number is not enough: there are several regions.
        """
        if REGIONS_FEATURE not in self.flow().features:
            return (self.resolve(at),)
        if at is None:
            found = [self.of(region).newest() for region in self.regions()]
            return tuple(m for m in found if m is not None) or (self.resolve(None),)
        if str(at).isdecimal():
            names = [n.name for n in self.snapshots()]
            raise InvalidConfigError(
                f"epoch {at} of {self.storage.uri}",
                expected=f"the name of a snapshot ({', '.join(names) or 'none yet'})",
                found="a number, which each region has an epoch of",
            )
        for named in self.snapshots():
            if named.name == str(at):
                return tuple(self.of(region).named(named) for region in named.regions)
        raise self._unknown_name(str(at))

    def no_epoch(self, what: str) -> SnapshotNotFoundError:
        """Return the error for an epoch that is not retained."""
        match self.epochs():
            case []:
                span = "no epoch"
            case [only]:
                span = f"epoch {only}"
            case epochs:
                span = f"epochs {epochs[0]} to {epochs[-1]}"
        return SnapshotNotFoundError(what, store=self.storage.uri, available=span)

    def _unknown_name(self, name: str) -> SnapshotNotFoundError:
        names = [named.name for named in self.snapshots()]
        return SnapshotNotFoundError.among(
            f"snapshot {name!r}", store=self.storage.uri, kind="snapshot", names=names
        )


def _taken(name: str) -> InvalidConfigError:
    return InvalidConfigError(
        f"snapshot name {name!r}",
        expected="a new name",
        found="an existing one",
        hint=f"choose another, or drop it: riverlock snapshot STORE {name} --drop",
    )
