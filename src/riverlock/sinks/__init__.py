"""Outputs: ``rl.sinks.files(...)`` and friends."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from riverlock.core.errors import InvalidConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["MemorySink", "console", "files", "for_each_epoch", "memory"]

_FORMATS = ("json", "csv", "parquet")


@dataclass(frozen=True, kw_only=True)
class FileSink:
    """Files of a directory; see ``files``."""

    path: str
    format: str
    partition_by: tuple[str, ...] = ()
    kind: str = "files"


def files(
    path: str,
    *,
    format: str,
    partition_by: str | Sequence[str] = (),
) -> FileSink:
    """Write files exactly once: each epoch appears whole, by one rename.

    The directory holds one folder ``epoch=<n>`` per epoch, which Spark, DuckDB and
    others read as a partition, and ``_riverlock/<n>.json`` that lists its files.

    Raises:
        InvalidConfigError: The format is unknown.
    """
    if format not in _FORMATS:
        raise InvalidConfigError(
            "format of files", expected=" or ".join(_FORMATS), found=repr(format)
        )
    by = (partition_by,) if isinstance(partition_by, str) else tuple(partition_by)
    # Tasks and driver need not share a working directory, nor a notion of "~".
    whole = str(Path(path).expanduser().absolute())
    return FileSink(path=whole, format=format, partition_by=by)


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

    epochs: dict[int, list[tuple[Any, ...]]] = field(default_factory=dict)
    kind: str = "memory"

    def rows(self) -> list[tuple[Any, ...]]:
        """Return all rows of all epochs that this process has committed.

        Of mode ``complete``: the rows of the newest.
        """
        return [row for n in sorted(self.epochs) for row in self.epochs[n]]


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
