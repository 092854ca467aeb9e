"""Rows in Redis: one transaction per epoch, which also records the epoch.

``WATCH`` on the record of the epoch makes the transaction void if another run writes
meanwhile. Exactly once, as long as Redis keeps what it acknowledged.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgspec

from riverlock.connectors.base.committer import (
    check_kept,
    check_past,
    fenced,
    foreign,
    of_the_origin,
)
from riverlock.connectors.base.json_rows import json_bytes, sayable
from riverlock.connectors.base.staged_rows import numbered_rows
from riverlock.connectors.each_row import row_stager
from riverlock.core.errors import (
    CommitRejectedError,
    CommitUnknownError,
    InvalidConfigError,
    InvalidFlowError,
    SinkError,
    SinkUnavailableError,
)
from riverlock.core.extras import load_extra
from riverlock.core.keywords import told_keywords
from riverlock.core.times import duration_us
from riverlock.core.values.known_types import known
from riverlock.snapshot.past import Claim, Commit, commit_of

if TYPE_CHECKING:
    from riverlock.connectors.base.committer import Owner
    from riverlock.connectors.base.sink import SinkUse
    from riverlock.connectors.builtin_stagers import TableStager
    from riverlock.snapshot.format.records import SinkOutput
    from riverlock.storage.base import Storage

__all__ = ["RedisSink", "redis"]

_SHAPES = ("hash", "json", "stream")
_COLUMN = re.compile(r"\{([^{}]+)\}")


@dataclass(frozen=True, kw_only=True)
class RedisSink:
    """Keys of a Redis server; see ``redis``."""

    url: str = field(repr=False)  # may hold a password
    key: str
    shape: str
    ttl_s: int | None
    kind: str = "redis"

    @property
    def place(self) -> str:
        """Server and keys, without secrets."""
        return f"{shown(self.url)} {self.key}"

    def stager(self, use: SinkUse) -> TableStager:
        """Return the stager, which writes rows into the store."""
        for column in _COLUMN.findall(self.key):
            if column not in use.schema.names:
                raise InvalidFlowError(
                    f"key of sink {use.uid!r}",
                    expected=f"{{column}} of {', '.join(use.schema.names)}",
                    found=repr(self.key),
                )
        return row_stager(use, self.kind)

    def keeps_gone(self, column: str) -> bool:
        """Whether there is one row per key: none is ever deleted."""
        del column
        return self.shape != "stream"

    def committer(self, use: SinkUse, storage: Storage) -> RedisCommitter:
        """Return the committer, which writes to the server."""
        del use
        return RedisCommitter(sink=self, storage=storage)


@told_keywords
def redis(
    url: str, *, key: str, shape: str = "hash", ttl: str | None = None
) -> RedisSink:
    """Write rows to Redis, each epoch in one transaction.

    Args:
        url: As ``redis://[user:password@]host:port/db``; never printed or stored.
        key: The key of a row, such as ``user:{user}``, with columns in braces. The last
            row of a key counts.
        shape: ``hash`` (a field per column; null removes the field), ``json`` (a string
            with the row as JSON) or ``stream`` (rows are added to a stream).
        ttl: How long keys live after they were written.
    """
    if shape not in _SHAPES:
        raise InvalidConfigError(
            "redis(shape=)", expected=" or ".join(_SHAPES), found=repr(shape)
        )
    if shape != "stream" and not _COLUMN.search(key):
        raise InvalidConfigError(
            "redis(key=)", expected="a {column} in it", found=repr(key)
        )
    if urlsplit(url).scheme not in {"redis", "rediss", "unix"}:
        raise InvalidConfigError(
            "redis(url=)",
            expected="redis://, rediss:// or unix://",
            found=repr(urlsplit(url).scheme),
        )
    ttl_s = None if ttl is None else max(1, duration_us(ttl) // 1_000_000)
    return RedisSink(url=url, key=key, shape=shape, ttl_s=ttl_s)


class _Record(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the server knows about this sink; older versions left only numbers."""

    run: int
    epoch: int
    token: str = ""  # of that run
    decided: str = ""  # the token of the run that decided the epoch
    digest: str = ""

    @property
    def claim(self) -> Claim:
        return Claim(run=self.run, token=self.token)

    @property
    def commit(self) -> Commit | None:
        if self.epoch < 0:
            return None
        return Commit(epoch=self.epoch, run=self.decided, digest=self.digest)


