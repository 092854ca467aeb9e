"""The seam between the continuous engine and what carries rows between its tasks.

The driver asks ``DriverControl`` for an invitation to a **generation**: as many tasks
as the flow has, started together, that live until one of them dies or the driver ends
them. Each task joins with it and becomes a ``Member``: it has a connection to the
driver (``TaskControl``) and one to each of the other tasks, its **peers**
(``Exchange``). Tasks are numbered from 0; the number is a task's partition.

**Edges.** Rows go by epoch and edge: the number of the stage that gets them, from 0.
In every epoch each task sends rows on each edge to whichever peers they belong to,
itself included, and then finishes the edge. The table of an edge and epoch is complete
when all tasks have finished it. Edges that nobody reads in an epoch are finished too.

**A task's life.** Epochs of a generation have consecutive numbers. For each, the task
reads its share of the input and sends it on edge 0, takes the table of edge 0,
computes, releases it, sends the result on edge 1, and so on. Epochs may overlap: rows
of later epochs are kept apart, within bounds (``Limits``). Sending never waits. Only
one thing is ever held back: reading the sources. Before it reads more, a task asks
``Exchange.room``; if there is none, it does what else there is to do, older epochs
first. A task must not wait for room alone while the table of an older epoch is
complete: others may be waiting for what becomes of it.

**Order.** The batches of a table come in the order of the tasks that sent them; those
of one task in the order in which it sent them. So a table is a function of what was
sent, not of when it arrived.

**Turns.** An epoch that is tried again has a higher turn, as in the coordinator. The
driver tells all tasks to cancel; what was sent of an earlier turn is then dropped,
wherever it is, and can never be in a table of the new one. A task may hear of it from a
peer before the driver's order arrives: from then on, whatever it does for the earlier
turn raises ``EpochAbortedError``.

**Death.** If a task or the driver is gone, the generation is over: waiting and sending
raise ``ExchangeError``, at once if the operating system tells, otherwise after the
time-outs of ``Limits``.

**Threads.** All methods may be called from any thread. What is waited for is looked at
whenever anything has changed (``Member.wait``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, Self, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType

    import pyarrow as pa

    from riverlock.exchange.limits import Limits

__all__ = [
    "Answer",
    "ControlEvent",
    "DriverControl",
    "EdgeStatus",
    "EpochExchange",
    "Exchange",
    "Member",
    "Message",
    "Shape",
    "TaskControl",
    "TaskLost",
    "TaskPlace",
]


@dataclass(frozen=True, slots=True)
class Message:
    """What driver and tasks tell each other; only the engine knows what it means."""

    kind: int  # from 0 to 65,535
    payload: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What all tasks of a generation agree on."""

    tasks: int
    edges: int
    first_epoch: int
    limits: Limits


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskPlace:
    """Where a task of the generation runs."""

    task: int
    host: str
    process: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A task sent a message."""

    task: int
    message: Message


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskLost:
    """A task is gone, or has said goodbye; told once per task and generation."""

    task: int
    why: str
    is_orderly: bool = False  # it has said goodbye


ControlEvent: TypeAlias = Answer | TaskLost


class DriverControl(Protocol):
    """The driver's side of a run; one generation at a time."""

    def begin(self, shape: Shape) -> bytes:
        """Begin a generation; return the invitation to it, for its tasks alone.

        What is left of the generation before is over. An invitation holds the secret
        of the run: it goes to tasks by the way their code takes, and into no log.
        """
        ...

    def await_tasks(self, timeout: float) -> tuple[TaskPlace, ...]:
        """Wait until all tasks have joined, and are connected to each other.

        Raises:
            ExchangeError: They were not within the time, or one was lost meanwhile.
        """
        ...

    def send(self, task: int, message: Message) -> None:
        """Send to one task; never waits. A task that is gone gets nothing."""
        ...

    def broadcast(self, message: Message) -> None:
        """Send to all tasks."""
        ...

    def receive(self, timeout: float | None) -> ControlEvent | None:
        """Return what happened next in this generation; None: nothing in time.

        None at once if the generation was ended, by another thread.

        Messages of a task come in the order in which it sent them, and before the news
        that it is gone.
        """
        ...

    def end(self) -> None:
        """End the generation: tasks that are still there are told so."""
        ...

    def close(self) -> None:
        """End the generation and stop listening."""
        ...


