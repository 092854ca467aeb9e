"""Outputs: ``rl.sinks.files(...)`` and the others."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from riverlock.connectors.base.committer import Committer
from riverlock.connectors.base.sink import Sink, SinkUse, TwoPhaseSink
from riverlock.connectors.base.stager import Stager
from riverlock.connectors.delta.sink import delta
from riverlock.connectors.each_row import for_each_row
from riverlock.connectors.files.sink import files
from riverlock.connectors.http.sink import http
from riverlock.connectors.kafka.sink import kafka
from riverlock.connectors.redis.sink import redis
from riverlock.core.errors import InvalidConfigError
from riverlock.core.keywords import told_keywords

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from riverlock.connectors.databases.sink import SqlSink

__all__ = [
    "Committer",
    "MemorySink",
    "Sink",
    "SinkUse",
    "Stager",
    "TwoPhaseSink",
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


@told_keywords
def console(rows: int = 20) -> ConsoleSink:
    """Print the first rows of each epoch; a crash may make an epoch print twice."""
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
        """The rows of each epoch that has any."""
        return {
            epoch: [row for rows in parts.values() for row in rows]
            for epoch, parts in self.written.items()
            if parts
        }

    def rows(self) -> list[tuple[Any, ...]]:
        """Return all rows of all epochs that this process has committed.

        In mode ``complete``: the rows of the newest epoch.
        """
        return [row for _, rows in sorted(self.epochs.items()) for row in rows]


@told_keywords
def memory() -> MemorySink:
    """Keep rows in this process, for tests and notebooks: ``sink.rows()``."""
    return MemorySink()


@dataclass(frozen=True, kw_only=True)
class EpochFunction:
    """Calls a function; see ``for_each_epoch``."""

    function: Callable[[Any, int], None]
    kind: str = "for_each_epoch"


@told_keywords
def for_each_epoch(function: Callable[[Any, int], None]) -> EpochFunction:
    """Call ``function(df, epoch)`` after an epoch is decided.

    It is called at least once per epoch, always with the same rows. If it is idempotent
    by the epoch's number, its effects are exactly once.
    """
    if not callable(function):
        raise InvalidConfigError(
            "for_each_epoch", expected="a function(df, epoch)", found=repr(function)
        )
    return EpochFunction(function=function)


@told_keywords
def sql(  # noqa: PLR0913 - keyword-only settings
    url: str,
    *,
    table: str,
    how: str = "append",
    key: str | Sequence[str] = (),
    create: bool = False,
    deletes: str | None = None,
) -> SqlSink:
    """Write to a table of a database exactly once: one transaction per epoch.

    Tasks load rows into staging tables while the epoch runs. A table
    ``riverlock_epochs`` beside the target remembers which epochs it has.

    Args:
        url: ``sqlite:///file.db``, ``postgresql://user:password@host/database`` or
            ``mysql://user:password@host/database`` (also MariaDB).
        table: The name of the table, optionally with a schema before a dot.
        how: ``append`` adds rows; ``upsert`` replaces rows of the same key (the last
            one of an epoch wins); ``replace`` replaces all rows of the table with those
            of the epoch.
        key: The columns of a primary key or unique index, for ``upsert``.
        create: Create the table, with the columns of the stream, if it does not exist.
        deletes: A boolean column of the stream, for ``upsert``: where it is true, the
            row of that key is deleted. It is not a column of the table.

    Raises:
        InvalidConfigError: The URL, ``how`` or the key is impossible.
    """
    from riverlock.connectors.databases.address import parse_address
    from riverlock.connectors.databases.sink import HOW, SqlSink

    if how not in HOW:
        raise InvalidConfigError(
            "sql(how=)", expected=" or ".join(HOW), found=repr(how)
        )
    columns = (key,) if isinstance(key, str) else tuple(key)
    if bool(columns) != (how == "upsert"):
        raise InvalidConfigError(
            "sql(key=)",
            expected="columns for how='upsert', and none for others",
            found=f"how={how!r} with {', '.join(columns) or 'no key'}",
        )
    if deletes is not None and (how != "upsert" or deletes in columns):
        raise InvalidConfigError(
            "sql(deletes=)",
            expected="a column beside the key, and how='upsert'",
            found=f"{deletes!r} with how={how!r}",
        )
    return SqlSink(
        address=parse_address(url),
        table=table,
        how=how,
        key=columns,
        create=create,
        deletes=deletes,
    )
