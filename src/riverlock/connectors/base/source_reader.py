"""What the engine needs of a source while it runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from riverlock.snapshot.format.records import InputRange

__all__ = ["Parted", "Reader", "Rechecked", "Situated", "check_situated"]


class Reader(Protocol):
    """Names positions of a source and reads ranges between them.

    Offsets are JSON. ``read`` of the same range gives the same rows in the same order
    of partitions, in this run and every later one; a source that cannot do so raises
    ``SourceError``. All methods run in the driver, in one thread.
    """

    @property
    def gives_positions(self) -> bool:
        """Whether rows of a range that is not empty carry their position.

        For sources whose order Spark's own numbers of rows do not tell.
        """
        ...

    @property
    def can_read_ahead(self) -> bool:
        """Whether ``advance`` and ``read`` may go on before the last range is done.

        For sources that keep nothing of a range until it is committed.
        """
        ...

    @property
    def is_repeatable(self) -> bool:
        """Whether stages of an epoch that read a range at different times see the same.

        For sources that are sure to give the same rows, or fail. Others are read by
        one stage, which stores the rows for the others.
        """
        ...

    def initial(self) -> Any:
        """Return the offset before the first row."""
        ...

    def latest(self, start: Any) -> Any:
        """Return the offset after the last row that there is now."""
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

    def read(self, start: Any, end: Any) -> Any:
        """Return the rows of a range as a DataFrame; an empty one has the columns."""
        ...

    def observed(self, rows: int) -> dict[str, float]:
        """Learn how many rows the last range had; returns figures for the status."""
        ...

    def close(self) -> None:
        """Let go of whatever is open."""
        ...


@runtime_checkable
class Situated(Protocol):
    """A reader whose offsets belong to a place, which may be another one by now."""

    def check_place(self, offset: Any) -> None:
        """Look whether an offset is one of this place; asked before a run begins.

        Raises:
            SourceError: It is not; nothing was read.
        """
        ...


@runtime_checkable
class Parted(Protocol):
    """A reader whose rows can be read once for both, the stream and its ``.bad``.

    For sources that might tell them otherwise when they are read again.
    """

    @property
    def has_bad_rows(self) -> bool:
        """Whether any row can be bad."""
        ...

    def read_whole(self, start: Any, end: Any) -> Any:
        """Return all rows of a range, and what is needed to tell the bad ones."""
        ...

    def part(self, whole: Any, *, bad: bool) -> Any:
        """Return the rows of the stream, or those of ``.bad``, by looking at each."""
        ...


@runtime_checkable
class Rechecked(Protocol):
    """A reader whose source may change while tasks read it."""

    def recheck(self, start: Any, end: Any) -> None:
        """See, after a range was read, that it still is what was planned.

        Raises:
            SourceError: It is not; the epoch must not be decided.
        """
        ...


def check_situated(
    readers: Mapping[str, Reader], inputs: Mapping[str, InputRange]
) -> None:
    """Look whether what was read so far was read at the places of these readers.

    Raises:
        SourceError: It was not; nothing was read.
    """
    for uid, reader in readers.items():
        if isinstance(reader, Situated) and uid in inputs:
            reader.check_place(inputs[uid].end)
