"""What has arrived on one edge, by epoch, and how much more may come."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from riverlock.exchange.protocol.frames import Credit

if TYPE_CHECKING:
    from riverlock.exchange.protocol.frames import Marker, Rows
    from riverlock.exchange.seam import Shape

__all__ = ["BrokenRuleError", "Inbox"]

# Credit is told when this part of it is new: rarely, but before it can run out.
_PART = 4


class BrokenRuleError(Exception):
    """A peer did what the protocol does not allow."""


@dataclass
class _FromPeer:
    """What one peer has sent of one edge and epoch."""

    contents: list[object] = field(default_factory=list)
    rows: int = 0
    bytes: int = 0
    is_finished: bool = False


@dataclass
class _Table:
    """The rows of an epoch, from all peers."""

    turn: int
    peers: list[_FromPeer]
    is_taken: bool = False

    @property
    def is_complete(self) -> bool:
        return all(p.is_finished for p in self.peers)


@dataclass
class _Account:
    """Totals of bytes of one peer: come in, free again, and allowed."""

    most_bytes: int
    end_epoch: int
    received: int = 0
    freed: int = 0


class Inbox:
    """One edge.

    The oldest epoch that is not released is *collected*: its table must be here as a
    whole, so that its rows never use up credit. Rows of later epochs do, until theirs
    is collected. As peers send epoch after epoch, one without credit has sent all that
    the collected epoch needs: credit delays later epochs, but never the collected one.
    """

    def __init__(self, edge: int, shape: Shape) -> None:
        """Begin with nothing."""
        self.edge = edge
        self.collected = shape.first_epoch
        self._limits = shape.limits
        self._tasks = shape.tasks
        self._tables: dict[int, _Table] = {}
        end = shape.first_epoch + shape.limits.open_epochs
        self._accounts = [
            _Account(most_bytes=shape.limits.credit_bytes, end_epoch=end)
            for _ in range(shape.tasks)
        ]

    def add(self, peer: int, rows: Rows) -> None:
        """Take rows in."""
        account, sent = self._accounts[peer], self._open(peer, rows)
        if account.received >= account.most_bytes:
            raise BrokenRuleError(f"it sent rows of edge {self.edge} without credit")
        account.received += rows.size
        if rows.epoch == self.collected:
            account.freed += rows.size
        sent.contents.append(rows.content)
        sent.rows += rows.count
        sent.bytes += rows.size

    def drop(self, peer: int, rows: Rows) -> None:
        """Count rows of a cancelled turn, and forget them."""
        account = self._accounts[peer]
        account.received += rows.size
        account.freed += rows.size

    def finish(self, peer: int, marker: Marker) -> bool:
        """Take a marker in; tell whether the table is complete now."""
        sent = self._open(peer, marker)
        if (len(sent.contents), sent.rows) != (marker.frames, marker.rows):
            raise BrokenRuleError(
                f"it sent {marker.rows} rows of edge {self.edge}, epoch {marker.epoch},"
                f" in {marker.frames} frames; {sent.rows} rows in"
                f" {len(sent.contents)} frames have come"
            )
        sent.is_finished = True
        return self._tables[marker.epoch].is_complete

    def _open(self, peer: int, frame: Rows | Marker) -> _FromPeer:
        """Return where something of an epoch belongs."""
        what = f"edge {self.edge}, epoch {frame.epoch}, turn {frame.turn}"
        end = self._accounts[peer].end_epoch
        if not self.collected <= frame.epoch < end:
            raise BrokenRuleError(
                f"it sent {what}; open are epochs {self.collected} to {end - 1}"
            )
        table = self._tables.get(frame.epoch)
        if table is None:
            senders = [_FromPeer() for _ in range(self._tasks)]
            table = self._tables[frame.epoch] = _Table(frame.turn, senders)
        if table.turn != frame.turn:
            raise BrokenRuleError(f"it sent {what}; others sent turn {table.turn}")
        if table.peers[peer].is_finished:
            raise BrokenRuleError(f"it sent {what} after its marker")
        return table.peers[peer]

    def is_complete(self, epoch: int, turn: int) -> bool:
        """Tell whether a table is whole and can be taken."""
        table = self._tables.get(epoch)
        return table is not None and table.turn == turn and table.is_complete

    def lacks(self, epoch: int) -> tuple[int, ...]:
        """Return the peers that have not finished an epoch."""
        table = self._tables.get(epoch)
        if table is None:
            return tuple(range(self._tasks)) if epoch >= self.collected else ()
        return tuple(n for n, p in enumerate(table.peers) if not p.is_finished)

    def take(self, epoch: int, turn: int) -> list[object] | None:
        """Return the rows of a table, by peer; None: it is not whole, or was taken."""
        if not self.is_complete(epoch, turn) or self._tables[epoch].is_taken:
            return None
        table = self._tables[epoch]
        table.is_taken = True
        found = [c for p in table.peers for c in p.contents]
        for sent in table.peers:
            sent.contents = []
            sent.rows = 0
        return found

    def release(self, epoch: int, turn: int) -> bool:
        """Collect the next epoch; tell whether that was in order."""
        table = self._tables.get(epoch)
        if epoch != self.collected or table is None:
            return False
        if table.turn != turn or not table.is_taken:
            return False
        del self._tables[epoch]
        self.collected += 1
        self._free(self._tables.get(self.collected))
        return True

    def cancel(self, epoch: int) -> None:
        """Drop this and all later epochs."""
        for dropped in [e for e in self._tables if e >= epoch]:
            table = self._tables.pop(dropped)
            if dropped > self.collected:
                self._free(table)
        self.collected = min(self.collected, epoch)
        end = epoch + self._limits.open_epochs
        for account in self._accounts:
            account.end_epoch = min(account.end_epoch, end)

    def _free(self, table: _Table | None) -> None:
        if table is not None:
            for account, sent in zip(self._accounts, table.peers, strict=True):
                account.freed += sent.bytes

    def owes_credit(self, peer: int) -> bool:
        """Tell whether it is time to tell a peer how far it may send."""
        account, limits = self._accounts[peer], self._limits
        more = account.freed + limits.credit_bytes - account.most_bytes
        epochs = self.collected + limits.open_epochs - account.end_epoch
        half = max(1, limits.open_epochs // 2)
        return more * _PART >= limits.credit_bytes or epochs >= half

    def credit(self, peer: int, turn: int) -> Credit:
        """Return how far a peer may send from now on."""
        account, limits = self._accounts[peer], self._limits
        account.most_bytes = account.freed + limits.credit_bytes
        end_epoch = self.collected + limits.open_epochs
        account.end_epoch = max(account.end_epoch, end_epoch)
        return Credit(
            edge=self.edge,
            turn=turn,
            bytes=account.most_bytes,
            epoch=account.end_epoch,
        )

    @property
    def rows(self) -> int:
        """How many rows have come and were not taken."""
        return sum(p.rows for t in self._tables.values() for p in t.peers)

    @property
    def bytes(self) -> int:
        """The same in bytes."""
        return sum(
            p.bytes for t in self._tables.values() if not t.is_taken for p in t.peers
        )

    @property
    def later_bytes(self) -> int:
        """How many bytes of epochs that are not collected yet are here."""
        return sum(
            p.bytes
            for epoch, t in self._tables.items()
            if epoch > self.collected
            for p in t.peers
        )

    @property
    def open_epochs(self) -> int:
        """How many epochs have something here."""
        return len(self._tables)
