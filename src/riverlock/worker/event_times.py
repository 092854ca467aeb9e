"""What the rows of a task say of event time, for the watermarks of their inputs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from riverlock.core.errors import InvalidFlowError
from riverlock.core.hidden_columns import PART, SOURCE, TIME

if TYPE_CHECKING:
    from riverlock.operators.shipped import OperatorProgram

__all__ = [
    "MAX_PARTITIONS",
    "DeclaredTimes",
    "greatest_times",
    "partition_times",
    "too_many_partitions",
]

# Every manifest has the time of each partition of an input.
MAX_PARTITIONS = 1_000


@dataclass(frozen=True, kw_only=True)
class DeclaredTimes:
    """The event-time declarations of a region, as its tasks know them.

    Attributes:
        names: All of them, in order.
        column: The hidden column that moves watermarks.
        follows_keyed: Whether rows come from operators of the same region.
    """

    names: tuple[str, ...]
    column: str
    follows_keyed: bool = False

    @classmethod
    def of(cls, program: OperatorProgram) -> DeclaredTimes:
        """Return those that an operator knows."""
        return cls(
            names=program.event_times,
            column=program.time_column,
            follows_keyed=program.follows_keyed,
        )


def greatest_times(
    table: pa.Table | None, declared: DeclaredTimes
) -> dict[str, int | None]:
    """Return the greatest time per declaration that has rows with a time here.

    None: rows, but none of them moves the watermark.
    """
    column = declared.column
    return {
        name: pc.max(mine[column]).as_py()
        for name, mine in _by_declaration(table, declared)
    }


def partition_times(
    table: pa.Table | None, declared: DeclaredTimes
) -> dict[str, dict[str, int | None]]:
    """Return the same by partition, of the inputs that are declared so.

    Raises:
        InvalidFlowError: They are more than a manifest should hold.
    """
    if table is None or PART not in table.column_names:
        return {}
    found = {}
    for name, mine in _by_declaration(table, declared):
        # A partition without any time is left out: it says nothing about time.
        mine = mine.filter(pc.and_(mine[PART].is_valid(), mine[TIME].is_valid()))
        column = declared.column
        grouped = mine.group_by(PART, use_threads=False).aggregate([(column, "max")])
        if grouped.num_rows > MAX_PARTITIONS:
            raise too_many_partitions(name, grouped.num_rows)
        if grouped.num_rows:
            names = grouped[PART].to_pylist()
            times = grouped[f"{column}_max"].to_pylist()
            found[name] = dict(zip(names, times, strict=True))
    return found


def too_many_partitions(declaration: str, number: int) -> InvalidFlowError:
    """Return the error for an input with too many partitions."""
    return InvalidFlowError(
        f"per of event_time {declaration!r}",
        expected=f"a column with at most {MAX_PARTITIONS:,} values in use",
        found=f"{number:,}",
        hint="take a coarser column, such as pmod(xxhash64(device), 64), or let"
        " partitions without rows go with idle_after",
    )


def _by_declaration(table: pa.Table | None, declared: DeclaredTimes) -> Any:
    """Yield the rows with a time of each declaration that has any."""
    names = declared.names
    if table is None or not names or declared.column not in table.column_names:
        return
    if SOURCE not in table.column_names:
        # Rows of an earlier stage: the times of records were counted when they were
        # read, and a window that emits early has an end that nobody has reached.
        is_later = len(names) > 1 or declared.follows_keyed
        parts = [] if is_later else [(names[0], table)]
    else:
        parts = [
            (name, table.filter(pc.equal(table[SOURCE], number)))
            for number, name in enumerate(names)
        ]
    for name, mine in parts:
        if mine[TIME].null_count < mine.num_rows:
            yield name, mine
