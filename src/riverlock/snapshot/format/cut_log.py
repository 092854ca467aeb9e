"""Cuts that were asked for, and what became of them (format §6.4).

Each is a put-if-absent: whoever comes second finds the same. A cut is complete when its
named snapshot exists.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from riverlock.core.errors import SnapshotCorruptedError, StorageNotFoundError
from riverlock.snapshot.format.cuts.cut_records import CutAbandoned
from riverlock.snapshot.format.records import CutProposal, Named
from riverlock.snapshot.format.sealed import seal, unseal
from riverlock.snapshot.format.store_layout import (
    ABANDONED,
    CUTS,
    SNAPSHOTS,
    abandoned_path,
    begun_path,
    cut_path,
    decided_path,
    drained_path,
    numbered,
    records,
    snapshot_path,
)
from riverlock.snapshot.joint.joint_records import CutBegun, CutDecided

if TYPE_CHECKING:
    from collections.abc import Iterator

    from riverlock.snapshot.format.records import JointCut
    from riverlock.storage.base import Storage

__all__ = ["CutLog", "Found"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What one finds who knows of no cut.

    Attributes:
        last: The last number that is in use; 0: none.
        still: The cuts up to there that are not settled.
    """

    last: int
    still: tuple[CutProposal, ...]


@dataclass(frozen=True)
class CutLog:
    """The cuts of a store."""

    storage: Storage

    def propose(  # noqa: PLR0913 - the fields of a record
        self,
        name: str,
        *,
        protocol: str,
        asked_us: int,
        timeout_us: int,
        note: str,
        joint: JointCut | None = None,
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
                joint=joint,
            )
            path = cut_path(proposal.number)
            if self.storage.put_if_absent(path, seal(proposal)):
                return proposal

    def last(self) -> int:
        """Return the greatest number in use; 0: there is none."""
        return max(self._numbers(), default=0)

    def _numbers(self) -> list[int]:
        listed = self.storage.list(CUTS)
        own = [e for e in listed if "/" not in e.path.removeprefix(CUTS)]
        return [number for number, _ in numbered(own)]

    def after(self, number: int) -> Iterator[CutProposal]:
        """Yield the cuts after one, in order."""
        while True:
            number += 1
            proposal = self._proposal(number)
            if proposal is None:
                return
            yield proposal

    def found(self) -> Found:
        """Return where one who knows of no cut begins; lists the store.

        Settled cuts are not read, however many there were.
        """
        numbers, last = self._numbers(), 0
        for number in numbers:
            # A listing may miss one that is made meanwhile: it is read later.
            if last and number != last + 1:
                break
            last = number
        known = {n for n in numbers if n <= last} - self._settled()
        every = (self._proposal(number) for number in sorted(known))
        return Found(
            last=last,
            still=tuple(p for p in every if p is not None and not self.is_settled(p)),
        )

    def _settled(self) -> set[int]:
        """Return cuts that are settled; lists the store."""
        given_up = {n for n, _ in numbered(self.storage.list(ABANDONED))}
        return given_up | {n.cut for n in self._named() if n.cut is not None}

    def _named(self) -> Iterator[Named]:
        for entry in records(self.storage.list(SNAPSHOTS)):
            with suppress(StorageNotFoundError, SnapshotCorruptedError):
                data = self.storage.get(entry.path)
                yield unseal(data, Named, path=entry.path)

    def _proposal(self, number: int) -> CutProposal | None:
        path = cut_path(number)
        try:
            return unseal(self.storage.get(path), CutProposal, path=path)
        except StorageNotFoundError:
            return None

    def abandoned(self) -> Iterator[tuple[CutProposal, CutAbandoned]]:
        """Yield the cuts that were given up, and why; lists the store."""
        for number, entry in numbered(self.storage.list(ABANDONED)):
            found = unseal(self.storage.get(entry.path), CutAbandoned, path=entry.path)
            proposal = self._proposal(number)
            if proposal is None or found.is_dropped:
                continue
            if self.taken(proposal) is None:
                yield proposal, found

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

    def drop(self, number: int) -> None:
        """Settle a cut for good whose snapshot is about to lose its name."""
        record = CutAbandoned(
            number=number, why="its name was taken away", is_dropped=True
        )
        self.storage.put_if_absent(abandoned_path(number), seal(record))

    def is_drained(self, number: int) -> bool:
        """Tell whether all channels were found empty for a cut."""
        return self.storage.exists(drained_path(number))

    def declare_drained(self, number: int) -> None:
        """Say that all channels are empty."""
        self.storage.put_if_absent(drained_path(number), b"{}")

    def joint_id(self, number: int) -> str:
        """Return the id of a cut over several flows; empty for any other one."""
        found = self._proposal(number)
        return "" if found is None or found.joint is None else found.joint.id

    def begun(self, number: int) -> CutBegun | None:
        """Return what says that all flows of a cut know of it."""
        path = begun_path(number)
        try:
            return unseal(self.storage.get(path), CutBegun, path=path)
        except StorageNotFoundError:
            return None

    def begin(self, number: int, numbers: dict[str, int]) -> None:
        """Say that all flows of a cut know of it."""
        record = CutBegun(number=number, numbers=numbers)
        self.storage.put_if_absent(begun_path(number), seal(record))

    def decision(self, cut: str) -> CutDecided | None:
        """Return what became of a cut over several flows; asked of its head."""
        path = decided_path(cut)
        try:
            return unseal(self.storage.get(path), CutDecided, path=path)
        except StorageNotFoundError:
            return None

    def decide(self, decision: CutDecided) -> CutDecided:
        """Decide a cut over several flows, unless that was done; return what holds."""
        path = decided_path(decision.id)
        if self.storage.put_if_absent(path, seal(decision)):
            return decision
        return unseal(self.storage.get(path), CutDecided, path=path)
