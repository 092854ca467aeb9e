"""The protocol of one task: what happens to it in, what is to be done out.

It does no I/O, has no clock and no threads. Whoever runs it gives it one event at a
time, carries out its instructions, and asks it what there is to take.

A task is its own peer as well: what it sends to itself follows the same rules, over a
connection that takes no time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from riverlock.core.errors import ExchangeError, InternalError
from riverlock.exchange.protocol.events import (
    Abandoned,
    Arrived,
    CancelOrdered,
    Closing,
    EdgeFinished,
    Event,
    PeerLost,
    Released,
    RowsGiven,
    Writable,
)
from riverlock.exchange.protocol.floors import Floors
from riverlock.exchange.protocol.frames import (
    Cancel,
    Credit,
    Frame,
    Goodbye,
    Marker,
    Rows,
)
from riverlock.exchange.protocol.inbox import BrokenRuleError, Inbox
from riverlock.exchange.protocol.instructions import (
    End,
    HasFrames,
    Instruction,
    LookAgain,
    Transmit,
)
from riverlock.exchange.protocol.outbox import Outbox
from riverlock.exchange.protocol.sending import Sending
from riverlock.exchange.seam import EdgeStatus

if TYPE_CHECKING:
    from riverlock.exchange.seam import Shape

__all__ = ["TaskProtocol"]


class TaskProtocol:
    """What one task of a generation knows. Not thread-safe: one caller."""

    def __init__(self, task: int, shape: Shape) -> None:
        """Begin a generation."""
        self.task = task
        self.shape = shape
        self.over: ExchangeError | None = None
        self._peers = range(shape.tasks)
        self._floors = Floors()
        self._inboxes = [Inbox(edge, shape) for edge in range(shape.edges)]
        self._outboxes = [Outbox(shape) for _ in self._peers]
        self._sendings = [Sending(edge, shape) for edge in range(shape.edges)]
        self._waiting = 0  # bytes of rows in all outboxes
        # By peer, the edges of which it is to be told how far it may send.
        self._owed: list[set[int]] = [set() for _ in self._peers]
        self._left: set[int] = set()  # who has said goodbye
        self._is_closing = False
        self._parted: set[int] = set()  # to whom we have
        # Of the event that is being handled.
        self._touched: set[int] = set()
        self._is_news = False

    # Events.

    def handle(self, event: Event) -> tuple[Instruction, ...]:
        """Take note of an event and return what to do about it.

        Once the generation is over, nothing is done about any event.

        Raises:
            InternalError: The task itself breaks a rule of the seam.
        """
        if self.over is not None:
            return ()
        self._touched.clear()
        self._is_news = False
        sent = self._on_event(event)
        if self.task in self._touched:
            self._loop_back()
        return self._ending() or self._instructions(sent)

    def _ending(self) -> tuple[Instruction, ...]:
        return () if self.over is None else (End(error=self.over),)

    def _instructions(self, sent: Instruction | None) -> tuple[Instruction, ...]:
        found: list[Instruction] = [] if sent is None else [sent]
        found += [
            HasFrames(peer=peer)
            for peer in sorted(self._touched)
            if peer != self.task and self._has_frames(peer)
        ]
        if self._is_news:
            found.append(LookAgain())
        return tuple(found)

    def _on_event(self, event: Event) -> Instruction | None:
        match event:
            case Writable():
                return self._on_writable(event.peer)
            case Arrived():
                self._on_arrived(event.peer, event.frame)
            case RowsGiven():
                self._on_rows_given(event)
            case EdgeFinished():
                self._on_edge_finished(event)
            case Released():
                self._on_released(event)
            case CancelOrdered():
                self._cancel(Cancel(epoch=event.epoch, turn=event.turn))
            case PeerLost():
                self._on_peer_lost(event)
            case Abandoned():
                self.over = event.error
            case Closing():
                self._is_closing = True
                self._touched.update(self._peers)
            case _:
                assert_never(event)
        return None

    # Of the task itself.

    def _on_rows_given(self, event: RowsGiven) -> None:
        if self._floors.is_void(event.epoch, event.turn):
            return
        rows = Rows(
            edge=event.edge,
            epoch=event.epoch,
            turn=event.turn,
            size=event.size,
            count=event.count,
            content=event.content,
        )
        self._sendings[event.edge].add(event.peer, rows)
        self._put(event.peer, rows)

    def _on_edge_finished(self, event: EdgeFinished) -> None:
        if self._floors.is_void(event.epoch, event.turn):
            return
        markers = self._sendings[event.edge].finish(event.epoch, event.turn)
        for peer, marker in enumerate(markers):
            self._put(peer, marker)

    def _put(self, peer: int, frame: Rows | Marker) -> None:
        if peer in self._left:
            return
        self._outboxes[peer].put(frame)
        if isinstance(frame, Rows):
            self._waiting += frame.size
        self._touched.add(peer)

    def _on_released(self, event: Released) -> None:
        if self._floors.is_void(event.epoch, event.turn):
            return
        inbox = self._inboxes[event.edge]
        if not inbox.release(event.epoch, event.turn):
            raise InternalError(
                f"edge {event.edge}, epoch {event.epoch} was released before it was"
                f" taken, or before epoch {inbox.collected}"
            )
        for peer in self._peers:
            self._settle(peer, inbox)

    def _cancel(self, cancel: Cancel) -> None:
        """Take up a cancel from wherever we hear it first, and pass it on."""
        if not self._floors.add(cancel.epoch, cancel.turn):
            return
        for sending in self._sendings:
            sending.cancel(cancel.epoch)
        for outbox in self._outboxes:
            outbox.cancel(cancel, self._floors)
        self._waiting = sum(outbox.waiting for outbox in self._outboxes)
        for inbox in self._inboxes:
            inbox.cancel(cancel.epoch)
            for peer in self._peers:
                self._settle(peer, inbox)
        self._touched.update(self._peers)
        self._is_news = True

    # Of peers.

    def _on_arrived(self, peer: int, frame: Frame) -> None:
        try:
            self._take_in(peer, frame)
        except BrokenRuleError as error:
            what = f"task {peer} broke the protocol: {error}"
            self.over = ExchangeError("protocol broken", what=what, peer=peer)

    def _take_in(self, peer: int, frame: Frame) -> None:
        match frame:
            case Rows():
                inbox = self._inbox(frame.edge)
                if self._floors.is_void(frame.epoch, frame.turn):
                    inbox.drop(peer, frame)
                else:
                    inbox.add(peer, frame)
                self._settle(peer, inbox)
            case Marker():
                inbox = self._inbox(frame.edge)
                if not self._floors.is_void(frame.epoch, frame.turn):
                    self._is_news |= inbox.finish(peer, frame)
            case Credit():
                self._inbox(frame.edge)
                self._outboxes[peer].credited(frame, self._floors)
                self._touched.add(peer)
                self._is_news = True
            case Cancel():
                self._cancel(frame)
            case Goodbye():
                self._part(peer)
            case _:
                assert_never(frame)

    def _inbox(self, edge: int) -> Inbox:
        if not edge < len(self._inboxes):
            raise BrokenRuleError(f"there is no edge {edge}")
        return self._inboxes[edge]

    def _on_peer_lost(self, event: PeerLost) -> None:
        if event.peer in self._left:
            return
        if self._is_closing:
            self._part(event.peer)
            return
        what = f"task {event.peer} is gone: {event.why}"
        self.over = ExchangeError("peer lost", what=what, peer=event.peer)

    def _part(self, peer: int) -> None:
        """Take note that a peer neither sends nor reads any more."""
        self._left.add(peer)
        self._waiting -= self._outboxes[peer].waiting
        self._outboxes[peer].clear()
        self._owed[peer].clear()
        self._is_news = True

    # What goes out.

    def _settle(self, peer: int, inbox: Inbox) -> None:
        """See whether a peer is to be told how far it may send."""
        if inbox.owes_credit(peer) and peer not in self._left:
            self._owed[peer].add(inbox.edge)
            self._touched.add(peer)

    def _has_frames(self, peer: int) -> bool:
        return (
            bool(self._owed[peer])
            or self._outboxes[peer].has_frames()
            or self._may_part(peer)
        )

    def _may_part(self, peer: int) -> bool:
        return (
            self._is_closing
            and peer not in self._parted
            and self._outboxes[peer].is_empty
        )

    def _on_writable(self, peer: int) -> Instruction | None:
        frame = self._next(peer)
        return None if frame is None else Transmit(peer=peer, frame=frame)

    def _next(self, peer: int) -> Frame | None:
        """Return what a peer gets next; a cancel before the credit given after it."""
        outbox, owed = self._outboxes[peer], self._owed[peer]
        cancel = outbox.next_cancel()
        if cancel is not None:
            return cancel
        if owed:
            edge = min(owed)
            owed.discard(edge)
            return self._inboxes[edge].credit(peer, self._floors.newest)
        frame = outbox.next()
        if frame is None and self._may_part(peer) and peer != self.task:
            self._parted.add(peer)
            return Goodbye()
        if isinstance(frame, Rows):
            self._note_sent(frame.size)
        return frame

    def _note_sent(self, size: int) -> None:
        most = self.shape.limits.waiting_bytes
        before, self._waiting = self._waiting, self._waiting - size
        self._is_news |= before >= most > self._waiting

    def _loop_back(self) -> None:
        """Let what the task sends to itself arrive."""
        while self.over is None:
            frame = self._next(self.task)
            if frame is None:
                return
            self._on_arrived(self.task, frame)

    # Questions.

    def is_void(self, epoch: int, turn: int) -> bool:
        """Tell whether a turn of an epoch was cancelled."""
        return self._floors.is_void(epoch, turn)

    def room(self, epoch: int) -> bool:
        """Tell whether sources may be read on for an epoch."""
        if self._waiting >= self.shape.limits.waiting_bytes:
            return False
        return all(epoch < outbox.end_epoch for outbox in self._outboxes)

    def is_complete(self, edge: int, epoch: int, turn: int) -> bool:
        """Tell whether a table can be taken.

        Raises:
            ExchangeError: It never can be: somebody has left before finishing it.
        """
        inbox = self._inboxes[edge]
        if inbox.is_complete(epoch, turn):
            return True
        for peer in inbox.lacks(epoch):
            if peer in self._left:
                what = f"task {peer} has left before the end of epoch {epoch}"
                raise ExchangeError("peer left", what=what, peer=peer)
        return False

    def take(self, edge: int, epoch: int, turn: int) -> list[object]:
        """Return the rows of a table, in the order of peers, each in order of sending.

        Raises:
            InternalError: It is not complete, or was taken before.
        """
        found = self._inboxes[edge].take(epoch, turn)
        if found is None:
            raise InternalError(
                f"the table of edge {edge}, epoch {epoch} is not complete, or was taken"
            )
        return found

    def has_parted(self) -> bool:
        """Tell whether, after ``Closing``, all peers were told goodbye or are gone."""
        others = {p for p in self._peers if p != self.task}
        return others <= self._parted | self._left

    def status(self) -> tuple[EdgeStatus, ...]:
        """Return how each edge is doing."""
        return tuple(
            EdgeStatus(
                edge=inbox.edge,
                epoch=inbox.collected,
                waits_for=inbox.lacks(inbox.collected),
                rows_in=inbox.rows,
                bytes_in=inbox.bytes,
                bytes_out={
                    peer: size
                    for peer, outbox in enumerate(self._outboxes)
                    if (size := outbox.waiting_on(inbox.edge))
                },
            )
            for inbox in self._inboxes
        )

    def inbox(self, edge: int) -> Inbox:
        """Return what has arrived on an edge, for those who check bounds."""
        return self._inboxes[edge]
