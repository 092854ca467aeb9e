"""Driver and tasks in one process: the real protocol and frames, without sockets.

For tests, and for engines that are to be tried without processes: each task is a
thread that calls ``InProcessDriver.join``.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

from riverlock.core.errors import ExchangeError
from riverlock.exchange.bell import Bell
from riverlock.exchange.live import LiveExchange, again
from riverlock.exchange.protocol.events import Abandoned, Arrived, Closing, PeerLost
from riverlock.exchange.seam import Answer, ControlEvent, TaskLost, TaskPlace
from riverlock.exchange.wire.codec import Decoder, Encoder
from riverlock.exchange.wire.reading import FrameReader

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from riverlock.exchange.protocol.frames import Frame
    from riverlock.exchange.seam import Message, Shape

__all__ = ["InProcessDriver", "InProcessMember"]


class _Link:
    """One direction between two tasks; frames pass through their bytes."""

    def __init__(self, shape: Shape) -> None:
        self._encoder, self._decoder = Encoder(), Decoder()
        self._reader = FrameReader(greatest=shape.limits.greatest_frame_bytes)

    def passed(self, frame: Frame) -> list[Frame]:
        """Return a frame as it arrives."""
        sent = b"".join(bytes(memoryview(p)) for p in self._encoder.encode(frame))
        found: list[Frame] = []
        while sent:
            place = self._reader.places()[0]
            here, sent = sent[: len(place)], sent[len(place) :]
            place[: len(here)] = here
            decoded = map(self._decoder.decode, self._reader.received(len(here)))
            found += [frame for frame in decoded if frame is not None]
        return found


class _Generation:
    """What driver and tasks of a generation share; guarded by its bell."""

    def __init__(self, shape: Shape, bell: Bell) -> None:
        self.shape, self.bell = shape, bell
        self.over: ExchangeError | None = None
        self.members: dict[int, InProcessMember] = {}
        self.to_driver: deque[ControlEvent] = deque()
        self._links: dict[tuple[int, int], _Link] = {}
        self._asked: deque[tuple[int, int]] = deque()
        self._is_carrying = False

    def carry(self, sender: int, receiver: int) -> None:
        """Bring frames from one task to another, and whatever follows from them."""
        self._asked.append((sender, receiver))
        if self._is_carrying:
            return
        self._is_carrying = True
        later: list[tuple[int, int]] = []
        while self._asked:
            pair = self._asked.popleft()
            if pair[1] in self.members:
                self._carry_all(*pair)
            else:
                later.append(pair)
        self._asked.extend(later)
        self._is_carrying = False

    def _carry_all(self, sender: int, receiver: int) -> None:
        source, target = self.members[sender].exchange, self.members[receiver].exchange
        link = self._links.setdefault((sender, receiver), _Link(self.shape))
        while (frame := source.next_frame(receiver)) is not None:
            for each in link.passed(frame):
                target.handle(Arrived(peer=sender, frame=each))

    def joined(self, member: InProcessMember) -> None:
        """Take a task in; bring it what waits for it."""
        self.members[member.task] = member
        while self._asked and any(to in self.members for _, to in self._asked):
            self.carry(*self._asked.popleft())
        self.bell.ring()

    def end(self, error: ExchangeError) -> None:
        """End the generation for all."""
        self.over = self.over or error
        for member in self.members.values():
            member.exchange.handle(Abandoned(error=error))
        self.bell.ring()


@dataclass(frozen=True)
class _Carrier:
    """Carries the frames of one task."""

    generation: _Generation
    task: int

    def carry(self, peer: int) -> None:
        """Bring frames at once."""
        self.generation.carry(self.task, peer)

    def stop(self) -> None:
        """There is nothing to stop."""


class InProcessDriver:
    """The driver's side; see ``seam.DriverControl``."""

    def __init__(self) -> None:
        """Begin without a generation."""
        self._bell = Bell()
        self._generation: _Generation | None = None
        self._invitations: dict[bytes, _Generation] = {}

    def begin(self, shape: Shape) -> bytes:
        """Begin a generation; what is left of the one before is over."""
        self.end()
        with self._bell:
            self._generation = _Generation(shape, self._bell)
            invitation = f"generation {len(self._invitations)}".encode()
            self._invitations[invitation] = self._generation
            return invitation

    def join(self, invitation: bytes, task: int) -> InProcessMember:
        """Become a task of a generation; wait for no one.

        Raises:
            ExchangeError: The generation is over.
        """
        with self._bell:
            generation = self._invitations[invitation]
            if generation.over is not None:
                raise again(generation.over)
            member = InProcessMember(generation, task)
            generation.joined(member)
            return member

    @property
    def _now(self) -> _Generation:
        assert self._generation is not None, "no generation has begun"
        return self._generation

    def await_tasks(self, timeout: float) -> tuple[TaskPlace, ...]:
        """Wait until all tasks have joined."""
        found, tasks = self._now.members, self._now.shape.tasks
        if not self._bell.wait_for(lambda: len(found) == tasks, timeout):
            what = f"{len(found)} of {tasks} tasks came within {timeout} seconds"
            raise ExchangeError("timed out", what=what)
        return tuple(TaskPlace(task=t, host="", process=0) for t in range(tasks))

    def send(self, task: int, message: Message) -> None:
        """Send to one task; never waits."""
        with self._bell:
            member = self._now.members.get(task)
            if member is not None:
                member.control.messages.append(message)
            self._bell.ring()

    def broadcast(self, message: Message) -> None:
        """Send to all tasks."""
        for task in range(self._now.shape.tasks):
            self.send(task, message)

    def receive(self, timeout: float | None) -> ControlEvent | None:
        """Return what happened next."""
        now = self._now
        waiting = now.to_driver
        with self._bell:
            self._bell.wait_for(lambda: bool(waiting or now.over), timeout)
            return waiting.popleft() if waiting else None

    def end(self) -> None:
        """End the generation."""
        with self._bell:
            if self._generation is not None:
                what = "the driver has ended the generation"
                self._generation.end(ExchangeError("ended", what=what))

    def close(self) -> None:
        """End the generation."""
        self.end()


