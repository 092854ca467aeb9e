"""The committed state that an epoch starts from, and what leads there."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from riverlock.snapshot.file_lists import in_order, read_list
from riverlock.state.store import Version

if TYPE_CHECKING:
    from riverlock.snapshot.format.records import FileList, StateFile
    from riverlock.state.layout import StateLayout
    from riverlock.storage.base import Storage

__all__ = ["Baseline"]


@dataclass(frozen=True, kw_only=True)
class Baseline:
    """The committed state that an epoch starts from, as far as one task needs it."""

    epoch: int | None  # None: before the first epoch
    now_us: int | None = None  # processing time of that epoch
    files: tuple[StateFile, ...] = ()
    # Where more files stand, as long as they are not read.
    lists: tuple[FileList, ...] = ()
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

    def within(self, groups: tuple[int, int], *, shared: bool = True) -> Baseline:
        """Return the part that a range of key groups needs.

        Args:
            groups: The range.
            shared: Whether broadcast state is needed too.
        """

        def is_needed(each: StateFile | FileList) -> bool:
            within = each.first_group < groups[1] and groups[0] < each.end_group
            return within or (shared and each.shared)

        return replace(
            self,
            files=tuple(filter(is_needed, self.files)),
            lists=tuple(filter(is_needed, self.lists)),
        )

    def read(self, storage: Storage, *, after: int | None = None) -> Baseline:
        """Return it with what its lists name: all, or those of epochs after one.

        Raises:
            SnapshotCorruptedError: A list is missing or altered.
        """
        later = [e for e in self.lists if after is None or e.last_epoch > after]
        if not later:
            return self
        more = [f for each in later for f in read_list(storage, each)]
        left = tuple(e for e in self.lists if e not in later)
        return replace(self, files=in_order((*self.files, *more)), lists=left)

    def after(self, have: Version | None, wanted: Version) -> list[StateFile] | None:
        """Return the files that lead from ``have`` to ``wanted``; None: none do.

        Lists of epochs after ``have`` must have been read.
        """
        if have == wanted:
            return []
        if (
            have is None
            or have.schema != wanted.schema
            or have.epoch >= wanted.epoch
            or have.epoch < self.since
            or self.token(have.epoch) != have.token
        ):
            return None
        later = [f for f in self.files if f.last_epoch > have.epoch]
        # A merged file that reaches back before our version may have dropped
        # tombstones that we still need.
        if any(f.first_epoch <= have.epoch for f in later):
            return None
        return later
