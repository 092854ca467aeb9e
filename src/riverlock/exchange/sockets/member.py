"""A task that has joined a generation by sockets; see ``seam.Member``."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Self

import msgspec

from riverlock.core.errors import ExchangeError
from riverlock.core.values.known_types import known
from riverlock.exchange.bell import Bell
from riverlock.exchange.live import LiveExchange, again
from riverlock.exchange.protocol.events import Abandoned, Arrived, Closing, PeerLost
from riverlock.exchange.sockets.addresses import Address, Listening, connect
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
    Decoder,
    Encoder,
    is_internal,
    message_of,
    packed_message,
    packed_sign,
)
from riverlock.exchange.wire.header import Kind

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from riverlock.exchange.seam import Message
    from riverlock.exchange.wire.columns import Bytes
    from riverlock.exchange.wire.reading import RawFrame

__all__ = ["SocketMember", "join"]


def join(invitation: bytes, task: int) -> SocketMember:
    """Become a task of a generation; return once it is connected to all others.

    Raises:
        ExchangeError: The generation is over, or somebody cannot be reached.
    """
    member = SocketMember(
        msgspec.msgpack.decode(invitation, type=known(Invitation)), task
    )
    try:
        member.connect()
    except BaseException:
        member.die()
        raise
    return member


class _Control:
    """The connection to the driver; see ``seam.TaskControl``."""

    def __init__(self, bell: Bell, post: Callable[[list[Bytes]], None]) -> None:
        self._bell, self._post = bell, post
        self.messages: deque[Message] = deque()
        # Why there is no driver any more.
        self.gone: ExchangeError | None = None

    @property
    def has_message(self) -> bool:
        """Whether there is a message."""
        return bool(self.messages)

    def receive(self, timeout: float | None) -> Message | None:
        """Return the driver's next message."""
        with self._bell:
            self._bell.wait_for(lambda: bool(self.messages or self.gone), timeout)
            if self.messages:
                return self.messages.popleft()
            self._check()
            return None

    def send(self, message: Message) -> None:
        """Send to the driver."""
        with self._bell:
            self._check()
        self._post(packed_message(message))

    def _check(self) -> None:
        if self.gone is not None:
            raise again(self.gone)


