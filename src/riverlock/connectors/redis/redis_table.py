"""Keys of Redis as a table in which to look up rows of a stream."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import msgspec

from riverlock.core.errors import (
    InvalidConfigError,
    SourceError,
    SourceUnavailableError,
)
from riverlock.core.extras import load_extra
from riverlock.core.types import Schema, SchemaLike, schema_of
from riverlock.core.values.known_types import known

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

__all__ = ["RedisTable", "redis"]

_SHAPES: Final = ("hash", "json")
_COLUMN: Final = re.compile(r"\{([^{}]+)\}")
_SPECIAL: Final = re.compile(r"([*?\[\]^\\])")
_KEYS_AT_ONCE: Final = 1000
_PYTHON: Final = {
    "boolean": bool,
    "byte": int,
    "short": int,
    "int": int,
    "long": int,
    "float": float,
    "double": float,
    "decimal": Decimal,
    "string": str,
    "date": date,
    "timestamp": datetime,
    "timestamp_ntz": datetime,
}


@dataclass(frozen=True, kw_only=True)
class RedisTable:
    """Keys of a Redis server as rows; see ``redis``. Prints without the URL."""

    url: str = field(repr=False)  # may hold a password
    key: str
    shape: str
    schema: Schema

    def __call__(self, spark: Any) -> Any:
        """Return the current rows as a DataFrame, for ``join_static``.

        The driver reads them at once, so that whatever Spark repeats sees the same.

        Raises:
            SourceError: A key or a value is not as declared.
            SourceUnavailableError: The server does not answer.
        """
        return spark.createDataFrame(self.table())

    def table(self) -> pa.Table:
        """Return the current rows.

        Raises:
            SourceError: A key or a value is not as declared, or access is denied.
            SourceUnavailableError: The server does not answer.
        """
        import pyarrow as pa

        package = _package()
        try:
            with package.Redis.from_url(self.url) as server:
                rows = list(self._rows(server))
        except package.AuthenticationError as error:
            raise self._wrong(f"access was denied: {error}") from None
        except (package.ConnectionError, package.TimeoutError):
            raise SourceUnavailableError(
                self._name, what="the server does not answer"
            ) from None
        except package.RedisError as error:
            raise self._wrong(str(error)) from None
        try:
            return pa.Table.from_pylist(rows, schema=self.schema.to_arrow())
        except (pa.ArrowException, TypeError, ValueError) as error:
            raise self._wrong(f"a value does not fit its column: {error}") from None

    def _rows(self, server: Any) -> Iterator[dict[str, Any]]:
        # A scan may give a key several times.
        found = server.scan_iter(match=self._pattern, count=_KEYS_AT_ONCE)
        keys = list(dict.fromkeys(found))
        for begin in range(0, len(keys), _KEYS_AT_ONCE):
            some = keys[begin : begin + _KEYS_AT_ONCE]
            with server.pipeline(transaction=False) as questions:
                ask = questions.hgetall if self.shape == "hash" else questions.get
                for key in some:
                    ask(key)
                answers = questions.execute()
            for key, answer in zip(some, answers, strict=True):
                if answer:  # else it is gone since
                    yield self._row(key.decode(), answer)

    def _row(self, key: str, answer: Any) -> dict[str, Any]:
        """Return a row: the columns of the key, and those of what it holds."""
        try:
            held = (
                {n.decode(): v.decode() for n, v in answer.items()}
                if self.shape == "hash"
                # Not parsed yet: a float has fewer digits than a decimal.
                else msgspec.json.decode(answer, type=known(dict[str, msgspec.Raw]))
            )
            held |= self._of_key(key, held)
            return {
                f.name: _value(held.get(f.name), _PYTHON[f.type.kind])
                for f in self.schema.fields
            }
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise self._wrong(f"key {key!r} holds another value: {error}") from None

    def _of_key(self, key: str, held: dict[str, Any]) -> dict[str, str]:
        """Return the columns in a key; none if only what it holds can tell them."""
        match = self._form("(.*)").fullmatch(key)
        other = self._form("(.*?)").fullmatch(key)
        if match is None or other is None:
            raise self._wrong(f"key {key!r} is not of the form {self.key!r}")
        if match.groups() == other.groups():
            return dict(zip(self._columns, match.groups(), strict=True))
        if not held.keys() >= set(self._columns):
            raise self._wrong(
                f"key {key!r} is of the form {self.key!r} in several ways, and does"
                " not hold the columns"
            )
        return {}

    @property
    def _columns(self) -> list[str]:
        return _COLUMN.findall(self.key)

    @property
    def _pattern(self) -> str:
        parts = _COLUMN.split(self.key)[::2]
        return "*".join(_SPECIAL.sub(r"\\\1", part) for part in parts)

    def _form(self, column: str) -> re.Pattern[str]:
        parts = _COLUMN.split(self.key)[::2]
        return re.compile(column.join(map(re.escape, parts)), re.DOTALL)

    @property
    def _name(self) -> str:
        parts = urlsplit(self.url)
        port = f":{parts.port}" if parts.port else ""
        return f"{parts.scheme}://{parts.hostname or ''}{port}{parts.path}"

    def _wrong(self, what: str) -> SourceError:
        return SourceError(
            self._name, what=what, hint="nothing of this epoch was committed"
        )


def _value(held: Any, kind: type) -> Any:
    if held is None:
        return None
    if isinstance(held, msgspec.Raw):
        return msgspec.json.decode(held, type=known(kind | None), strict=False)
    if isinstance(held, str) and kind is not str:
        held = held.strip('"')  # the sink writes times into hashes as JSON does
    return msgspec.convert(held, known(kind), strict=False)


def redis(url: str, *, key: str, schema: SchemaLike, shape: str = "hash") -> RedisTable:
    """Look up rows in Redis: a table for ``join_static``; needs ``riverlock[redis]``.

    The driver reads all keys of the form ``key`` in every epoch, so they must fit into
    its memory. Write them with ``rl.sinks.redis`` of the same key and shape.

    Args:
        url: As ``redis://[user:password@]host:port/db``; never printed or stored.
        key: The form of keys, such as ``user:{user}``, with columns in braces.
        schema: The columns: those of ``key``, and fields of what it holds.
        shape: ``hash`` (a field per column) or ``json`` (a string with an object).

    Raises:
        InvalidConfigError: An argument does not fit, or the client is not installed.
    """
    if shape not in _SHAPES:
        raise InvalidConfigError(
            "redis(shape=)", expected=" or ".join(_SHAPES), found=repr(shape)
        )
    if urlsplit(url).scheme not in {"redis", "rediss", "unix"}:
        raise InvalidConfigError(
            "redis(url=)",
            expected="redis://, rediss:// or unix://",
            found=repr(urlsplit(url).scheme),
        )
    columns = schema_of(schema)
    named = _COLUMN.findall(key)
    if not named or not set(named) <= set(columns.names):
        raise InvalidConfigError(
            "redis(key=)",
            expected=f"{{column}} of the schema: {', '.join(columns.names)}",
            found=repr(key),
        )
    odd = [f.name for f in columns.fields if f.type.kind not in _PYTHON]
    if odd:
        raise InvalidConfigError(
            "redis(schema=)",
            expected="numbers, text, dates and times",
            found=f"another type of {', '.join(odd)}",
        )
    _package()
    return RedisTable(url=url, key=key, shape=shape, schema=columns)


def _package() -> Any:
    return load_extra("redis", extra="redis", needed_for="a table in Redis")
