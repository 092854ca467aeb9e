"""Where driver and tasks listen: a socket file of this host, or a port."""

from __future__ import annotations

import os
import socket
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from riverlock.core.errors import ExchangeError
from riverlock.exchange.sockets.hello import DRIVER, REPLY_BYTES

if TYPE_CHECKING:
    from riverlock.exchange.sockets.hello import Hello, Secret

__all__ = ["Address", "Listening", "connect"]

# What the system takes as the name of a socket, and the zero behind it.
_LONGEST_PATH: Final = 100
_LOOPBACK: Final = "127.0.0.1"
_WAITING: Final = 1024


class Address(msgspec.Struct, frozen=True):
    """A socket file (its path), or a host and its port."""

    place: str
    port: int | None = None

    @property
    def is_file(self) -> bool:
        """Whether only this host reaches it."""
        return self.port is None

    def __str__(self) -> str:
        return self.place if self.port is None else f"{self.place}:{self.port}"


class Listening:
    """A socket that listens, and what is left of it on disk."""

    def __init__(self, host: str | None) -> None:
        """Listen at an address of this host; None: only for this host."""
        self._folder: Path | None = None
        if host is None and (path := self._path()) is not None:
            self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self.socket.bind(str(path))
            self.socket.listen(_WAITING)
            self.address = Address(str(path))
        else:
            at = (host or _LOOPBACK, 0)
            family = socket.getaddrinfo(*at, type=socket.SOCK_STREAM)[0][0]
            self.socket = socket.create_server(at, family=family, backlog=_WAITING)
            self.address = Address(*self.socket.getsockname()[:2])
        self.socket.settimeout(0)

    def _path(self) -> Path | None:
        """Return a name in a folder that nobody else may enter, if there is one."""
        if not hasattr(socket, "AF_UNIX"):
            return None
        self._folder = Path(tempfile.mkdtemp(prefix="riverlock-"))
        path = self._folder / "s"
        if len(os.fsencode(path)) <= _LONGEST_PATH:
            return path
        self.remove()
        return None

    def remove(self) -> None:
        """Remove the file: nobody finds the socket any more. May be called again."""
        if self._folder is not None:
            with suppress(OSError):
                (self._folder / "s").unlink(missing_ok=True)
                self._folder.rmdir()


def connect(
    address: Address, hello: Hello, secret: Secret, *, seconds: float
) -> socket.socket:
    """Connect; return once both sides have proved that they know the secret.

    Raises:
        ExchangeError: Nobody answers there, or somebody else.
    """
    who = "the driver" if hello.wanted == DRIVER else f"task {hello.wanted}"
    try:
        sock = _connected(address, seconds)
    except OSError as error:
        what = f"{who} cannot be reached at {address}: {error}"
        raise ExchangeError("not reached", what=what) from error
    try:
        sock.sendall(hello.packed())
        proof = secret.proof(hello, _received(sock, REPLY_BYTES))
        if proof is None:
            what = f"whoever listens at {address} is not {who}: it has another secret"
            raise ExchangeError("not reached", what=what)
        sock.sendall(proof)
    except OSError as error:
        sock.close()
        what = f"{who} at {address} does not let us in: {error}"
        raise ExchangeError("not reached", what=what) from error
    except ExchangeError:
        sock.close()
        raise
    return sock


def _connected(address: Address, seconds: float) -> socket.socket:
    if address.port is not None:
        at = (address.place, address.port)
        return socket.create_connection(at, timeout=seconds)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.settimeout(seconds)
        sock.connect(address.place)
    except OSError:
        sock.close()
        raise
    return sock


def _received(sock: socket.socket, count: int) -> bytes:
    found = b""
    while len(found) < count:
        part = sock.recv(count - len(found))
        if not part:
            message = "it has closed the connection"
            raise ConnectionError(message)
        found += part
    return found
