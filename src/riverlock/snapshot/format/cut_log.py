"""Cuts that were asked for, and what became of them (format §6.4).

Each is a put-if-absent: whoever comes second finds the same. A cut is complete when its
named snapshot exists.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from riverlock.core.errors import StorageNotFoundError
from riverlock.snapshot.format.records import CutAbandoned, CutProposal, Named
from riverlock.snapshot.format.sealed import seal, unseal
from riverlock.snapshot.format.store_layout import (
    CUTS,
    abandoned_path,
    cut_path,
    drained_path,
    numbered,
    snapshot_path,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from riverlock.storage.base import Storage

__all__ = ["CutLog"]


@dataclass(frozen=True)
class CutLog:
    """The cuts of a store."""

    storage: Storage

    def propose(
        self, name: str, *, protocol: str, asked_us: int, timeout_us: int, note: str
    ) -> CutProposal:
        """Ask for a cut; return once that is durable."""
        while True:
            proposal = CutProposal(
                number=self.last() + 1,
                name=name,
                protocol=protocol,
                asked_us=asked_us,
                timeout_us=timeout_us,
                note=note,
            )
            path = cut_path(proposal.number)
            if self.storage.put_if_absent(path, seal(proposal)):
                return proposal

    def last(self) -> int:
        """Return the greatest number in use; 0: there is none."""
        listed = self.storage.list(CUTS)
        own = [e for e in listed if "/" not in e.path.removeprefix(CUTS)]
        return max((number for number, _ in numbered(own)), default=0)

    def after(self, number: int) -> Iterator[CutProposal]:
        """Yield the cuts after one, in order."""
        while True:
            number += 1
            path = cut_path(number)
            try:
                yield unseal(self.storage.get(path), CutProposal, path=path)
            except StorageNotFoundError:
                return

    def open_cuts(self) -> list[CutProposal]:
        """Return the cuts that are not settled; lists the store."""
        return [p for p in self.after(0) if not self.is_settled(p)]

    def is_settled(self, proposal: CutProposal) -> bool:
        """Tell whether nobody waits for a cut any more."""
        return self.taken(proposal) is not None or self.given_up(proposal) is not None

    def taken(self, proposal: CutProposal) -> Named | None:
        """Return the snapshot that came of a cut."""
        path = snapshot_path(proposal.name)
        try:
            found = unseal(self.storage.get(path), Named, path=path)
        except StorageNotFoundError:
            return None
        return found if found.cut == proposal.number else None

    def given_up(self, proposal: CutProposal) -> CutAbandoned | None:
        """Return why a cut was given up."""
        path = abandoned_path(proposal.number)
        try:
            return unseal(self.storage.get(path), CutAbandoned, path=path)
        except StorageNotFoundError:
            return None

    def give_up(self, number: int, why: str) -> None:
        """Give up a cut, unless that was done."""
        record = CutAbandoned(number=number, why=why)
        self.storage.put_if_absent(abandoned_path(number), seal(record))

    def is_drained(self, number: int) -> bool:
        """Tell whether all channels were found empty for a cut."""
        return self.storage.exists(drained_path(number))

    def declare_drained(self, number: int) -> None:
        """Say that all channels are empty."""
        self.storage.put_if_absent(drained_path(number), b"{}")
