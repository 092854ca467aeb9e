"""Generated rows without Spark: columns that are the number, the seed or the time."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from riverlock.connectors.generator.row_numbers import RowNumbers
from riverlock.core.types import Field, Schema, Type

if TYPE_CHECKING:
    from riverlock.sources import Generator

__all__ = ["NumbersReader", "is_numbers"]

_KINDS = {"id": Type("long"), "seed": Type("long"), "created": Type("timestamp")}


def is_numbers(source: Generator) -> bool:
    """Tell whether no column of a generator needs Spark, such as those of ``rate``."""
    known = ["id", "seed"]
    # Without a pace, no row is ever due.
    known += [] if source.rows_per_second is None else ["created"]
    return all(text in known for text in source.columns.values())


class NumbersReader(RowNumbers):
    """Gives ranges of row numbers as Arrow tables."""

    gives_positions = False
    can_read_ahead = False
    is_repeatable = True

    @property
    def schema(self) -> Schema:
        """The columns."""
        columns = self._source.columns.items()
        return Schema(tuple(Field(name, _KINDS[text]) for name, text in columns))

    def read(self, start: Any, end: Any) -> Any:
        """Return the rows as a table."""
        return self.table(start, end)

    def table(self, start: Any, end: Any) -> pa.Table:
        """Return the rows as a table."""
        numbers = np.arange(start["row"], end["row"], dtype=np.int64)
        columns = {
            "id": pa.array(numbers),
            "seed": pa.array(np.full(len(numbers), self._source.seed, np.int64)),
            "created": pa.array(self._created(start, numbers), pa.int64()),
        }
        schema = self.schema
        arrays = [
            columns[text].cast(kind.type)
            for text, kind in zip(
                self._source.columns.values(), schema.to_arrow(), strict=True
            )
        ]
        return pa.table(arrays, schema=schema.to_arrow())

    def _created(self, start: Any, numbers: np.ndarray) -> list[int | None]:
        """Return when rows were due: the numbers that Spark computes, in decimals."""
        pace = self._source.rows_per_second
        if pace is None:
            return [None] * len(numbers)
        step = Decimal(str(1_000_000 / pace))
        return [int(start["origin_us"] + row * step) for row in numbers.tolist()]