@dataclass
class RedisCommitter:
    """Writes an epoch and its record in one transaction."""

    sink: RedisSink
    storage: Storage
    guarantee: str = (
        "exactly once as long as Redis keeps what it acknowledged: an epoch is one"
        " transaction, which also records the epoch"
    )
    _owner: Owner | None = None
    _record: str = ""
    _server: Any = None
    _committed: int = -1

    def probe(self) -> None:
        """Check whether the server answers, and lets us in; change nothing.

        Raises:
            InvalidConfigError: It does not let us in.
            SinkUnavailableError: It does not answer.
        """
        errors = _package().exceptions
        try:
            with _package().Redis.from_url(self.sink.url) as server:
                server.ping()
        except errors.AuthenticationError as error:
            raise self._not_let_in(error) from error
        except (errors.ConnectionError, errors.TimeoutError) as error:
            raise self._away(None, is_sent=False) from error

    def open(self, owner: Owner) -> None:
        """Take the sink for this run, so that earlier ones are refused.

        Raises:
            InvalidConfigError: The package redis is missing, the server does not let
                us in, or this is a fork and its origin writes a sink of this uid there.
            FencedError: A newer run of this store has opened the sink.
            ForeignEpochError: It has an epoch that this store has not decided.
            CommitRejectedError: It lacks epochs that it had.
            SinkUnavailableError: The server does not answer.
        """
        self._owner = owner
        self._record = f"riverlock:{owner.flow}:{owner.sink}"
        self._server = _package().Redis.from_url(self.sink.url)

        def take(pipe: Any, found: _Record) -> None:
            theirs = f"riverlock:{owner.origin}:{owner.sink}"
            if found.run == 0 and owner.origin is not None and pipe.exists(theirs):
                raise of_the_origin(owner.sink, f"Redis at {self._name}")
            if pipe.get(self._record) is None:
                self._check_new(owner)
            check_past(owner, found.claim, found.commit, self._name)
            place = self.sink.place
            check_kept(owner, found.commit, place=place, name=self._name)
            pipe.multi()
            self._keep(pipe, found.commit)
            self._committed = found.epoch

        self._transact(None, take)

    def _check_new(self, owner: Owner) -> None:
        """Refuse a server that has forgotten which epochs it has."""
        output, newest = owner.past.output(owner.sink), owner.past.newest
        if output is None or output.place != self.sink.place:
            return
        raise InvalidConfigError(
            f"Redis at {self._name} for sink {owner.sink!r}",
            expected=f"the key {self._record}, which was there",
            found="none: without it nobody can tell which epochs the server has, and"
            " one could be written twice",
            hint="nothing was written; restore the server, or, if it has the rows of"
            f" epoch {newest} or is to continue without them, set that key to"
            f' {{"run":0,"epoch":{newest}}}',
        )

    def commit(self, epoch: int, output: SinkOutput) -> None:
        """Write the rows, unless the server says that it has them."""
        if not output.tokens:
            return
        wanted, owner = commit_of(epoch, output), self._owner
        assert owner is not None, "commit before open"

        def write(pipe: Any, found: _Record) -> None:
            if found.run and not found.claim.matches(owner.claim):
                raise fenced(owner, found.claim)
            if not found.run or found.epoch < self._committed:
                what = (
                    f"it went back from epoch {self._committed} to {found.epoch}: it"
                    " lost what it had acknowledged; restore it; the next start says"
                    " what else can be done"
                )
                raise self._rejected(epoch, what)
            if found.commit is not None and found.epoch >= epoch:
                if not found.commit.matches(wanted):
                    raise foreign(owner, found.commit, self._name)
                return
            self._check_kinds(epoch, output)
            pipe.multi()
            for _, row in numbered_rows(self.storage, output):
                self._add(pipe, row)
            self._keep(pipe, wanted)

        self._transact(epoch, write)
        self._committed = max(self._committed, epoch)

    def _transact(self, epoch: int | None, write: Any) -> None:
        errors = _package().exceptions
        cut_off = (errors.ConnectionError, errors.TimeoutError)
        is_sent = False
        try:
            with self._server.pipeline(transaction=True) as pipe:
                pipe.watch(self._record)
                held = pipe.get(self._record)
                found = (
                    _Record(run=0, epoch=-1)
                    if held is None
                    else msgspec.json.decode(held, type=known(_Record))
                )
                write(pipe, found)
                is_sent = True
                answers = pipe.execute(raise_on_error=False)
        except errors.WatchError as error:
            # What its client makes of a line that is cut behind WATCH.
            if isinstance(error.__context__, cut_off):
                raise self._away(epoch, is_sent=is_sent) from error
            what = "another run writes at the same time"
            raise SinkError(self._name, epoch=epoch, what=what) from error
        except errors.AuthenticationError as error:
            raise self._not_let_in(error) from error
        except cut_off as error:
            raise self._away(epoch, is_sent=is_sent) from error
        except errors.RedisError as error:
            raise SinkError(self._name, epoch=epoch, what=str(error)) from error
        refused = next((a for a in answers if isinstance(a, Exception)), None)
        if refused is not None:
            # Not tried again: the record says that the epoch is there.
            what = f"the epoch is written, but for what was refused: {refused}"
            raise self._rejected(epoch, what) from refused

    def _not_let_in(self, error: Exception) -> InvalidConfigError:
        return InvalidConfigError(
            f"Redis at {self._name}",
            expected="access to the server",
            found=str(error),
            hint="correct user and password of the url",
        )

    def _away(self, epoch: int | None, *, is_sent: bool) -> SinkError:
        """Return the error for a server that the driver waits for.

        When the driver asks again, the record tells whether what was sent is written.
        """
        is_open = is_sent and epoch is not None
        kind = CommitUnknownError if is_open else SinkUnavailableError
        return kind(self._name, epoch=epoch, what="it does not answer")

    def _check_kinds(self, epoch: int, output: SinkOutput) -> None:
        """Refuse keys that hold something else.

        Redis undoes nothing if a command of a transaction fails: all others are done,
        including that of the record.
        """
        if self.sink.shape == "json":
            return  # replaces whatever is there
        rows = (row for _, row in numbered_rows(self.storage, output))
        keys = list(dict.fromkeys(map(self._key, rows)))
        with self._server.pipeline(transaction=False) as questions:
            for key in keys:
                questions.type(key)
            kinds = questions.execute()
        for key, kind in zip(keys, kinds, strict=True):
            found = kind.decode() if isinstance(kind, bytes) else kind
            if found not in {self.sink.shape, "none"}:
                what = (
                    f"key {key} holds a {found}, not a {self.sink.shape}; nothing of"
                    " the epoch was written; remove the key and start again"
                )
                raise self._rejected(epoch, what)

    def _key(self, row: dict[str, Any]) -> str:
        return _COLUMN.sub(lambda m: _text(row[m[1]]), self.sink.key)

    def _keep(self, pipe: Any, commit: Commit | None) -> None:
        assert self._owner is not None
        kept = _Record(
            run=self._owner.run,
            epoch=-1 if commit is None else commit.epoch,
            token=self._owner.token,
            decided="" if commit is None else commit.run,
            digest="" if commit is None else commit.digest,
        )
        pipe.set(self._record, msgspec.json.encode(kept))

    def _add(self, pipe: Any, row: dict[str, Any]) -> None:
        key = self._key(row)
        match self.sink.shape:
            case "hash":
                fields = {n: _text(v) for n, v in row.items() if v is not None}
                if nulls := [n for n, v in row.items() if v is None]:
                    pipe.hdel(key, *nulls)
                if fields:
                    pipe.hset(key, mapping=fields)
            case "json":
                pipe.set(key, json_bytes(row))
            case _:
                pipe.xadd(key, {"row": json_bytes(row)})
        if self.sink.ttl_s is not None:
            pipe.expire(key, self.sink.ttl_s)

    def _rejected(self, epoch: int | None, what: str) -> CommitRejectedError:
        return CommitRejectedError(self._name, epoch=epoch, what=what)

    @property
    def _name(self) -> str:
        return shown(self.sink.url)


def shown(url: str) -> str:
    """Return an address without user and password."""
    parts = urlsplit(url)
    port = f":{parts.port}" if parts.port else ""
    return f"{parts.scheme}://{parts.hostname or ''}{port}{parts.path}"


def _text(value: Any) -> str:
    said = sayable(value)
    return said if isinstance(said, str) else json_bytes(said).decode()


def _package() -> Any:
    return load_extra("redis", extra="redis", needed_for="sink of kind 'redis'")
