"""What a harness is sent, in the form in which Spark hands it to a task."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from riverlock.core.errors import InvalidConfigError
from riverlock.core.hidden_columns import SIDE, TIME
from riverlock.operators.input_sides import LEFT, RIGHT
from riverlock.program.two_inputs import LEFT_ROW, RIGHT_ROW, packed_columns
from riverlock.state.columns.python_rows import as_tuple

if TYPE_CHECKING:
    from riverlock.core.types import Schema

__all__ = ["Input", "OneInput", "Side", "TwoInputs"]


@dataclass(frozen=True)
class OneInput:
    """The records of one stream."""

    event_time: str | None

    def row(self, record: Any, *, is_right: bool) -> Any:
        """Return a record as it is."""
        if is_right:
            raise InvalidConfigError(
                "send_right()",
                expected="harness(..., right=columns)",
                found="none",
            )
        return record

    def with_hidden(self, table: pa.Table, times: pa.Array) -> pa.Table:
        """Add the event time: of its column, or else as given."""
        if self.event_time is not None:
            times = table[self.event_time].cast(pa.int64())
        return table.append_column(TIME, times)


@dataclass(frozen=True, kw_only=True)
class Side:
    """The columns of one of two streams, and what they are for."""

    columns: Schema
    keys: tuple[str, ...]
    event_time: str | None


@dataclass(frozen=True, kw_only=True)
class TwoInputs:
    """The records of two streams, packed into one table."""

    left: Side
    right: Side
    keys: Schema

    @property
    def packed(self) -> Schema:
        """The columns in which both travel."""
        return packed_columns(self.keys, self.left.columns, self.right.columns)

    def row(self, record: Any, *, is_right: bool) -> tuple[Any, ...]:
        """Return a record as a row of the packed columns."""
        side = self.right if is_right else self.left
        row = as_tuple(record, side.columns.names)
        keys = (row[side.columns.names.index(k)] for k in side.keys)
        return (*keys, None, row) if is_right else (*keys, row, None)

    def with_hidden(self, table: pa.Table, times: pa.Array) -> pa.Table:
        """Add side and event time: of their columns, or else as given."""
        is_left = table[LEFT_ROW].is_valid()
        sides = pc.if_else(is_left, LEFT, RIGHT).cast(pa.int32())
        times = pc.coalesce(
            _times(table[LEFT_ROW], self.left),
            _times(table[RIGHT_ROW], self.right),
            times,
        )
        return table.append_column(SIDE, sides).append_column(TIME, times)


def _times(rows: pa.ChunkedArray, side: Side) -> pa.ChunkedArray:
    if side.event_time is None:
        return pa.chunked_array([pa.nulls(len(rows), pa.int64())])
    return pc.struct_field(rows, side.event_time).cast(pa.int64())


Input: TypeAlias = OneInput | TwoInputs
