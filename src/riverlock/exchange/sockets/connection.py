"""A connection to somebody who has proved who it is: frames in, frames out."""

from __future__ import annotations

import selectors
import socket
from collections import deque
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, Final

from riverlock.exchange.wire.header import BadFrameError
from riverlock.exchange.wire.reading import FrameReader

if TYPE_CHECKING:
    from collections.abc import Callable

    from riverlock.exchange.limits import Limits
    from riverlock.exchange.sockets.loop import Loop
    from riverlock.exchange.wire.columns import Bytes
    from riverlock.exchange.wire.reading import RawFrame

__all__ = ["Connection"]

# Buffers for one call of the system, and calls before others have their turn.
_BUFFERS: Final = 64
_SENDS: Final = 16


class Connection:
    """Never blocks. Used by the thread of its loop alone."""

    def __init__(  # noqa: PLR0913 - who is told what
        self,
        loop: Loop,
        sock: socket.socket,
        *,
        limits: Limits,
        on_frame: Callable[[RawFrame], object],
        on_lost: Callable[[str, bool], object],
        more: Callable[[], list[Bytes] | None] = lambda: None,
    ) -> None:
        """Begin to read.

        Args:
            loop: Whose thread it is.
            sock: The socket, which is closed with the connection.
            limits: How long a payload may be, and a connection without a sign of life.
            on_frame: Takes what comes.
            on_lost: Told once why the connection has ended, and whether what came was
                no frame of ours; not if we closed it.
            more: Asked for the next frame whenever everything before it was sent.
        """
        sock.settimeout(0)
        if sock.family != socket.AF_UNIX:
            _tune(sock, limits)
        self._loop, self._sock = loop, sock
        self._on_frame, self._on_lost, self._more = on_frame, on_lost, more
        self._reader = FrameReader(greatest=limits.greatest_frame_bytes)
        self._out: deque[memoryview] = deque()
        self._watched = selectors.EVENT_READ
        self._is_ending = False
        self.is_closed = False
        loop.watch(sock, self._watched, self._ready)

    def write(self, parts: list[Bytes]) -> None:
        """Send a frame after those before it."""
        if not self._is_ending:
            self._put(parts)
            self.flush()

    def flush(self) -> None:
        """Send what there is to send, as far as the other side takes it."""
        for _ in range(_SENDS):
            if self.is_closed:
                return
            if not self._out and not self._refilled():
                self._watch(selectors.EVENT_READ)
                if self._is_ending:
                    self._shut()
                return
            if not self._sent():
                break
        if not self.is_closed:
            self._watch(selectors.EVENT_READ | selectors.EVENT_WRITE)

    def finish(self) -> None:
        """Close it once all is sent and the other side has closed it, too.

        Until then whatever comes is still told: closed at once, what was sent last
        might never arrive.
        """
        self._is_ending = True
        self.flush()

    def close(self) -> None:
        """Close it now."""
        if not self.is_closed:
            self.is_closed = True
            self._out.clear()
            self._loop.forget(self._sock)

    def _put(self, parts: list[Bytes]) -> None:
        for part in parts:
            view = memoryview(part)
            if view.nbytes:
                self._out.append(view.cast("B"))

    def _refilled(self) -> bool:
        parts = None if self._is_ending else self._more()
        if parts is not None:
            self._put(parts)
        return parts is not None

    def _sent(self) -> bool:
        """Send some; False: the other side takes nothing now."""
        try:
            count = self._sock.sendmsg(islice(self._out, _BUFFERS))
        except (BlockingIOError, InterruptedError):
            return False
        except OSError as error:
            # What came before may still be read: it may say why.
            self._receive_rest()
            self._lose(f"nothing can be sent to it: {error}")
            return False
        while count:
            first = self._out.popleft()
            if count < len(first):
                self._out.appendleft(first[count:])
                break
            count -= len(first)
        return True

    def _shut(self) -> None:
        with suppress(OSError):
            self._sock.shutdown(socket.SHUT_WR)

    def _watch(self, events: int) -> None:
        if events != self._watched:
            self._watched = events
            self._loop.watch(self._sock, events, self._ready)

    def _ready(self, events: int) -> None:
        if events & selectors.EVENT_READ:
            self._receive()
        if events & selectors.EVENT_WRITE and not self.is_closed:
            self.flush()

    def _receive_rest(self) -> None:
        while not self.is_closed and self._receive():
            pass

    def _receive(self) -> bool:
        """Take what has come; False: that was all."""
        try:
            count = self._sock.recvmsg_into(self._reader.places())[0]
        except (BlockingIOError, InterruptedError):
            return False
        except OSError as error:
            self._lose(f"its connection was cut: {error}")
            return False
        if not count:
            self._lose("its connection was closed")
            return False
        try:
            for raw in self._reader.received(count):
                self._on_frame(raw)
                if self.is_closed:
                    return False
        except BadFrameError as error:
            self._lose(f"what it sent is damaged: {error}", is_damaged=True)
        return True

    def _lose(self, why: str, *, is_damaged: bool = False) -> None:
        if not self.is_closed:
            self.close()
            self._on_lost(why, is_damaged)


def _tune(sock: socket.socket, limits: Limits) -> None:
    """Send at once, and have the system notice a host that is cut off."""
    idle, silent = int(limits.ping_seconds), int(limits.silent_seconds)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    # Not every system has all of them.
    for name, value in (
        ("TCP_KEEPIDLE", max(1, idle)),
        ("TCP_KEEPINTVL", max(1, idle)),
        ("TCP_KEEPCNT", max(1, silent // max(1, idle))),
        ("TCP_USER_TIMEOUT", max(1, silent) * 1000),
    ):
        option = getattr(socket, name, None)
        if option is not None:
            with suppress(OSError):
                sock.setsockopt(socket.IPPROTO_TCP, option, value)
