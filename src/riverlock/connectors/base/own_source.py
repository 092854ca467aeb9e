"""What a source of a user's own is: the protocols that it keeps.

A source is a value, which travels with the flow and holds no connection. A run makes
one reader of it, in the driver; partitions travel to tasks. Offsets are whatever JSON
can hold: they are stored in manifests, and come back in later runs. They hold no
secrets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from riverlock.core.types import SchemaLike

__all__ = ["ReplayableSource", "SourcePartition", "SourceReader"]


class SourcePartition(Protocol):
    """A part of a range, read by one task; it is pickled on its way there."""

    def rows(self) -> Iterable[Any]:
        """Return the rows: tuples, or dicts by column; always the same, in order.

        May be called again after a task has failed, and by several tasks at once.

        Raises:
            SourceUnavailableError: The system does not answer: the epoch waits for it.
            SourceError: The rows are gone, or are not what they were: the run ends.
        """
        ...


class SourceReader(Protocol):
    """Names positions of a source, and divides ranges between them into partitions.

    All methods are called by the driver, one at a time, and none changes the source.
    Order of calls: ``initial`` once per store, then for each epoch ``latest``,
    ``advance`` and ``partitions``; ``close`` at the end. A range that was planned need
    not be decided: the next one may start at the same offset again. Any range that was
    decided may be asked for again, by this run and by later ones.

    Each of them may raise ``SourceUnavailableError``, if the system does not answer:
    the run waits for it.
    """

    def initial(self) -> Any:
        """Return the offset before the first row."""
        ...

    def latest(self, start: Any) -> Any:
        """Return the offset after the last row there is now; ``start`` if none is new.

        All rows before it must be there for good: none may appear between later.
        """
        ...

    def advance(self, start: Any, latest: Any, max_rows: int) -> Any:
        """Return an offset about ``max_rows`` after ``start``, at most ``latest``."""
        ...

    def has_ended(self, start: Any, latest: Any) -> bool:
        """Whether there is no row after ``start``, and never will be."""
        ...

    def rows_between(self, start: Any, end: Any) -> int | None:
        """Return how many rows a range has, if that is known without reading."""
        ...

    def partitions(self, start: Any, end: Any) -> Sequence[SourcePartition]:
        """Return the parts of a range; together, in order, they have its rows once."""
        ...

    def close(self) -> None:
        """Release whatever is open."""
        ...


@runtime_checkable
class ReplayableSource(Protocol):
    """A source of your own, for ``flow.read``: a value that makes its reader.

    Make it a frozen dataclass. It may have an attribute ``place``, a text without
    secrets that tells it from others of its kind. ``rl.testing.SourceConformance``
    tests whether it keeps its promises.
    """

    @property
    def kind(self) -> str:
        """A short name for status and manifests; a uid is made of it."""
        ...

    @property
    def schema(self) -> SchemaLike:
        """The columns of its rows, such as ``"id bigint, name string"``."""
        ...

    def reader(self, uid: str) -> SourceReader:
        """Return what reads it, for one run; it may connect here or later.

        Args:
            uid: The uid of the source in the flow, for errors.
        """
        ...
