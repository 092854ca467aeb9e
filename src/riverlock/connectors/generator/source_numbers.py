"""Generated rows without Spark: columns that are the number, the seed or the time."""

from __future__ import annotations

from dataclasses import dataclass, replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from riverlock.connectors.generator.row_numbers import RowNumbers
from riverlock.core.types import Field, Schema, Type

if TYPE_CHECKING:
    from riverlock.columnar import Steps
    from riverlock.sources import Generator

__all__ = [
    "ComputedSplit",
    "Numbers",
    "NumbersReader",
    "NumbersSplit",
    "is_numbers",
    "number_pieces",
]

_KINDS = {"id": Type("long"), "seed": Type("long"), "created": Type("timestamp")}
# Fewer rows are not worth a piece of their own.
_LEAST_ROWS = 20_000
_MOST = (1 << 63) - 1


def is_numbers(source: Generator) -> bool:
    """Tell whether no column of a generator needs Spark, such as those of ``rate``."""
    known = ["id", "seed"]
    # Without a pace, no row is ever due.
    known += [] if source.rows_per_second is None else ["created"]
    return all(text in known for text in source.columns.values())


@dataclass(frozen=True, kw_only=True)
class Numbers:
    """What expressions of a generator are over, for a range of rows."""

    seed: int
    rows_per_second: float | None
    # When the first row of all was due.
    origin_us: int | None
    first: int
    last: int  # the row behind the range

    @classmethod
    def of(cls, source: Generator, start: Any, end: Any) -> Numbers:
        """Return those of a range between two offsets."""
        return cls(
            seed=source.seed,
            rows_per_second=source.rows_per_second,
            origin_us=start.get("origin_us"),
            first=start["row"],
            last=end["row"],
        )

    def table(self) -> pa.Table:
        """Return the columns id, seed and, with a pace, created."""
        numbers = np.arange(self.first, self.last, dtype=np.int64)
        columns = {
            "id": pa.array(numbers),
            "seed": pa.array(np.full(len(numbers), self.seed, np.int64)),
        }
        if self.rows_per_second is not None:
            kind = _KINDS["created"].to_arrow()
            columns["created"] = pa.array(self._created(numbers), pa.int64()).cast(kind)
        return pa.table(columns)

    def _created(self, numbers: np.ndarray) -> Any:
        """Return when rows were due: the numbers that Spark computes, in decimals."""
        assert self.rows_per_second is not None
        assert self.origin_us is not None
        step = Decimal(str(1_000_000 / self.rows_per_second))
        digits = -min(0, int(step.as_tuple().exponent))
        whole, unit = int(step.scaleb(digits)), 10**digits
        if self.last * whole > _MOST:
            return [int(self.origin_us + row * step) for row in numbers.tolist()]
        return self.origin_us + numbers * whole // unit


@dataclass(frozen=True)
class NumbersSplit:
    """Some rows, by the text of each column."""

    columns: tuple[tuple[str, str], ...]
    numbers: Numbers

    def table(self) -> pa.Table:
        """Make them."""
        found = self.numbers.table()
        return pa.table({name: found[text] for name, text in self.columns})


@dataclass(frozen=True)
class ComputedSplit:
    """Some rows, whose columns are expressions."""

    steps: Steps
    numbers: Numbers

    def table(self) -> pa.Table:
        """Make them."""
        return self.steps.apply(self.numbers.table())


def number_pieces(numbers: Numbers, wanted: int) -> list[Numbers]:
    """Divide a range of rows."""
    size = max(_LEAST_ROWS, -(-(numbers.last - numbers.first) // wanted))
    return [
        replace(numbers, first=first, last=min(first + size, numbers.last))
        for first in range(numbers.first, numbers.last, size)
    ]


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
        return self._split(Numbers.of(self._source, start, end)).table()

    def splits(self, start: Any, end: Any, wanted: int) -> list[NumbersSplit]:
        """Return the pieces of a range."""
        numbers = Numbers.of(self._source, start, end)
        return [self._split(piece) for piece in number_pieces(numbers, wanted)]

    def _split(self, numbers: Numbers) -> NumbersSplit:
        return NumbersSplit(tuple(self._source.columns.items()), numbers)
