"""The driver's side of a run, by sockets; see ``seam.DriverControl``."""

from __future__ import annotations

import secrets
import time
from collections import deque
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from riverlock.core.errors import ExchangeError
from riverlock.exchange.bell import Bell
from riverlock.exchange.seam import Answer, TaskLost, TaskPlace
from riverlock.exchange.sockets.addresses import Listening
from riverlock.exchange.sockets.connection import Connection
from riverlock.exchange.sockets.door import Door
from riverlock.exchange.sockets.hello import DRIVER, Hello, Secret
from riverlock.exchange.sockets.loop import Loop
from riverlock.exchange.sockets.words import (
    Here,
    Invitation,
    Word,
    content_of,
    word,
)
from riverlock.exchange.wire.codec import (
    is_internal,
    message_of,
    packed_message,
    packed_sign,
)
from riverlock.exchange.wire.header import Kind

if TYPE_CHECKING:
    import socket

    from riverlock.exchange.seam import ControlEvent, Message, Shape
    from riverlock.exchange.wire.columns import Bytes
    from riverlock.exchange.wire.reading import RawFrame

__all__ = ["SocketDriver"]


@dataclass
class _Task:
    """A task that has come."""

    connection: Connection | None = None
    here: Here | None = None
    is_connected: bool = False
    has_left: bool = False
    lost: TaskLost | None = None
    heard: float = field(default_factory=time.monotonic)


class SocketDriver:
    """Listens while tasks of a generation come, and not longer."""

    def __init__(self, host: str | None = None) -> None:
        """Begin without a generation.

        Args:
            host: The address of this host at which tasks on others reach it. None:
                all tasks run on this host, and nobody else can connect.
        """
        self._host = host
        self._generation: _Generation | None = None
        self._over: list[_Generation] = []

    def begin(self, shape: Shape) -> bytes:
        """Begin a generation; what is left of the one before is over."""
        self.end()
        self._generation = _Generation(shape, self._host)
        return self._generation.invitation

    @property
    def _now(self) -> _Generation:
        if self._generation is None:
            raise ExchangeError("ended", what="the generation was ended")
        return self._generation

    def await_tasks(self, timeout: float) -> tuple[TaskPlace, ...]:
        """Wait until all tasks have joined and are connected to each other."""
        return self._now.await_tasks(timeout)

    def send(self, task: int, message: Message) -> None:
        """Send to one task; never waits."""
        self._now.post([task], packed_message(message))

    def broadcast(self, message: Message) -> None:
        """Send to all tasks."""
        now = self._now
        now.post(range(now.shape.tasks), packed_message(message))

    def receive(self, timeout: float | None) -> ControlEvent | None:
        """Return what happened next."""
        now = self._generation
        return None if now is None else now.receive(timeout)

    def end(self) -> None:
        """End the generation: tasks that are still there are told so."""
        over, self._generation = self._generation, None
        if over is not None:
            over.end()
            self._over = [g for g in self._over if g.is_open]
            self._over.append(over)

    def close(self) -> None:
        """End the generation and wait until tasks have heard it."""
        self.end()
        for each in self._over:
            each.stop()
        self._over.clear()


