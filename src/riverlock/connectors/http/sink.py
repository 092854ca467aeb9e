"""Rows sent to a web server, one request each, with an idempotency key."""

from __future__ import annotations

import socket
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlsplit

from riverlock.connectors.base.json_rows import json_bytes
from riverlock.connectors.each_row import (
    GUARANTEE,
    DirectRowStager,
    RowCommitter,
    row_stager,
)
from riverlock.core.errors import (
    CommitRejectedError,
    CommitUnknownError,
    InvalidConfigError,
    SinkError,
    SinkUnavailableError,
)
from riverlock.core.extras import load_extra
from riverlock.core.keywords import told_keywords
from riverlock.core.times import duration_us

if TYPE_CHECKING:
    from collections.abc import Mapping

    from riverlock.connectors.base.sink import SinkUse
    from riverlock.connectors.builtin_stagers import TableStager
    from riverlock.storage.base import Storage

__all__ = ["HttpSink", "http"]

_METHODS = ("POST", "PUT", "PATCH")
# What a server says that may well take the same request later.
_LATER = frozenset({408, 409, 425, 429, 500, 502, 503, 504})
_TRIES = 5
_LONGEST_PAUSE_S = 30.0
_PROBE_SECONDS = 10.0
# Shorter parts of an address are words such as "api".
_LEAST_SECRET = 5


@dataclass(frozen=True, kw_only=True)
class HttpSink:
    """Requests to a server; see ``http``."""

    # Neither is printed: both may hold secrets.
    url: str = field(repr=False)
    headers: Mapping[str, str] = field(repr=False)
    method: str
    rate: float | None
    connections: int
    timeout_s: float
    kind: str = "http"

    def stager(self, use: SinkUse) -> TableStager:
        """Return the stager, which writes rows into the store."""
        return row_stager(use, self.kind)

    def direct_stager(self, use: SinkUse) -> DirectRowStager | None:
        """Return what sends rows inside tasks, unless their rate is bounded."""
        if self.rate is not None:
            return None  # tasks could only bound their own
        return DirectRowStager(rows=self.stager(use), send=_Sender(self))

    def committer(self, use: SinkUse, storage: Storage) -> HttpCommitter:
        """Return the committer, which sends them."""
        del use
        return HttpCommitter(
            sink=self,
            storage=storage,
            send=_Sender(self),
            at_once=self.connections,
            guarantee=f"{GUARANTEE} (header Idempotency-Key)",
        )


@told_keywords
def http(  # noqa: PLR0913 - all keywords
    url: str,
    *,
    method: str = "POST",
    headers: Mapping[str, str] | None = None,
    rate: float | None = None,
    connections: int = 1,
    timeout: str = "30 seconds",
) -> HttpSink:
    """Send each row as a JSON object, with the header ``Idempotency-Key``.

    The key consists of the flow, the sink, the epoch (its number and a digest) and the
    row's number in it, and is the same at every attempt. Answers of 408, 409, 425, 429
    and 5xx are tried again, after the pause that ``Retry-After`` asks for; other errors
    stop the flow.

    Args:
        url: The address; only its host is ever printed, and no header.
        method: POST, PUT or PATCH.
        headers: More headers, such as ``Authorization``.
        rate: The most requests per second.
        connections: Requests at a time; with more than one, order is not kept.
        timeout: How long to wait for an answer.
    """
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise InvalidConfigError(
            "http(url=)", expected="http:// or https://", found=_shown(url)
        )
    if method not in _METHODS:
        raise InvalidConfigError(
            "http(method=)", expected=", ".join(_METHODS), found=repr(method)
        )
    if connections < 1 or (rate is not None and rate <= 0):
        raise InvalidConfigError(
            "http(connections=, rate=)",
            expected="numbers above zero",
            found=f"{connections} and {rate}",
        )
    return HttpSink(
        url=url,
        method=method,
        headers=dict(headers or {}),
        rate=rate,
        connections=connections,
        timeout_s=duration_us(timeout) / 1e6,
    )


