"""The exchange as a task uses it: the protocol, a lock, and somebody who carries.

Rows for other tasks are encoded here, by the thread that sends them, so that the thread
that does I/O has nothing to compute; and decoded by the thread that takes them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, assert_never

import pyarrow as pa

from riverlock.core.errors import EpochAbortedError, ExchangeError, InternalError
from riverlock.exchange.protocol.events import (
    CancelOrdered,
    EdgeFinished,
    Event,
    Released,
    RowsGiven,
    Writable,
)
from riverlock.exchange.protocol.instructions import (
    End,
    HasFrames,
    LookAgain,
    Transmit,
)
from riverlock.exchange.protocol.task import TaskProtocol
from riverlock.exchange.wire.columns import ColumnWriter, ReceivedRows
from riverlock.exchange.wire.header import BadFrameError

if TYPE_CHECKING:
    from riverlock.exchange.bell import Bell
    from riverlock.exchange.protocol.frames import Frame
    from riverlock.exchange.seam import EdgeStatus, Shape

__all__ = ["Carrier", "LiveEpoch", "LiveExchange", "again"]


class Carrier(Protocol):
    """Brings frames to peers; both methods are called with the bell held."""

    def carry(self, peer: int) -> None:
        """Ask for frames (``next_frame``) as soon as the peer's connection takes one.

        Never waits, and asks from another thread, or later.
        """
        ...

    def stop(self) -> None:
        """Carry nothing more: the generation is over."""
        ...


def again(error: ExchangeError) -> ExchangeError:
    """Return an error to be raised once more: it may be raised by several threads."""
    return ExchangeError(error.reason, what=error.what, peer=error.peer)


class LiveExchange:
    """A task's side of all edges; see ``seam.Exchange``."""

    def __init__(self, task: int, shape: Shape, bell: Bell, carrier: Carrier) -> None:
        """Begin a generation."""
        self.task = task
        self.tasks = shape.tasks
        self.bell = bell
        self._carrier = carrier
        self._protocol = TaskProtocol(task, shape)
        self._writers = [
            ColumnWriter(edge, shape.limits) for edge in range(shape.edges)
        ]

    # For whoever carries frames.

    def handle(self, event: Event) -> Frame | None:
        """Tell the protocol of an event; return the frame that it wants sent."""
        frame = None
        with self.bell:
            for order in self._protocol.handle(event):
                match order:
                    case HasFrames():
                        self._carrier.carry(order.peer)
                    case Transmit():
                        frame = order.frame
                    case LookAgain():
                        self.bell.ring()
                    case End():
                        self._carrier.stop()
                        self.bell.ring()
                    case _:
                        assert_never(order)
        return frame

    def next_frame(self, peer: int) -> Frame | None:
        """Return what a peer gets next; None: nothing, until ``carry`` is called."""
        return self.handle(Writable(peer=peer))

    @property
    def over(self) -> ExchangeError | None:
        """Why the generation is over; None: it is not."""
        return self._protocol.over

    def has_parted(self) -> bool:
        """Tell whether everything was sent, and all were told goodbye or are gone."""
        with self.bell:
            return self.over is not None or self._protocol.has_parted()

    # For the task.

    def check(self) -> None:
        """Raise if the generation is over.

        Raises:
            ExchangeError: It is.
        """
        if self.over is not None:
            raise again(self.over)

    def begin(self, epoch: int, turn: int) -> LiveEpoch:
        """Return the exchange of an epoch."""
        found = LiveEpoch(self, self._protocol, epoch, turn)
        with self.bell:
            found.check()
        return found

    def cancel(self, epoch: int, turn: int) -> None:
        """Drop everything of this and later epochs that has a lower turn."""
        self.handle(CancelOrdered(epoch=epoch, turn=turn))

    def room(self, epoch: int) -> bool:
        """Tell whether sources may be read on for an epoch."""
        with self.bell:
            return self._protocol.room(epoch)

    def status(self) -> tuple[EdgeStatus, ...]:
        """Return how each edge is doing."""
        with self.bell:
            return self._protocol.status()

    def writer(self, edge: int) -> ColumnWriter:
        """Return what encodes the rows of an edge."""
        return self._writers[edge]


class LiveEpoch:
    """One turn of an epoch; see ``seam.EpochExchange``."""

    def __init__(
        self, exchange: LiveExchange, protocol: TaskProtocol, epoch: int, turn: int
    ) -> None:
        """Name the epoch and its turn."""
        self._exchange, self._protocol = exchange, protocol
        self._bell = exchange.bell
        self.epoch, self.turn = epoch, turn

    def check(self) -> None:
        """Check that the turn was not cancelled, and nobody is lost.

        Raises:
            EpochAbortedError: It was.
            ExchangeError: Somebody is.
        """
        self._exchange.check()
        if self._protocol.is_void(self.epoch, self.turn):
            raise EpochAbortedError(
                epoch=self.epoch,
                reason="cancelled",
                cause=f"turn {self.turn} was cancelled",
            )

    def send(self, edge: int, peer: int, rows: pa.RecordBatch) -> None:
        """Send rows to a peer, or to this task itself; never waits."""
        if not rows.num_rows:
            return
        if peer == self._exchange.task:
            self._give(edge, peer, max(1, rows.nbytes), rows.num_rows, rows)
            return
        for encoded, count in self._exchange.writer(edge).encode(rows):
            self._give(edge, peer, encoded.size, count, encoded)

    def _give(
        self, edge: int, peer: int, size: int, count: int, content: object
    ) -> None:
        event = RowsGiven(
            peer=peer,
            edge=edge,
            epoch=self.epoch,
            turn=self.turn,
            size=size,
            count=count,
            content=content,
        )
        self._handle(event)

    def finish(self, edge: int) -> None:
        """Say that no more rows of this edge come from this task; once per edge."""
        self._handle(EdgeFinished(edge=edge, epoch=self.epoch, turn=self.turn))

    def _handle(self, event: Event) -> None:
        with self._bell:
            self.check()
            self._exchange.handle(event)

    def is_complete(self, edge: int) -> bool:
        """Tell whether all tasks have finished the edge."""
        with self._bell:
            self.check()
            return self._protocol.is_complete(edge, self.epoch, self.turn)

    def await_table(
        self, edge: int, timeout: float | None
    ) -> tuple[pa.RecordBatch, ...] | None:
        """Wait for the table of an edge and take it; None: it was not there in time."""
        if not self._bell.wait_for(lambda: self.is_complete(edge), timeout):
            return None
        return self.take(edge)

    def take(self, edge: int) -> tuple[pa.RecordBatch, ...]:
        """Take the table of an edge, which must be complete; once."""
        with self._bell:
            self.check()
            found = self._protocol.take(edge, self.epoch, self.turn)
        try:
            return tuple(_batch(content) for content in found)
        except BadFrameError as error:
            what = f"edge {edge}, epoch {self.epoch}: {error}"
            raise ExchangeError("damaged", what=what) from error

    def release(self, edge: int) -> None:
        """Say that the table is not needed any more: the next one may come in."""
        self._handle(Released(edge=edge, epoch=self.epoch, turn=self.turn))


def _batch(content: object) -> pa.RecordBatch:
    if isinstance(content, ReceivedRows):
        return content.read()
    if isinstance(content, pa.RecordBatch):
        return content
    raise InternalError(f"rows arrived as {type(content).__name__}")
