"""Outputs: ``rl.sinks.files(...)`` and friends."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from riverlock.connectors.delta.sink import delta
from riverlock.connectors.each_row import for_each_row
from riverlock.connectors.files.sink import files
from riverlock.connectors.http.sink import http
from riverlock.connectors.kafka.sink import kafka
from riverlock.connectors.redis.sink import redis
from riverlock.core.errors import InvalidConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from riverlock.connectors.databases.sink import SqlSink

__all__ = [
    "MemorySink",
    "console",
    "delta",
    "files",
    "for_each_epoch",
    "for_each_row",
    "http",
    "kafka",
    "memory",
    "redis",
    "sql",
]


@dataclass(frozen=True, kw_only=True)
class ConsoleSink:
    """Prints rows; see ``console``."""

    rows: int
    kind: str = "console"


def console(rows: int = 20) -> ConsoleSink:
    """Print the first rows of each epoch; after a crash an epoch may print twice."""
    return ConsoleSink(rows=rows)


@dataclass(frozen=True, eq=False, kw_only=True)
class MemorySink:
    """Keeps rows in this process; see ``memory``."""

    # By epoch, then by flow and uid: several writers may share it.
    written: dict[int, dict[tuple[str, str], list[tuple[Any, ...]]]] = field(
        default_factory=dict
    )
    kind: str = "memory"

    @property
    def epochs(self) -> dict[int, list[tuple[Any, ...]]]:
        """The rows of each epoch that has some."""
        return {
            epoch: [row for rows in parts.values() for row in rows]
            for epoch, parts in self.written.items()
            if parts
        }

    def rows(self) -> list[tuple[Any, ...]]:
        """Return all rows of all epochs that this process has committed.

        Of mode ``complete``: the rows of the newest.
        """
        return [row for _, rows in sorted(self.epochs.items()) for row in rows]


def memory() -> MemorySink:
    """Keep rows in this process, for tests and notebooks: ``sink.rows()``."""
    return MemorySink()


@dataclass(frozen=True, kw_only=True)
class EpochFunction:
    """Calls a function; see ``for_each_epoch``."""

    function: Callable[[Any, int], None]
    kind: str = "for_each_epoch"


def for_each_epoch(function: Callable[[Any, int], None]) -> EpochFunction:
    """Call ``function(df, epoch)`` after an epoch is decided.

    It is called at least once per epoch, always with the same rows. Make it idempotent
    by the epoch's number, and its effects are exactly once.
    """
    if not callable(function):
        raise InvalidConfigError(
            "for_each_epoch", expected="a function(df, epoch)", found=repr(function)
        )
    return EpochFunction(function=function)


def sql(  # noqa: PLR0913 - keyword-only settings
    url: str,
    *,
    table: str,
    mode: str = "append",
    key: str | Sequence[str] = (),
    create: bool = False,
    deletes: str | None = None,
) -> SqlSink:
    """Write a table of a database exactly once: one transaction per epoch.

    Tasks load rows into staging tables while the epoch runs. A table
    ``riverlock_epochs`` beside the target remembers which epochs it has.

    Args:
        url: ``sqlite:///file.db``, ``postgresql://user:password@host/database`` or
            ``mysql://user:password@host/database`` (also MariaDB).
        table: Its name, perhaps with a schema before a dot.
        mode: ``append`` adds rows; ``upsert`` replaces rows of the same key, the last
            one of an epoch wins; ``replace``: the rows of an epoch take the place of
            all rows of the table.
        key: The columns of a primary key or unique index, for ``upsert``.
        create: Create the table, with the columns of the stream, if it is not there.
        deletes: A boolean column of the stream, for ``upsert``: where it is true, the
            row of that key is deleted. It is not a column of the table.

    Raises:
        InvalidConfigError: The URL, the mode or the key is impossible.
    """
    from riverlock.connectors.databases.address import parse_address
    from riverlock.connectors.databases.sink import MODES, SqlSink

    if mode not in MODES:
        raise InvalidConfigError(
            "mode of sql", expected=" or ".join(MODES), found=repr(mode)
        )
    columns = (key,) if isinstance(key, str) else tuple(key)
    if bool(columns) != (mode == "upsert"):
        raise InvalidConfigError(
            "key of sql",
            expected="columns for mode 'upsert', and none for others",
            found=f"mode {mode!r} with {', '.join(columns) or 'no key'}",
        )
    if deletes is not None and (mode != "upsert" or deletes in columns):
        raise InvalidConfigError(
            "deletes of sql",
            expected="a column beside the key, of mode 'upsert'",
            found=f"{deletes!r} in mode {mode!r}",
        )
    return SqlSink(
        address=parse_address(url),
        table=table,
        mode=mode,
        key=columns,
        create=create,
        deletes=deletes,
    )