@dataclass
class InProcessControl:
    """A task's side of its connection to the driver; see ``seam.TaskControl``."""

    generation: _Generation
    task: int
    messages: deque[Message] = field(default_factory=deque)

    @property
    def has_message(self) -> bool:
        """Whether there is a message."""
        return bool(self.messages)

    def receive(self, timeout: float | None) -> Message | None:
        """Return the driver's next message."""
        with self.generation.bell as bell:
            bell.wait_for(lambda: bool(self.messages or self.generation.over), timeout)
            if self.messages:
                return self.messages.popleft()
            self._check()
            return None

    def send(self, message: Message) -> None:
        """Send to the driver."""
        with self.generation.bell as bell:
            self._check()
            answer = Answer(task=self.task, message=message)
            self.generation.to_driver.append(answer)
            bell.ring()

    def _check(self) -> None:
        if self.generation.over is not None:
            raise again(self.generation.over)


class InProcessMember:
    """A task that has joined; see ``seam.Member``."""

    def __init__(self, generation: _Generation, task: int) -> None:
        """Take the place of a task."""
        self._generation, self.task = generation, task
        carrier = _Carrier(generation, task)
        self.exchange = LiveExchange(task, generation.shape, generation.bell, carrier)
        self.control = InProcessControl(generation, task)
        self._is_closed = False

    def wait(self, until: Callable[[], bool], timeout: float | None) -> bool:
        """Wait until something is so."""

        def is_settled() -> bool:
            if until():
                return True
            self.exchange.check()
            return False

        return self._generation.bell.wait_for(is_settled, timeout)

    def close(self) -> None:
        """Say goodbye and leave."""
        self._leave("it has said goodbye", is_orderly=True)

    def die(self) -> None:
        """Leave as a process does that is killed."""
        self._leave("its connection was closed", is_orderly=False)

    def _leave(self, why: str, *, is_orderly: bool) -> None:
        with self._generation.bell as bell:
            if self._is_closed:
                return
            self._is_closed = True
            if is_orderly:
                self.exchange.handle(Closing())
            else:
                for peer, member in self._generation.members.items():
                    if peer != self.task:
                        member.exchange.handle(PeerLost(peer=self.task, why=why))
            lost = TaskLost(task=self.task, why=why, is_orderly=is_orderly)
            self._generation.to_driver.append(lost)
            bell.ring()

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
