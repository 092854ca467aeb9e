"""One thread that does all input and output of a task, or of the driver."""

from __future__ import annotations

import heapq
import itertools
import logging
import selectors
import socket
import threading
import time
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Loop"]

log = logging.getLogger(__name__)


class Loop:
    """Waits for sockets and calls whoever watches them; never blocks on one of them.

    ``call`` and ``stop`` may be called from any thread, all else only from its own.
    Whatever is watched when the loop ends is closed.
    """

    def __init__(self, name: str, on_crash: Callable[[Exception], object]) -> None:
        """Begin; ``on_crash`` is told of an error in our own code, then it ends."""
        self._on_crash = on_crash
        self._selector = selectors.DefaultSelector()
        self._asked: deque[Callable[[], object]] = deque()
        self._timers: list[tuple[float, int, Callable[[], object]]] = []
        self._numbers = itertools.count()
        self._ours, self._bell = socket.socketpair()
        self._ours.settimeout(0)
        self._bell.settimeout(0)
        self._is_rung = self._is_over = False
        self._selector.register(self._ours, selectors.EVENT_READ, self._hear)
        self._thread = threading.Thread(
            target=self._run, name=f"riverlock-{name}", daemon=True
        )
        self._thread.start()

    def call(self, action: Callable[[], object]) -> None:
        """Have the loop do something soon, in the order of calls."""
        self._asked.append(action)
        if not self._is_rung:
            self._is_rung = True
            # Closed: the loop is over. Full: it will wake up.
            with suppress(OSError):
                self._bell.send(b"!")

    def after(self, seconds: float, action: Callable[[], object]) -> None:
        """Do something later."""
        at = time.monotonic() + seconds
        heapq.heappush(self._timers, (at, next(self._numbers), action))

    def watch(
        self, sock: socket.socket, events: int, handler: Callable[[int], object]
    ) -> None:
        """Call the handler whenever a socket is ready for one of the events."""
        if sock in self._selector.get_map():
            self._selector.modify(sock, events, handler)
        else:
            self._selector.register(sock, events, handler)

    def forget(self, sock: socket.socket) -> None:
        """Close a socket."""
        with suppress(KeyError, ValueError):
            self._selector.unregister(sock)
        sock.close()

    def stop(self) -> None:
        """End, and close all that is watched; returns once that is done."""
        self.call(self.end)
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def end(self) -> None:
        """End after what is being done."""
        self._is_over = True

    def join(self) -> None:
        """Wait until it has ended."""
        self._thread.join()

    def _run(self) -> None:
        try:
            while not self._is_over:
                self._turn()
        except Exception as error:
            log.exception("the thread of the exchange has failed")
            self._on_crash(error)
        finally:
            for key in list(self._selector.get_map().values()):
                self.forget(key.fileobj)  # type: ignore[arg-type]
            self._selector.close()
            self._bell.close()

    def _turn(self) -> None:
        for key, events in self._selector.select(self._until_timer()):
            # One of them may have closed the other.
            if key.fileobj in self._selector.get_map():
                key.data(events)
        while self._timers and self._timers[0][0] <= time.monotonic():
            heapq.heappop(self._timers)[2]()
        for _ in range(len(self._asked)):
            self._asked.popleft()()

    def _until_timer(self) -> float | None:
        if self._asked:
            return 0
        if not self._timers:
            return None
        return max(0.0, self._timers[0][0] - time.monotonic())

    def _hear(self, _: int) -> None:
        self._ours.recv(64)
        # Before the calls are looked at: one that comes now rings again.
        self._is_rung = False