class _Generation:
    """One generation: its thread, its tasks, and what they said."""

    def __init__(self, shape: Shape, host: str | None) -> None:
        self.shape = shape
        self._bell = Bell()
        self._failure: ExchangeError | None = None
        self._tasks = [_Task() for _ in range(shape.tasks)]
        self._events: deque[ControlEvent] = deque()
        self._id, secret = secrets.token_bytes(16), secrets.token_bytes(32)
        self._secret = Secret(secret)
        listening = Listening(host)
        self.invitation = msgspec.msgpack.encode(
            Invitation(
                address=listening.address,
                generation=self._id,
                secret=secret,
                tasks=shape.tasks,
                edges=shape.edges,
                first_epoch=shape.first_epoch,
                limits=shape.limits,
            )
        )
        self._is_ending = self._is_over = False
        self.is_open = True
        self._door: Door | None = None
        self._loop = Loop("exchange-driver", self._crashed)
        self._loop.call(lambda: self._begin(listening))

    # For the driver.

    def await_tasks(self, timeout: float) -> tuple[TaskPlace, ...]:
        def is_settled() -> bool:
            return self._lost() is not None or all(t.is_connected for t in self._tasks)

        is_in_time = self._bell.wait_for(is_settled, timeout)
        with self._bell:
            lost, tasks = self._lost(), self._tasks
            if lost is not None:
                raise lost
            if not is_in_time:
                count = sum(t.connection is not None for t in tasks)
                what = f"{count} of {len(tasks)} tasks came within {timeout} seconds"
                raise ExchangeError("timed out", what=what)
            return tuple(
                TaskPlace(task=n, host=t.here.host, process=t.here.process)
                for n, t in enumerate(tasks)
                if t.here is not None
            )

    def _lost(self) -> ExchangeError | None:
        if self._failure is not None:
            return self._failure
        for number, task in enumerate(self._tasks):
            if task.lost is not None:
                what = f"task {number} is gone: {task.lost.why}"
                return ExchangeError("peer lost", what=what, peer=number)
        return None

    def post(self, tasks: range | list[int], parts: list[Bytes]) -> None:
        def tell() -> None:
            for task in tasks:
                connection = self._tasks[task].connection
                if connection is not None:
                    connection.write(parts)

        self._loop.call(tell)

    def receive(self, timeout: float | None) -> ControlEvent | None:
        with self._bell:
            self._bell.wait_for(
                lambda: bool(self._events or self._failure or self._is_over), timeout
            )
            if self._events:
                return self._events.popleft()
            if self._failure is not None:
                raise self._failure
            return None

    def end(self) -> None:
        with self._bell:
            self._is_over = True
            self._bell.ring()
        self._loop.call(self._part)

    def stop(self) -> None:
        """Wait until its thread has ended."""
        self._loop.join()

    # In the thread of the loop.

    def _begin(self, listening: Listening) -> None:
        self._door = Door(
            self._loop,
            listening,
            self.shape.limits,
            secret=self._secret,
            expects=self._expected,
            on_guest=self._take_in,
        )
        self._loop.after(self.shape.limits.ping_seconds, self._ping)

    def _expected(self, hello: Hello) -> str | None:
        if hello.generation != self._id or hello.wanted != DRIVER:
            return "it looks for somebody else"
        if hello.sender >= self.shape.tasks:
            return f"there is no task {hello.sender}"
        if self._tasks[hello.sender].connection is not None:
            return f"task {hello.sender} has come before"
        return None

    def _take_in(self, hello: Hello, sock: socket.socket) -> None:
        task = hello.sender
        with self._bell:
            self._tasks[task].heard = time.monotonic()
            self._tasks[task].connection = Connection(
                self._loop,
                sock,
                limits=self.shape.limits,
                on_frame=partial(self._hear, task),
                on_lost=lambda why, _: self._gone(task, why),
            )

    def _hear(self, task: int, raw: RawFrame) -> None:
        mine = self._tasks[task]
        mine.heard = time.monotonic()
        if raw.header.kind is Kind.PONG:
            return
        if raw.header.kind is not Kind.MESSAGE:
            self._drop(task, f"it sent {raw.header.kind.name}")
            return
        message = message_of(raw)
        with self._bell:
            if not is_internal(raw):
                self._events.append(Answer(task=task, message=message))
            elif message.kind == Word.HERE:
                mine.here = content_of(message, Here)
                self._introduce()
            elif message.kind == Word.CONNECTED:
                mine.is_connected = True
            elif message.kind == Word.GOODBYE:
                mine.has_left = True
            self._bell.ring()

    def _introduce(self) -> None:
        """Tell all tasks where the others are, once all have come."""
        found = [t.here for t in self._tasks if t.here is not None]
        if len(found) < len(self._tasks):
            return
        if self._door is not None:
            self._door.close()
        parts = word(Word.PEERS, [here.address for here in found])
        for each in self._tasks:
            if each.connection is not None:
                each.connection.write(parts)

    def _drop(self, task: int, why: str) -> None:
        connection = self._tasks[task].connection
        if connection is not None:
            connection.close()
        self._gone(task, why)

    def _gone(self, task: int, why: str) -> None:
        mine = self._tasks[task]
        with self._bell:
            if mine.lost is None:
                told = "it has said goodbye" if mine.has_left else why
                mine.lost = TaskLost(task=task, why=told, is_orderly=mine.has_left)
                self._events.append(mine.lost)
            self._bell.ring()
        self._end_if_left()

    def _ping(self) -> None:
        limits, now = self.shape.limits, time.monotonic()
        for number, task in enumerate(self._tasks):
            connection = task.connection
            if connection is None or connection.is_closed:
                continue
            if now - task.heard > limits.silent_seconds:
                self._drop(number, f"it was silent for {now - task.heard:.0f} seconds")
            else:
                connection.write(packed_sign(Kind.PING))
        self._loop.after(limits.ping_seconds, self._ping)

    def _part(self) -> None:
        if self._is_ending:
            return
        self._is_ending = True
        if self._door is not None:
            self._door.close()
        for task in self._tasks:
            if task.connection is not None and not task.connection.is_closed:
                task.connection.write(word(Word.ENDED))
                task.connection.finish()
        self._loop.after(self.shape.limits.goodbye_seconds, self._finish)
        self._end_if_left()

    def _end_if_left(self) -> None:
        if self._is_ending and all(
            t.connection is None or t.connection.is_closed for t in self._tasks
        ):
            self._finish()

    def _finish(self) -> None:
        self.is_open = False
        self._loop.end()

    def _crashed(self, error: Exception) -> None:
        what = f"{type(error).__name__}: {error}"
        with self._bell:
            self._failure = ExchangeError("failed", what=what)
            self.is_open = False
            self._bell.ring()
