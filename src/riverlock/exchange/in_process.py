"""Driver and tasks in one process: each task a thread, rows handed over as they are.

For tests, and for engines that are to be tried without processes.
"""

from __future__ import annotations

import threading
from collections import Counter, defaultdict, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

from riverlock.core.errors import EpochAbortedError, ExchangeError
from riverlock.exchange.seam import (
    Answer,
    ControlEvent,
    EdgeStatus,
    Message,
    Shape,
    TaskLost,
    TaskPlace,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    import pyarrow as pa

__all__ = ["InProcessDriver"]


@dataclass
class _Generation:
    """All that the tasks of a generation share; guarded by ``changed``."""

    shape: Shape
    changed: threading.Condition
    joined: set[int] = field(default_factory=set)
    over: ExchangeError | None = None
    to_driver: deque[ControlEvent] = field(default_factory=deque)
    to_task: dict[int, deque[Message]] = field(
        default_factory=lambda: defaultdict(deque)
    )
    # By task, edge and epoch: the batches of each peer, and who has finished.
    rows: dict[tuple[int, int, int], dict[int, list[pa.RecordBatch]]] = field(
        default_factory=dict
    )
    finished: dict[tuple[int, int, int], set[int]] = field(
        default_factory=lambda: defaultdict(set)
    )
    taken: set[tuple[int, int, int]] = field(default_factory=set)
    released: Counter[tuple[int, int]] = field(default_factory=Counter)
    cancels: list[tuple[int, int]] = field(default_factory=list)

    def turn(self, epoch: int) -> int:
        return max((t for first, t in self.cancels if epoch >= first), default=0)

    def check(self) -> None:
        if self.over is not None:
            raise self.over


class InProcessDriver:
    """The driver's side; see ``DriverControl``. Tasks join with ``join``."""

    def __init__(self) -> None:
        """Begin without a generation."""
        self._changed = threading.Condition()
        self._generation: _Generation | None = None
        self._invitations: dict[bytes, _Generation] = {}

    def begin(self, shape: Shape) -> bytes:
        """Begin a generation; what is left of the one before is over."""
        self.end()
        with self._changed:
            self._generation = _Generation(shape, self._changed)
            invitation = f"generation {len(self._invitations)}".encode()
            self._invitations[invitation] = self._generation
            return invitation

    def join(self, invitation: bytes, task: int) -> InProcessMember:
        """Become a task of a generation."""
        with self._changed:
            generation = self._invitations[invitation]
            generation.check()
            generation.joined.add(task)
            self._changed.notify_all()
        return InProcessMember(generation, task)

    @property
    def _now(self) -> _Generation:
        assert self._generation is not None
        return self._generation

    def await_tasks(self, timeout: float) -> tuple[TaskPlace, ...]:
        """Wait until all tasks have joined."""
        with self._changed:
            found, tasks = self._now, self._now.shape.tasks
            if not self._changed.wait_for(lambda: len(found.joined) == tasks, timeout):
                raise ExchangeError(
                    "timed out", what=f"{len(found.joined)} of {tasks} tasks came"
                )
            return tuple(TaskPlace(task=t, host="", process=0) for t in range(tasks))

    def send(self, task: int, message: Message) -> None:
        """Send to one task."""
        with self._changed:
            self._now.to_task[task].append(message)
            self._changed.notify_all()

    def broadcast(self, message: Message) -> None:
        """Send to all tasks."""
        for task in range(self._now.shape.tasks):
            self.send(task, message)

    def receive(self, timeout: float | None) -> ControlEvent | None:
        """Return what happened next."""
        with self._changed:
            waiting = self._now.to_driver
            found = self._changed.wait_for(lambda: bool(waiting), timeout)
            return waiting.popleft() if found else None

    def end(self) -> None:
        """End the generation."""
        with self._changed:
            if self._generation is not None and self._generation.over is None:
                self._generation.over = ExchangeError(
                    "ended", what="the driver has ended the generation"
                )
            self._changed.notify_all()

    def close(self) -> None:
        """End the generation."""
        self.end()


class InProcessMember:
    """A task; see ``Member``, ``Exchange`` and ``TaskControl``: it is all of them."""

    def __init__(self, generation: _Generation, task: int) -> None:
        """Take the place of a task."""
        self._shared = generation
        self._changed = generation.changed
        self.task = task
        self.tasks = generation.shape.tasks
        self._is_closed = False

    @property
    def control(self) -> Self:
        """The connection to the driver."""
        return self

    @property
    def exchange(self) -> Self:
        """The connections to the other tasks."""
        return self

    def wait(self, until: Callable[[], bool], timeout: float | None) -> bool:
        """Wait until something is so."""
        with self._changed:
            found = self._changed.wait_for(
                lambda: until() or self._shared.over is not None, timeout
            )
            if found and not until():
                self._shared.check()
            return found

    @property
    def has_message(self) -> bool:
        """Whether there is a message."""
        return bool(self._shared.to_task[self.task])

    def receive(self, timeout: float | None) -> Message | None:
        """Return the driver's next message."""
        if not self.wait(lambda: self.has_message, timeout):
            return None
        with self._changed:
            return self._shared.to_task[self.task].popleft()

    def send(self, message: Message) -> None:
        """Send to the driver."""
        with self._changed:
            self._shared.check()
            self._shared.to_driver.append(Answer(task=self.task, message=message))
            self._changed.notify_all()

    def begin(self, epoch: int, turn: int) -> InProcessEpoch:
        """Return the exchange of an epoch."""
        found = InProcessEpoch(self._shared, self, epoch, turn)
        with self._changed:
            found.check()
        return found

    def cancel(self, epoch: int, turn: int) -> None:
        """Drop everything of this and later epochs that has a lower turn."""
        shared = self._shared
        with self._changed:
            if any(turn <= t for _, t in shared.cancels):
                return
            shared.cancels.append((epoch, turn))
            for place in [p for p in shared.rows if p[2] >= epoch]:
                del shared.rows[place]
            for place in [p for p in shared.finished if p[2] >= epoch]:
                del shared.finished[place]
            shared.taken = {p for p in shared.taken if p[2] < epoch}
            self._changed.notify_all()

    def room(self, epoch: int) -> bool:
        """Tell whether sources may be read on: always."""
        return True

    def status(self) -> tuple[EdgeStatus, ...]:
        """Return how each edge is doing."""
        with self._changed:
            return tuple(self._edge(e) for e in range(self._shared.shape.edges))

    def _edge(self, edge: int) -> EdgeStatus:
        shared = self._shared
        epoch = shared.shape.first_epoch + shared.released[(self.task, edge)]
        found = shared.finished[(self.task, edge, epoch)]
        kept = [
            batch
            for (task, e, _), rows in shared.rows.items()
            if (task, e) == (self.task, edge)
            for batches in rows.values()
            for batch in batches
        ]
        return EdgeStatus(
            edge=edge,
            epoch=epoch,
            waits_for=tuple(t for t in range(self.tasks) if t not in found),
            rows_in=sum(b.num_rows for b in kept),
            bytes_in=sum(b.nbytes for b in kept),
            bytes_out={},
        )

    def close(self) -> None:
        """Leave the generation."""
        self._leave("it has said goodbye", is_orderly=True)

    def die(self) -> None:
        """Leave as a process does that is killed."""
        self._leave("its connection was closed", is_orderly=False)

    def _leave(self, why: str, *, is_orderly: bool) -> None:
        with self._changed:
            if self._is_closed:
                return
            self._is_closed = True
            lost = TaskLost(task=self.task, why=why, is_orderly=is_orderly)
            self._shared.to_driver.append(lost)
            if not is_orderly and self._shared.over is None:
                self._shared.over = ExchangeError(
                    "peer lost", what=f"task {self.task}: {why}", peer=self.task
                )
            self._changed.notify_all()

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close it; an error is the death of the task."""
        if error is None:
            self.close()
        else:
            self.die()


class InProcessEpoch:
    """One turn of an epoch; see ``EpochExchange``."""

    def __init__(
        self, shared: _Generation, member: InProcessMember, epoch: int, turn: int
    ) -> None:
        """Name the epoch and its turn."""
        self._shared, self._member = shared, member
        self.epoch, self.turn = epoch, turn

    def check(self) -> None:
        """Check that the turn was not cancelled, and nobody is lost."""
        self._shared.check()
        if self.turn < self._shared.turn(self.epoch):
            raise EpochAbortedError(
                epoch=self.epoch,
                reason="cancelled",
                cause=f"turn {self.turn} was cancelled",
            )

    def send(self, edge: int, peer: int, rows: pa.RecordBatch) -> None:
        """Send rows to a task."""
        with self._shared.changed:
            self.check()
            place = self._shared.rows.setdefault((peer, edge, self.epoch), {})
            place.setdefault(self._member.task, []).append(rows)

    def finish(self, edge: int) -> None:
        """Say that no more rows of this edge come from this task."""
        with self._shared.changed:
            self.check()
            for peer in range(self._member.tasks):
                place = (peer, edge, self.epoch)
                self._shared.finished[place].add(self._member.task)
            self._shared.changed.notify_all()

    def is_complete(self, edge: int) -> bool:
        """Tell whether all tasks have finished the edge."""
        with self._shared.changed:
            self.check()
            place = (self._member.task, edge, self.epoch)
            return len(self._shared.finished[place]) == self._member.tasks

    def await_table(
        self, edge: int, timeout: float | None
    ) -> tuple[pa.RecordBatch, ...] | None:
        """Wait for the table of an edge and take it."""
        if not self._member.wait(lambda: self.is_complete(edge), timeout):
            return None
        return self.take(edge)

    def take(self, edge: int) -> tuple[pa.RecordBatch, ...]:
        """Take the table of an edge."""
        with self._shared.changed:
            assert self.is_complete(edge), "the table is not complete"
            place = (self._member.task, edge, self.epoch)
            assert place not in self._shared.taken, "the table was taken"
            self._shared.taken.add(place)
            rows = self._shared.rows.pop(place, {})
            return tuple(batch for peer in sorted(rows) for batch in rows[peer])

    def release(self, edge: int) -> None:
        """Say that the table is not needed any more."""
        with self._shared.changed:
            self.check()
            self._shared.released[(self._member.task, edge)] += 1