class SocketMember:
    """One task, with one thread for all its connections."""

    def __init__(self, invitation: Invitation, task: int) -> None:
        """Connect to nobody yet."""
        self.task = task
        self._invitation, self._limits = invitation, invitation.limits
        self._secret = Secret(invitation.secret)
        self._bell = Bell()
        self._loop = Loop(f"exchange-{task}", self._crashed)
        self._driver: Connection | None = None
        self._peers: dict[int, Connection] = {}
        # Of all tasks, once they are known; of one that is alone there is none.
        self._addresses: list[Address | None] = []
        self._door: Door | None = None
        self._heard = time.monotonic()
        self._is_closed = False
        self.exchange = LiveExchange(task, invitation.shape, self._bell, self)
        self.control = _Control(
            self._bell, lambda parts: self._loop.call(lambda: self._tell(parts))
        )

    # Joining, in the thread of the task.

    def connect(self) -> None:
        """Connect to the driver and to all other tasks.

        Raises:
            ExchangeError: Somebody cannot be reached, or the generation is over.
        """
        sock = self._reach(self._invitation.address, DRIVER)
        is_alone = self._invitation.tasks == 1
        listening = None if is_alone else self._listening(sock)
        self._loop.call(lambda: self._begin(sock, listening))
        here = Here(
            host=socket.gethostname(),
            process=os.getpid(),
            address=None if listening is None else listening.address,
        )
        self._post(word(Word.HERE, here))
        self.wait(lambda: bool(self._addresses), None)
        for peer, address in enumerate(self._addresses[: self.task]):
            assert address is not None, "it is not alone"
            found = self._reach(address, peer)
            self._loop.call(partial(self._attach, peer, found))
        others = self._invitation.tasks - 1
        self.wait(lambda: len(self._peers) == others, None)
        self._loop.call(self._close_door)
        self._post(word(Word.CONNECTED))

    def _reach(self, address: Address, wanted: int) -> socket.socket:
        hello = Hello.new(self._invitation.generation, self.task, wanted)
        seconds = self._limits.hello_seconds
        return connect(address, hello, self._secret, seconds=seconds)

    def _listening(self, to_driver: socket.socket) -> Listening:
        """Listen where the driver's side of the network reaches this host."""
        if self._invitation.address.is_file:
            return Listening(None)
        return Listening(to_driver.getsockname()[0])

    # In the thread of the loop.

    def _begin(self, sock: socket.socket, listening: Listening | None) -> None:
        self._driver = Connection(
            self._loop,
            sock,
            limits=self._limits,
            on_frame=self._from_driver,
            on_lost=lambda why, _: self._driver_gone("driver lost", why),
        )
        self._watch_driver()
        if listening is not None:
            self._door = Door(
                self._loop,
                listening,
                self._limits,
                secret=self._secret,
                expects=self._expected,
                on_guest=lambda hello, guest: self._attach(hello.sender, guest),
            )

    def _expected(self, hello: Hello) -> str | None:
        if hello.generation != self._invitation.generation or hello.wanted != self.task:
            return "it looks for somebody else"
        if not self.task < hello.sender < self._invitation.tasks:
            return f"task {hello.sender} does not connect to task {self.task}"
        if hello.sender in self._peers:
            return f"task {hello.sender} is connected"
        return None

    def _attach(self, peer: int, sock: socket.socket) -> None:
        encoder, decoder = Encoder(), Decoder()

        def more() -> list[Bytes] | None:
            frame = self.exchange.next_frame(peer)
            return None if frame is None else encoder.encode(frame)

        def take(raw: RawFrame) -> None:
            frame = decoder.decode(raw)
            if frame is not None:
                self.exchange.handle(Arrived(peer=peer, frame=frame))

        found = Connection(
            self._loop,
            sock,
            limits=self._limits,
            on_frame=take,
            on_lost=partial(self._peer_gone, peer),
            more=more,
        )
        with self._bell:
            self._peers[peer] = found
            self._bell.ring()
        found.flush()

    def _peer_gone(self, peer: int, why: str, is_damaged: bool) -> None:  # noqa: FBT001
        if is_damaged:
            what = f"task {peer}: {why}"
            error = ExchangeError("damaged", what=what, peer=peer)
            self.exchange.handle(Abandoned(error=error))
        else:
            self.exchange.handle(PeerLost(peer=peer, why=why))
        with self._bell:
            self._bell.ring()

    def _from_driver(self, raw: RawFrame) -> None:
        self._heard = time.monotonic()
        if raw.header.kind is Kind.PING:
            self._tell(packed_sign(Kind.PONG))
        elif raw.header.kind is not Kind.MESSAGE:
            name = raw.header.kind.name
            self._driver_gone("protocol broken", f"the driver sent {name}")
        elif is_internal(raw):
            self._hear(message_of(raw))
        else:
            with self._bell:
                self.control.messages.append(message_of(raw))
                self._bell.ring()

    def _hear(self, message: Message) -> None:
        if message.kind == Word.PEERS:
            found = content_of(message, list[Address | None])
            with self._bell:
                self._addresses = found
                self._bell.ring()
        elif message.kind == Word.ENDED:
            self._driver_gone("ended", "the driver has ended the generation")

    def _driver_gone(self, reason: str, what: str) -> None:
        error = ExchangeError(reason, what=what)
        with self._bell:
            self.control.gone = self.control.gone or error
            self.exchange.handle(Abandoned(error=error))
            self._bell.ring()

    def _watch_driver(self) -> None:
        """See whether anything was heard of the driver, again and again."""
        silent = time.monotonic() - self._heard
        if silent > self._limits.silent_seconds:
            what = f"nothing was heard of the driver for {silent:.0f} seconds"
            self._driver_gone("driver lost", what)
        else:
            self._loop.after(self._limits.ping_seconds, self._watch_driver)

    def _tell(self, parts: list[Bytes]) -> None:
        if self._driver is not None:
            self._driver.write(parts)

    def _close_door(self) -> None:
        if self._door is not None:
            self._door.close()

    def _crashed(self, error: Exception) -> None:
        self._driver_gone("failed", f"{type(error).__name__}: {error}")

    # What the exchange asks for, with the bell held.

    def carry(self, peer: int) -> None:
        """Ask for frames once the connection takes one."""
        self._loop.call(lambda: self._flush(peer))

    def stop(self) -> None:
        """Nothing to do: connections say what has ended to those who listen."""

    def _flush(self, peer: int) -> None:
        if peer in self._peers:
            self._peers[peer].flush()

    # For the task.

    def _post(self, parts: list[Bytes]) -> None:
        self._loop.call(lambda: self._tell(parts))

    def wait(self, until: Callable[[], bool], timeout: float | None) -> bool:
        """Wait until something is so."""

        def is_settled() -> bool:
            if until():
                return True
            self.exchange.check()
            return False

        return self._bell.wait_for(is_settled, timeout)

    def close(self) -> None:
        """Send what still has to be sent, say goodbye and close everything."""
        if self._is_closed:
            return
        self._is_closed = True
        end = time.monotonic() + self._limits.goodbye_seconds
        self.exchange.handle(Closing())
        self._bell.wait_for(self.exchange.has_parted, _left(end))
        closed = threading.Event()
        self._loop.call(lambda: self._part(closed))
        closed.wait(_left(end))
        self._end()

    def _part(self, closed: threading.Event) -> None:
        """Close all connections once the others have closed them, too."""
        self._tell(word(Word.GOODBYE))
        self._close_door()
        for each in self._connections:
            each.finish()

        def look() -> None:
            if all(each.is_closed for each in self._connections):
                closed.set()
            else:
                self._loop.after(0.005, look)

        look()

    @property
    def _connections(self) -> list[Connection]:
        mine = [] if self._driver is None else [self._driver]
        return [*mine, *self._peers.values()]

    def die(self) -> None:
        """Leave as a process does that is killed."""
        if not self._is_closed:
            self._is_closed = True
            self._end()

    def _end(self) -> None:
        self._loop.call(self._close_door)
        self._loop.stop()
        error = ExchangeError("ended", what="the task has ended")
        self.control.gone = self.control.gone or error
        self.exchange.handle(Abandoned(error=error))

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


def _left(end: float) -> float:
    return max(0.0, end - time.monotonic())
