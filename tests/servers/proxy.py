"""A TCP proxy that loses what we tell it to lose."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path


def of_sql(data: bytes) -> bool:
    """Tell whether a client of a database commits."""
    return b"COMMIT" in data[:64]


def of_redis(data: bytes) -> bool:
    """Tell whether a client of Redis ends a transaction."""
    return data.endswith(b"$4\r\nEXEC\r\n")


def of_kafka(data: bytes) -> bool:
    """Tell whether a client of Kafka ends a transaction, behind a request's size."""
    end_txn = (26).to_bytes(2, "big")
    return data[4:6] == end_txn


class CuttingProxy:
    """Stands between a client and a server, and cuts connections at their commits.

    Of all commits that go through, every ``before``-th is cut before the server sees
    it, every ``after``-th when the server has answered and the client has not heard.
    One that is shut has a port, where connections are refused until it is opened.
    The server is a Unix socket or a port.
    """

    def __init__(
        self,
        server: Path | int,
        *,
        is_commit: Callable[[bytes], bool] = of_sql,
        before: int = 7,
        after: int = 5,
        is_shut: bool = False,
    ) -> None:
        self.server, self._before, self._after = server, before, after
        self._is_commit = is_commit
        self._listener = socket.socket()
        self._listener.bind(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._lock = threading.Lock()
        self._commits = 0
        self.is_on = False
        self.cuts = {"before": 0, "after": 0}
        self._threads: list[threading.Thread] = []
        if not is_shut:
            self.open()

    def open(self) -> None:
        self._listener.listen()
        self._start(self._accept)

    def _start(self, target: object, *args: object) -> None:
        thread = threading.Thread(target=target, args=args, daemon=True)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                try:
                    server = self._connected()
                except OSError:
                    client.close()
                    continue
                self._start(self._forward, client, server)
                self._start(self._answer, server, client)

    def _connected(self) -> socket.socket:
        if isinstance(self.server, int):
            return socket.create_connection(("127.0.0.1", self.server))
        server = socket.socket(socket.AF_UNIX)
        try:
            server.connect(str(self.server))
        except OSError:
            server.close()
            raise
        return server

    def _forward(self, client: socket.socket, server: socket.socket) -> None:
        with _closing(client, server):
            while data := client.recv(1 << 16):
                fate = self._fate(data)
                if fate == "before":
                    return
                if fate == "after":
                    # From here on nothing of the server reaches the client. The
                    # server has committed when it answers, or closes.
                    client.shutdown(socket.SHUT_WR)
                server.sendall(data)
                if fate == "after":
                    server.settimeout(30)
                    with contextlib.suppress(OSError):
                        server.recv(1, socket.MSG_PEEK)
                    return

    def _fate(self, data: bytes) -> str | None:
        if not self.is_on or not self._is_commit(data):
            return None
        with self._lock:
            self._commits += 1
            for name, every in (("before", self._before), ("after", self._after)):
                if self._commits % every == 0:
                    self.cuts[name] += 1
                    return name
        return None

    @staticmethod
    def _answer(server: socket.socket, client: socket.socket) -> None:
        with _closing(client, server):
            while data := server.recv(1 << 16):
                client.sendall(data)

    def close(self) -> None:
        self._listener.close()


@contextlib.contextmanager
def _closing(*sockets: socket.socket) -> Iterator[None]:
    try:
        with contextlib.suppress(OSError):
            yield
    finally:
        for each in sockets:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
