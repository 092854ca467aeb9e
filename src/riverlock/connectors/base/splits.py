"""Ranges of a source that Python reads, piece by piece, wherever the piece is sent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from riverlock.core.errors import InvalidFlowError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from riverlock.core.types import Schema

__all__ = ["Divided", "PartedSplit", "Split", "without_spark"]


def without_spark(what: str, found: str) -> InvalidFlowError:
    """Return the error for a source that only Spark can read."""
    return InvalidFlowError(
        f"{what} in a flow that runs continuously",
        expected="what Python reads without Spark (see docs/reference.md)",
        found=found,
        hint="it runs with execution='jobs'",
    )


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
class PartedSplit(Split, Protocol):
    """A piece of a range of which some rows may be bad: it is parsed once for both."""

    def parted(self) -> tuple[pa.Table, pa.Table]:
        """Read it: the rows of the stream, and those of ``.bad``, each in order.

        Raises:
            SourceError: It is gone, not what it was, or has a bad row and must not.
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
