"""The records of a two-input operator, each of the columns of its own side."""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from riverlock.core.hidden_columns import SIDE
from riverlock.core.types import Schema
from riverlock.program.two_inputs import LEFT_ROW, RIGHT_ROW
from riverlock.state.columns.python_rows import Records, records

if TYPE_CHECKING:
    from collections.abc import Iterator

    from riverlock.core.values.record import Record

__all__ = ["LEFT", "RIGHT", "SidedRecords"]

# Right before left: the order in which a key's records of an epoch are handled.
RIGHT, LEFT = 0, 1


class SidedRecords(Records):
    """Rows of which each is of one side; made when their turn comes, as all records."""

    def __init__(self, sides: list[int], left: Records, right: Records) -> None:
        """Take the side of each row, and the records of each side in that order."""
        self._sides = sides
        self._left, self._right = left, right
        # How many rows of the left side come before each row.
        self._lefts = list(accumulate(sides, initial=0))

    @classmethod
    def of(cls, table: pa.Table, packed: Schema) -> SidedRecords:
        """Return the records of a table of packed columns."""
        sides = table[SIDE]
        left = _unpacked(table.filter(pc.equal(sides, LEFT)), LEFT_ROW)
        right = _unpacked(table.filter(pc.equal(sides, RIGHT)), RIGHT_ROW)
        return cls(
            sides.to_pylist(),
            records(left, Schema(packed[LEFT_ROW].fields)),
            records(right, Schema(packed[RIGHT_ROW].fields), is_right=True),
        )

    def __iter__(self) -> Iterator[Record]:
        """Yield all of them."""
        return self.between(0, len(self._sides))

    def between(self, begin: int, end: int) -> Iterator[Record]:
        """Yield some of them."""
        first, last = self._lefts[begin], self._lefts[end]
        left = self._left.between(first, last)
        right = self._right.between(begin - first, end - last)
        return (next(left if s == LEFT else right) for s in self._sides[begin:end])


def _unpacked(table: pa.Table, column: str) -> pa.Table:
    return pa.Table.from_struct_array(table[column].combine_chunks())
