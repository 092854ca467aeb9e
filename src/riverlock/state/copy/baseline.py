"""The committed state that an epoch starts from, and what leads there."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from riverlock.state.store import Version

if TYPE_CHECKING:
    from riverlock.snapshot.format.records import StateFile
    from riverlock.state.layout import StateLayout

__all__ = ["Baseline"]


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

    def within(self, groups: tuple[int, int], *, shared: bool = True) -> Baseline:
        """Return the part that a range of key groups needs.

        Args:
            groups: The range.
            shared: Whether broadcast state is needed too.
        """
        files = tuple(
            f
            for f in self.files
            if (shared and f.shared)
            or (f.first_group < groups[1] and groups[0] < f.end_group)
        )
        return replace(self, files=files)

    def after(self, have: Version | None, wanted: Version) -> list[StateFile] | None:
        """Return the files that lead from ``have`` to ``wanted``; None: none do."""
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
