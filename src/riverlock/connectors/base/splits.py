"""Ranges of a source that Python reads, piece by piece, wherever the piece is sent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from riverlock.core.types import Schema

__all__ = ["Divided", "Split"]


class Split(Protocol):
    """A piece of a range: can be pickled, and read in any process, more than once.

    Rows of a range are those of its splits, one after the other: that is their order.
    """

    def table(self) -> pa.Table:
        """Read it: the columns of the source, rows in order.

        Raises:
            SourceError: It is gone, or not what it was when the range was planned.
        """
        ...


@runtime_checkable
class Divided(Protocol):
    """A reader whose ranges Python can read without Spark."""

    @property
    def schema(self) -> Schema:
        """The columns of the source."""
        ...

    def splits(self, start: Any, end: Any, wanted: int) -> Sequence[Split]:
        """Return the pieces of a range, in order; none if it is empty.

        Runs in the driver, for every epoch: it opens nothing that is not open, and
        does not read the rows.

        Args:
            start: The offset before the first row.
            end: The offset after the last.
            wanted: How many tasks will read at a time; more or fewer pieces are fine.
        """
        ...
