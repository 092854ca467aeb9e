"""What the engine needs from a source while it runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from riverlock.snapshot.format.records import InputRange

__all__ = [
    "Counted",
    "Following",
    "Parted",
    "Reader",
    "Rechecked",
    "Situated",
    "check_read",
    "check_situated",
]


class Reader(Protocol):
    """Names positions of a source and reads ranges between them.

    Offsets are JSON. ``read`` of the same range returns the same rows in the same order
    of partitions, in this run and every later one; a source that cannot do so raises
    ``SourceError``. All methods run in the driver, in one thread.
    """

    @property
    def gives_positions(self) -> bool:
        """Whether rows of a range that is not empty carry their position.

        For sources whose order Spark's own row numbers do not reflect.
        """
        ...

    @property
    def can_read_ahead(self) -> bool:
        """Whether ``advance`` and ``read`` may continue before the last range is done.

        For sources that keep nothing of a range until it is committed.
        """
        ...

    @property
    def is_repeatable(self) -> bool:
        """Whether stages of an epoch that read a range at different times see the same.

        For sources that are certain to return the same rows, or to fail. Others are
        read by one stage, which stores the rows for the others.
        """
        ...

    def initial(self) -> Any:
        """Return the offset before the first row."""
        ...

    def latest(self, start: Any) -> Any:
        """Return the offset after the last row that exists now."""
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
        """Learn how many rows the last range had; return figures for the status."""
        ...

    def close(self) -> None:
        """Release whatever is open."""
        ...


@runtime_checkable
class Situated(Protocol):
    """A reader whose offsets belong to a place, which may have changed since."""

    def check_place(self, offset: Any) -> None:
        """Check that an offset belongs to this place; called before a run begins.

        Raises:
            SourceError: It does not; nothing was read.
        """
        ...


@runtime_checkable
class Parted(Protocol):
    """A reader whose rows can be read once for both the stream and its ``.bad``.

    For sources that might divide them differently when they are read again.
    """

    @property
    def has_bad_rows(self) -> bool:
        """Whether any row can be bad."""
        ...

    def read_whole(self, start: Any, end: Any) -> Any:
        """Return all rows of a range, and what is needed to recognise the bad ones."""
        ...

    def part(self, whole: Any, *, bad: bool) -> Any:
        """Return the rows of the stream, or those of ``.bad``, by checking each row."""
        ...


@runtime_checkable
class Rechecked(Protocol):
    """A reader whose source may change while tasks read it."""

    def recheck(self, start: Any, end: Any) -> None:
        """Check, after a range was read, that it still is what was planned.

        Raises:
            SourceError: It is not; the epoch must not be decided.
        """
        ...


@runtime_checkable
class Counted(Protocol):
    """A reader that knows how many rows a range had once it was read, not before."""

    def rows_read(self) -> int | None:
        """Return how many rows the last ``read`` gave to a stage that has run by now.

        None: Spark has not counted, or nothing was read.
        """
        ...


@runtime_checkable
class Following(Protocol):
    """A reader of what another region writes, which may run beside it."""

    @property
    def is_final(self) -> bool:
        """Whether what is there now is all that a run with ``available_now`` takes."""
        ...

    def watermark_us(self, start: Any, end: Any) -> int | None:
        """Return the watermark that holds while a range is read."""
        ...


def check_situated(
    readers: Mapping[str, Reader], inputs: Mapping[str, InputRange]
) -> None:
    """Check that what was read so far was read at the places of these readers.

    Raises:
        SourceError: It was not; nothing was read.
    """
    for uid, reader in readers.items():
        if isinstance(reader, Situated) and uid in inputs:
            reader.check_place(inputs[uid].end)


def check_read(readers: Mapping[str, Reader], inputs: Mapping[str, InputRange]) -> None:
    """See, after tasks have read these ranges, that they are what was planned.

    Raises:
        SourceError: One is not; the epoch must not be decided.
    """
    for uid, span in inputs.items():
        reader: object = readers.get(uid)
        if isinstance(reader, Rechecked) and span.start != span.end:
            reader.recheck(span.start, span.end)
