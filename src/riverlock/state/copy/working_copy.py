"""Brings a task's working copy to the version its epoch begins at.

Situations: the copy is already there; it is one or more committed epochs behind; it is
of another schema, another timeline or damaged; there is none, but other ranges on this
machine have its key groups; there is nothing. Changes of the last epoch are usually
found in a local *redo* file, as bytes that need no decoding; otherwise they are read
from the snapshot. A copy never holds anything that was not committed.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from riverlock.core import faults
from riverlock.core.errors import StateCorruptedError
from riverlock.snapshot.format.state_files import read_table
from riverlock.snapshot.format.store_layout import epoch_of
from riverlock.state.copy.copy_place import Spot
from riverlock.state.copy.lmdb import LmdbStore
from riverlock.state.copy.neighbours import Share, neighbours, only, shared_out
from riverlock.state.copy.rebuilding import changes_of
from riverlock.state.copy.redo import Redo, read_redo, write_redo
from riverlock.state.copy.tail import TailReader, tail_at
from riverlock.state.store import Changes, StateReader, Store, Version

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from riverlock.snapshot.format.records import StateFile
    from riverlock.state.changelog import EntryLog
    from riverlock.state.copy.baseline import Baseline
    from riverlock.state.copy.memories import Memories
    from riverlock.state.copy.neighbours import Range
    from riverlock.state.layout import StateLayout
    from riverlock.storage.base import Storage

__all__ = ["WorkingCopy"]

# Expired entries are invisible anyway; a little cleaning per epoch keeps up.
_PURGE_PER_EPOCH = 20_000


class WorkingCopy:
    """The store of one operator and range of key groups on this machine."""

    def __init__(self, root: Path, groups: tuple[int, int], token: str) -> None:
        """Name the place: ``<root>/<first>-<end>``; nothing is opened.

        Args:
            root: The directory of all copies of an operator.
            groups: The range.
            token: Of the run.
        """
        self.groups = groups
        self._spot = Spot(root, groups)
        self._token = token
        self.store: Store = LmdbStore(self._spot.store)
        self._tail = tail_at(self._spot.tail)
        # Since it was named: state files that were read from the store, and key groups
        # that other copies had.
        self.files_read = 0
        self.groups_taken = 0

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Mark the copy while user code runs over it.

        A mark left by a dead process of *this* run means that a worker crashed with
        the copy open, perhaps because of it: the copy is thrown away.
        """
        with self._spot.alone():
            if self._spot.has_crashed(self._token):
                self._clear()
            self._spot.forget_crashes()
        with self._spot.marked(self._token):
            yield

    @contextmanager
    def reading(
        self, base: Baseline, layout: StateLayout, storage: Storage
    ) -> Iterator[StateReader]:
        """Open a view of exactly the baseline.

        Two attempts of a task may run on one machine, even of different epochs. One at
        a time moves the copy, and the view is taken before the next may move it; after
        that LMDB keeps the view as it is.

        Raises:
            SnapshotCorruptedError: A needed file is missing or altered.
            StateCorruptedError: The copy is damaged: throw it away and try again.
        """
        with ExitStack() as stack:
            with self._spot.alone():
                self.bring_to(base, layout, storage)
                # Up to the committed time only: the epoch may be aborted, and the
                # next one may see an earlier instant.
                if base.now_us is not None:
                    self.store.purge(base.now_us, _PURGE_PER_EPOCH)
                reader = stack.enter_context(self.store.read())
            tail = self._tail
            tail.memories.be_at(base.version(layout))
            yield reader if tail.is_empty else TailReader(reader, tail)

    @property
    def memories(self) -> Memories:
        """What operators remember of the copy: of what is read, while it is read."""
        return self._tail.memories

    def throw_away(self) -> None:
        """Forget the copy: the next one is built from the snapshot."""
        with self._spot.alone():
            self._clear()

    def _clear(self) -> None:
        self.store.clear()
        self._tail.clear()
        self._tail.memories.be_at(None)

    def bring_to(self, base: Baseline, layout: StateLayout, storage: Storage) -> None:
        """Make the store hold exactly the baseline.

        Raises:
            SnapshotCorruptedError: A needed file is missing or altered.
        """
        wanted = base.version(layout)
        if wanted is None:
            # Always: this process may remember what another one has cleared.
            self._clear()
            return
        have = self.store.version()
        if have is not None and have.schema == wanted.schema:
            have = self._tail.follow(have, wanted.epoch, base.token)
        if have == wanted:
            return
        # What leads on from the copy, as a rule one file, is all that must be known.
        near = self._read_lists(base, storage, None if have is None else have.epoch)
        files = near.after(have, wanted)
        if files is None or len(files) > 1:
            near = self._read_lists(base, storage, None)
        way = _Way(near, wanted, layout, storage)
        if files is None:
            faults.hit("R2")
            self._build(way)
        elif len(files) <= 1:
            self._catch_up(files, way)
        elif not self._build(way, instead_of=files):
            self._follow(files, way)
        self._forget_redo(wanted.epoch)

    def _read_lists(
        self, base: Baseline, storage: Storage, after: int | None
    ) -> Baseline:
        return base.read(storage, after=after).within(self.groups)

    def _build(self, way: _Way, *, instead_of: list[StateFile] | None = None) -> bool:
        """Make the copy anew, from other copies and the store.

        Args:
            way: To the version that is wanted.
            instead_of: Files that would bring the existing copy there. Then it is made
                anew only if nothing is needed from the store, and if fewer entries are
                taken than would have to be read.

        Returns:
            Whether it was made.
        """
        with neighbours(self._spot, way.base, way.wanted, self._token) as found:
            shares = shared_out(self.groups, found)
            if instead_of is not None and not self._are_fewer(shares, instead_of, way):
                return False
            try:
                self._fill(shares, way)
            except StateCorruptedError:
                # One of them: which entries of it were wrong before that is not known.
                self._fill([Share(self.groups, None, has_shared=True)], way)
        return True

    def _are_fewer(
        self, shares: list[Share], files: list[StateFile], way: _Way
    ) -> bool:
        """Whether less is to be read of other copies, and to bring it up to date."""
        taken = 0
        for share in shares:
            if share.of is None:
                return False
            base = way.base.within(share.groups, shared=share.has_shared)
            later = base.after(share.of.version, way.wanted) or []
            taken += share.of.size(share.groups)
            taken += _unread(later, [self._spot, share.of.spot])
        return taken < _unread(files, [self._spot])

    def _fill(self, shares: list[Share], way: _Way) -> None:
        self._clear()
        for share in shares:
            base = way.base.within(share.groups, shared=share.has_shared)
            files = list(base.files)
            if share.of is not None:
                for changes in share.of.entries(share):
                    self.store.apply(changes, way.half)
                    faults.hit("R2")
                later = base.after(share.of.version, way.wanted)
                assert later is not None  # or it would be no neighbour
                files = later
            for file in _ordered(files):
                self.store.apply(self._changes(file, share, way), way.half)
                faults.hit("R2")
        self.store.apply(Changes.empty(), way.wanted)
        sizes = [s.groups[1] - s.groups[0] for s in shares if s.of is not None]
        self.groups_taken += sum(sizes)

    def _changes(self, file: StateFile, share: Share, way: _Way) -> Changes:
        """Return what a file changes in the groups of a share."""
        if share.groups == self.groups and share.of is None:
            return self._redone(file, way)[0].changes()
        spots = [self._spot] if share.of is None else [self._spot, share.of.spot]
        for spot in spots:
            redo = read_redo(spot.redo_of(file.path), way.layout.digest)
            if redo is not None:
                return only(redo.changes(), share)
        return only(self._read(file, share.groups, way), share)

    def _follow(self, files: list[StateFile], way: _Way) -> None:
        """Take the changes of several files."""
        if not self._tail.is_empty:
            self.store.apply(self._tail.changes(), way.half)
        for file in _ordered(files):
            self.store.apply(self._redone(file, way)[0].changes(), way.half)
            faults.hit("R2")
        self.store.apply(Changes.empty(), way.wanted)
        self._tail.clear()

    def _catch_up(self, files: list[StateFile], way: _Way) -> None:
        """Take the changes of at most one file, as happens in every epoch."""
        redo, found = Redo.of(Changes.empty()), None
        for file in files:
            redo, found = self._redone(file, way)
        may_wait = redo.fits and not (
            way.layout.handled or redo.timers or redo.expiries
        )
        # Nothing to wait for: the version moves on, or a compaction would overtake it.
        if not may_wait or (not files and self._tail.is_empty):
            self.store.apply(self._tail.with_all(redo), way.wanted)
            self._tail.clear()
            return
        self._tail.add(redo, way.wanted, found)
        if self._tail.is_full:
            self.store.apply(self._tail.changes(), way.wanted)
            self._tail.clear()

    def _redone(self, file: StateFile, way: _Way) -> tuple[Redo, Path | None]:
        """Return what a state file changes, and the redo file that said it."""
        path = self._spot.redo_of(file.path)
        redo = read_redo(path, way.layout.digest)
        if redo is not None:
            return redo, path
        return Redo.of(self._read(file, self.groups, way)), None

    def _read(self, file: StateFile, groups: Range, way: _Way) -> Changes:
        self.files_read += 1
        return changes_of(read_table(way.storage, file, groups), way.layout)

    def write_redo(self, path: str, log: EntryLog, layout: StateLayout) -> None:
        """Keep the bytes of a change file until it is known whether it counts."""
        write_redo(self._spot.redo_of(path), log.redo(), layout.digest)

    def _forget_redo(self, epoch: int) -> None:
        with suppress(OSError, ValueError):
            for old in self._spot.redos():
                if epoch_of(old.name) <= epoch:
                    old.unlink(missing_ok=True)


@dataclass(frozen=True)
class _Way:
    """Where a copy must go, and what it needs for that."""

    base: Baseline
    wanted: Version
    layout: StateLayout
    storage: Storage

    @property
    def half(self) -> Version:
        """A version that does not exist: dying half way leads to a rebuild."""
        return Version(self.wanted.epoch, "incomplete", "")


def _ordered(files: list[StateFile]) -> list[StateFile]:
    return sorted(files, key=lambda f: (f.first_epoch, f.last_epoch))


def _unread(files: list[StateFile], spots: list[Spot]) -> int:
    """Return how many rows of files have to be read from the store."""
    return sum(
        file.rows
        for file in files
        if not any(spot.redo_of(file.path).exists() for spot in spots)
    )