@dataclass(kw_only=True)
class HttpCommitter(RowCommitter):
    """Sends the rows of an epoch to a server."""

    sink: HttpSink

    def probe(self) -> None:
        """Check whether something accepts connections; no request is made.

        Raises:
            SinkUnavailableError: Nothing does.
        """
        parts = urlsplit(self.sink.url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
        try:
            socket.create_connection((parts.hostname, port), _PROBE_SECONDS).close()
        except OSError as error:
            raise SinkUnavailableError(
                _shown(self.sink.url), epoch=None, what="it cannot be reached"
            ) from error


class _Sender:
    """Sends a row until the server accepts it."""

    def __init__(self, sink: HttpSink) -> None:
        self._sink = sink
        self._pool: Any = None
        self._turn = threading.Lock()
        self._next_at = 0.0

    def __reduce__(self) -> tuple[type[_Sender], tuple[HttpSink]]:
        """Travel to tasks without connections."""
        return _Sender, (self._sink,)

    def __call__(self, row: dict[str, Any], id: str) -> None:
        body = json_bytes(row)
        pause = 0.2
        for tries_left in reversed(range(_TRIES)):
            self._wait_for_turn()
            status, after, text = self._request(body, id)
            if 200 <= status < 300:
                return
            if status not in _LATER:
                what = f"row {id} was refused with {status}: {text}"
                raise CommitRejectedError(self._name, epoch=_epoch(id), what=what)
            if tries_left:
                time.sleep(min(pause if after is None else after, _LONGEST_PAUSE_S))
                pause *= 2
        raise SinkError(
            self._name, epoch=_epoch(id), what=f"it answers {status}: {text}"
        )

    @property
    def _name(self) -> str:
        return _shown(self._sink.url)

    def _wait_for_turn(self) -> None:
        if self._sink.rate is None:
            return
        with self._turn:
            now = time.monotonic()
            at = max(now, self._next_at)
            self._next_at = at + 1 / self._sink.rate
        time.sleep(at - now)

    def _request(self, body: bytes, id: str) -> tuple[int, float | None, str]:
        urllib3 = load_extra("urllib3", extra="http", needed_for="sink of kind 'http'")
        if self._pool is None:
            self._pool = urllib3.PoolManager(maxsize=self._sink.connections)
        headers = {
            "Content-Type": "application/json",
            **self._sink.headers,
            "Idempotency-Key": id,
        }
        try:
            answer = self._pool.request(
                self._sink.method,
                self._sink.url,
                body=body,
                headers=headers,
                timeout=self._sink.timeout_s,
                retries=False,
            )
        except urllib3.exceptions.NewConnectionError:
            what = "it cannot be reached"
            raise SinkUnavailableError(
                self._name, epoch=_epoch(id), what=what
            ) from None
        except urllib3.exceptions.HTTPError as error:
            # Without the error's own text, which may hold the address.
            what = f"no answer to row {id} ({type(error).__name__})"
            raise CommitUnknownError(self._name, epoch=_epoch(id), what=what) from None
        return (
            answer.status,
            _after(answer.headers),
            _masked(answer.data[:200].decode(errors="replace"), self._sink.url),
        )


def _epoch(id: str) -> int:
    return int(id.split("/")[-2].partition("-")[0])


def _after(headers: Mapping[str, str]) -> float | None:
    text = headers.get("Retry-After", "")
    return float(text) if text.isdecimal() else None


def _shown(url: str) -> str:
    """Return an address without possible secrets: user, password, path, query."""
    parts = urlsplit(url)
    port = f":{parts.port}" if parts.port else ""
    rest = "/***" if parts.path.strip("/") or parts.query else ""
    return f"{parts.scheme}://{parts.hostname}{port}{rest}"


def _masked(text: str, url: str) -> str:
    """Return what a server says without the parts that repeat the address."""
    parts = urlsplit(url)
    secrets = [parts.path, parts.query, *parts.path.split("/"), parts.password or ""]
    secrets += [value for _, value in parse_qsl(parts.query)]
    for secret in sorted(filter(None, secrets), key=len, reverse=True):
        if len(secret) >= _LEAST_SECRET:
            text = text.replace(secret, "***")
    return text