class TaskControl(Protocol):
    """A task's side of its connection to the driver."""

    @property
    def has_message(self) -> bool:
        """Whether ``receive`` would return one at once."""
        ...

    def receive(self, timeout: float | None) -> Message | None:
        """Return the driver's next message; None: there was none in time.

        Raises:
            ExchangeError: The driver is gone (reason ``driver lost``), or it has ended
                the generation (``ended``).
        """
        ...

    def send(self, message: Message) -> None:
        """Send to the driver; never waits.

        Raises:
            ExchangeError: As ``receive``.
        """
        ...


class EpochExchange(Protocol):
    """One turn of an epoch.

    All methods raise ``EpochAbortedError`` once the turn is cancelled, and
    ``ExchangeError`` once a peer is lost.
    """

    @property
    def epoch(self) -> int:
        """The number of the epoch."""
        ...

    @property
    def turn(self) -> int:
        """Which attempt at the epoch it is."""
        ...

    def send(self, edge: int, peer: int, rows: pa.RecordBatch) -> None:
        """Send rows to a peer, or to this task itself; never waits.

        They may have other columns than those sent before: a table has each as it was
        sent. The rows are not copied at once: they must not change afterwards.
        """
        ...

    def finish(self, edge: int) -> None:
        """Say that no more rows of this edge come from this task; once per edge."""
        ...

    def is_complete(self, edge: int) -> bool:
        """Tell whether all tasks have finished the edge."""
        ...

    def await_table(
        self, edge: int, timeout: float | None
    ) -> tuple[pa.RecordBatch, ...] | None:
        """Wait for the table of an edge and take it; None: it was not there in time."""
        ...

    def take(self, edge: int) -> tuple[pa.RecordBatch, ...]:
        """Take the table of an edge, which must be complete; once.

        Without rows it has no batches.
        """
        ...

    def release(self, edge: int) -> None:
        """Say that the table is not needed any more: the next one may come in.

        Tables of an edge are released in the order of their epochs.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgeStatus:
    """How an edge is doing, for people.

    Attributes:
        epoch: The oldest epoch whose table was not released.
        waits_for: The tasks that have not finished that epoch.
        rows_in: Rows that arrived and were not taken.
        bytes_in: The same in bytes.
        bytes_out: By peer, bytes that wait until they may be sent; none: left out.
    """

    edge: int
    epoch: int
    waits_for: tuple[int, ...]
    rows_in: int
    bytes_in: int
    bytes_out: Mapping[int, int]


class Exchange(Protocol):
    """A task's side of all edges."""

    @property
    def task(self) -> int:
        """The number of this task."""
        ...

    @property
    def tasks(self) -> int:
        """How many tasks there are."""
        ...

    def begin(self, epoch: int, turn: int) -> EpochExchange:
        """Return the exchange of an epoch; may be called again for the same one.

        Raises:
            EpochAbortedError: The turn was cancelled.
        """
        ...

    def cancel(self, epoch: int, turn: int) -> None:
        """Drop everything of this and later epochs that has a lower turn.

        Those epochs now have this turn. Turns grow from cancel to cancel; the driver
        gives the same order to all tasks. May be called again.
        """
        ...

    def room(self, epoch: int) -> bool:
        """Tell whether sources may be read on for an epoch."""
        ...

    def status(self) -> tuple[EdgeStatus, ...]:
        """Return how each edge is doing."""
        ...


class Member(Protocol):
    """A task that has joined; closes all that it has open when the task ends."""

    @property
    def control(self) -> TaskControl:
        """The connection to the driver."""
        ...

    @property
    def exchange(self) -> Exchange:
        """The connections to the other tasks."""
        ...

    def wait(self, until: Callable[[], bool], timeout: float | None) -> bool:
        """Wait until something is so; False: it was not in time.

        ``until`` is asked now, and again whenever a message or rows arrive, there is
        room again, or an epoch was cancelled. It must be quick and may ask ``control``
        and ``exchange``.

        Raises:
            ExchangeError: It is not so, and the generation is over.
        """
        ...

    def close(self) -> None:
        """Send what still has to be sent, say goodbye and close everything.

        Called when the task ends, whichever way: leaving a ``with`` block does it.
        """
        ...

    def __enter__(self) -> Self:
        """Return itself."""
        ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close it."""
        ...
