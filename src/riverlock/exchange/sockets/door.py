"""Lets in who knows the secret; strangers are dropped, and logged."""

from __future__ import annotations

import hmac
import logging
import selectors
from typing import TYPE_CHECKING

from riverlock.exchange.sockets.hello import HELLO_BYTES, PROOF_BYTES, Hello

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from riverlock.exchange.limits import Limits
    from riverlock.exchange.sockets.addresses import Listening
    from riverlock.exchange.sockets.hello import Secret
    from riverlock.exchange.sockets.loop import Loop

__all__ = ["Door"]

log = logging.getLogger(__name__)


class Door:
    """Listens until it is closed. Used by the thread of its loop alone."""

    def __init__(  # noqa: PLR0913 - who may come in
        self,
        loop: Loop,
        listening: Listening,
        limits: Limits,
        *,
        secret: Secret,
        expects: Callable[[Hello], str | None],
        on_guest: Callable[[Hello, socket.socket], object],
    ) -> None:
        """Begin.

        Args:
            loop: Whose thread it is.
            listening: The socket, and what is left of it on disk.
            limits: How long a stranger may take, and how many there may be.
            secret: What a guest must know.
            expects: Tells why somebody is not expected; None: it is.
            on_guest: Takes the socket of whoever was let in.
        """
        self.loop, self.secret = loop, secret
        self._listening, self._limits = listening, limits
        self.expects, self.on_guest = expects, on_guest
        self.strangers: set[_Stranger] = set()
        self._is_closed = False
        loop.watch(listening.socket, selectors.EVENT_READ, self._accept)

    def close(self) -> None:
        """Listen no more; who has not proved anything yet is dropped."""
        if not self._is_closed:
            self._is_closed = True
            self.loop.forget(self._listening.socket)
            self._listening.remove()
            for stranger in list(self.strangers):
                stranger.leave()

    def _accept(self, _: int) -> None:
        try:
            sock, address = self._listening.socket.accept()
        except OSError:
            return  # gone again, or there are too many files: those who wait are told
        if len(self.strangers) >= self._limits.greatest_strangers:
            log.warning("dropped a connection%s: too many at a time", _of(address))
            sock.close()
            return
        sock.settimeout(0)
        stranger = _Stranger(self, sock, _of(address))
        self.strangers.add(stranger)
        self.loop.after(self._limits.hello_seconds, stranger.too_late)


class _Stranger:
    """Somebody who has to prove who it is."""

    def __init__(self, door: Door, sock: socket.socket, of: str) -> None:
        self._door, self._sock, self._of = door, sock, of
        self._received = b""
        self._hello: Hello | None = None
        self._proof = b""
        door.loop.watch(sock, selectors.EVENT_READ, self._ready)

    def too_late(self) -> None:
        if self in self._door.strangers:
            self._drop("it did not prove in time that it knows the secret")

    def leave(self) -> None:
        self._door.strangers.discard(self)
        self._door.loop.forget(self._sock)

    def _drop(self, why: str) -> None:
        log.warning("dropped a connection%s: %s", self._of, why)
        self.leave()

    def _ready(self, _: int) -> None:
        wanted = HELLO_BYTES if self._hello is None else PROOF_BYTES
        try:
            part = self._sock.recv(wanted - len(self._received))
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._drop(str(error))
            return
        if not part:
            self._drop("it left before it had proved anything")
            return
        self._received += part
        if len(self._received) < wanted:
            return
        received, self._received = self._received, b""
        if self._hello is None:
            self._greet(received)
        elif hmac.compare_digest(received, self._proof):
            self._let_in(self._hello)
        else:
            self._drop("it does not know the secret")

    def _greet(self, received: bytes) -> None:
        hello = Hello.read(received)
        if hello is None:
            self._drop("it speaks another language")
            return
        reply, self._proof = self._door.secret.reply(hello)
        self._hello = hello
        try:
            # Into an empty buffer: this little is taken whole, or the other is gone.
            self._sock.send(reply)
        except OSError as error:
            self._drop(str(error))

    def _let_in(self, hello: Hello) -> None:
        # Not before it has proved who it is: what is expected is nobody else's affair.
        why = self._door.expects(hello)
        if why is not None:
            self._drop(why)
            return
        self._door.strangers.discard(self)
        self._door.on_guest(hello, self._sock)


def _of(address: object) -> str:
    return f" of {address[0]}" if isinstance(address, tuple) else ""
