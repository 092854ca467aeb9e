"""Brings a task's working copy to the version its epoch begins at.

Situations: the copy is there already; it is one or more committed epochs behind; it is
of another schema, another timeline or damaged; there is none. Changes of the last epoch
are usually found in a local *redo* file, as bytes that need no decoding; otherwise they
are read from the snapshot. A copy never holds anything that was not committed.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from riverlock.core import faults
from riverlock.runtime.redo import Redo, read_redo, write_redo
from riverlock.runtime.tail import TailReader, tail_at
from riverlock.snapshot.files import read_table
from riverlock.snapshot.layout import epoch_of
from riverlock.snapshot.owner import process_start
from riverlock.state.lmdb_store import LmdbStore
from riverlock.state.restore import changes_of
from riverlock.state.store import Changes, StateReader, Store, Version

if TYPE_CHECKING:
    from collections.abc import Iterator

    from riverlock.snapshot.records import StateFile
    from riverlock.state.changelog import ChangeLog
    from riverlock.state.column_log import ColumnLog
    from riverlock.state.layout import StateLayout
    from riverlock.storage.base import Storage

__all__ = ["Baseline", "WorkingCopy"]

# Expired entries are invisible anyway; a little cleaning per epoch keeps up.
_PURGE_PER_EPOCH = 20_000


@dataclass(frozen=True, kw_only=True)
class Baseline:
    """The committed state that an epoch starts from, as far as one task needs it."""

    epoch: int | None  # None: before the first epoch
    now_us: int | None = None  # processing time of that epoch
    files: tuple[StateFile, ...] = ()
    history: tuple[tuple[int, str], ...] = ()
    # Older copies are of an operator that only had the same name.
    since: int = 0

    def token(self, epoch: int) -> str | None:
        """Return the token of the run that decided an epoch; None if forgotten."""
        found = None
        for first, token in self.history:
            if first <= epoch:
                found = token
        return found

    def version(self, layout: StateLayout) -> Version | None:
        """Return the version of a store that holds it; None: before the first epoch."""
        if self.epoch is None:
            return None
        token = self.token(self.epoch)
        assert token is not None
        return Version(self.epoch, token, layout.digest)

    def within(self, groups: tuple[int, int]) -> Baseline:
        """Return the part that a range of key groups needs."""
        files = tuple(
            f
            for f in self.files
            if f.shared or (f.first_group < groups[1] and groups[0] < f.end_group)
        )
        return replace(self, files=files)


class WorkingCopy:
    """The store of one operator and range of key groups on this machine."""

    def __init__(self, root: Path, groups: tuple[int, int]) -> None:
        """Name the place: ``<root>/<first>-<end>``; nothing is opened."""
        name = f"{groups[0]:05d}-{groups[1]:05d}"
        self.groups = groups
        self.store: Store = LmdbStore(root / name)
        self._tail = tail_at(root / f"{name}.tail")
        self._redo = root / f"{name}.redo"
        self._busy = root / f"{name}.busy"
        self._lock = root / f"{name}.lock"

    @contextmanager
    def in_use(self, token: str) -> Iterator[None]:
        """Mark the copy while user code runs over it.

        A mark left by a dead process of *this* run means that a worker crashed with
        the copy open, perhaps because of it: the copy is thrown away. A mark of an
        earlier run only says that the driver died, which harms no copy.
        """
        self._busy.mkdir(mode=0o700, parents=True, exist_ok=True)
        with self._alone():
            for mark in list(self._busy.iterdir()):
                pid, _, owner = mark.name.partition("-")
                if process_start(int(pid)) is None:
                    if owner == token:
                        self._clear()
                    mark.unlink(missing_ok=True)
        mine = self._busy / f"{os.getpid()}-{token}"
        mine.touch()
        try:
            yield
        finally:
            mine.unlink(missing_ok=True)

    @contextmanager
    def reading(
        self, base: Baseline, layout: StateLayout, storage: Storage
    ) -> Iterator[StateReader]:
        """Open a view of exactly the baseline.

        Two attempts of a task may run on one machine, even of different epochs. The
        copy is moved by one at a time, and the view is taken before the next may move
        it; after that LMDB keeps the view as it is.

        Raises:
            SnapshotCorruptedError: A needed file is missing or altered.
            StateCorruptedError: The copy is damaged: throw it away and come again.
        """
        with ExitStack() as stack:
            with self._alone():
                self.bring_to(base, layout, storage)
                # Up to the committed time only: the epoch may be aborted, and the
                # next one may see an earlier instant.
                if base.now_us is not None:
                    self.store.purge(base.now_us, _PURGE_PER_EPOCH)
                reader = stack.enter_context(self.store.read())
            tail = self._tail
            tail.panes.be_at(base.version(layout))
            is_plain = tail.is_empty and tail.panes.is_empty
            yield reader if is_plain else TailReader(reader, tail)

    def throw_away(self) -> None:
        """Forget the copy: the next one is built from the snapshot."""
        with self._alone():
            self._clear()

    def _clear(self) -> None:
        self.store.clear()
        self._tail.clear()
        self._tail.panes.be_at(None)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        self._lock.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with self._lock.open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

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
        files = self._missing(base, wanted, have)
        if files is None:
            faults.hit("R2")
            self._clear()
            files = list(base.files)
        self._apply(files, wanted, layout, storage)
        self._forget_redo(wanted.epoch)

    @staticmethod
    def _missing(
        base: Baseline, wanted: Version, have: Version | None
    ) -> list[StateFile] | None:
        """Return the files that lead from ``have`` to ``wanted``; None: start anew."""
        if (
            have is None
            or have.schema != wanted.schema
            or have.epoch >= wanted.epoch
            or have.epoch < base.since
            or base.token(have.epoch) != have.token
        ):
            return None
        later = [f for f in base.files if f.last_epoch > have.epoch]
        # A merged file that reaches back before our version may have dropped
        # tombstones that we still need.
        if any(f.first_epoch <= have.epoch for f in later):
            return None
        return later

    def _apply(
        self,
        files: list[StateFile],
        wanted: Version,
        layout: StateLayout,
        storage: Storage,
    ) -> None:
        ordered = sorted(files, key=lambda f: (f.first_epoch, f.last_epoch))
        if len(ordered) <= 1 and self.store.version() is not None:
            self._catch_up(ordered, wanted, layout, storage)
            return
        # Dying half way must not look like any version: it leads to a rebuild.
        half_way = Version(wanted.epoch, "incomplete", "")
        if not self._tail.is_empty:
            self.store.apply(self._tail.changes(), half_way)
        for file in ordered:
            self.store.apply(self._redone(file, layout, storage)[0].changes(), half_way)
            faults.hit("R2")
        self.store.apply(Changes.empty(), wanted)
        self._tail.clear()

    def _catch_up(
        self,
        files: list[StateFile],
        wanted: Version,
        layout: StateLayout,
        storage: Storage,
    ) -> None:
        """Take the changes of at most one file, as happens in every epoch."""
        redo, found = Redo.of(Changes.empty()), None
        for file in files:
            redo, found = self._redone(file, layout, storage)
        may_wait = redo.fits and not (layout.handled or redo.timers or redo.expiries)
        # Nothing to wait for: the version moves on, or a compaction would overtake it.
        if not may_wait or (not files and self._tail.is_empty):
            self.store.apply(self._tail.with_all(redo), wanted)
            self._tail.clear()
            return
        self._tail.add(redo, wanted, found)
        if self._tail.is_full:
            self.store.apply(self._tail.changes(), wanted)
            self._tail.clear()

    def _redone(
        self, file: StateFile, layout: StateLayout, storage: Storage
    ) -> tuple[Redo, Path | None]:
        """Return what a state file changes, and the redo file that said it."""
        path = self._redo_path(file.path)
        redo = read_redo(path, layout.digest)
        if redo is not None:
            return redo, path
        return Redo.of(changes_of(read_table(storage, file, self.groups), layout)), None

    def write_redo(
        self, path: str, log: ChangeLog | ColumnLog, layout: StateLayout
    ) -> None:
        """Keep the bytes of a change file until it is known whether it counts."""
        write_redo(self._redo_path(path), Redo.of_log(log), layout.digest)

    def _redo_path(self, path: str) -> Path:
        return self._redo / (Path(path).stem + ".redo")

    def _forget_redo(self, epoch: int) -> None:
        with suppress(OSError, ValueError):
            for old in self._redo.iterdir():
                if epoch_of(old.name) <= epoch:
                    old.unlink(missing_ok=True)
