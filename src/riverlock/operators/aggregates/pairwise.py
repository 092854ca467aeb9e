"""Merges runs of partial aggregates, neighbours first, pair by pair.

As ``Aggregates.merged`` does with the parts of one window, here for those of all
windows of a task at once, in the same order: so floating-point sums have the same bits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from riverlock.operators.aggregates.merging import state_values
from riverlock.operators.aggregates.partial import PythonAggregate, merger

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from riverlock.core.types import Type
    from riverlock.operators.aggregates.partial import Merge

__all__ = ["Column", "Rounds", "is_numeric"]

_KINDS: Final[dict[str, Any]] = {
    "boolean": np.bool_,
    **dict.fromkeys(("byte", "short", "int", "long"), np.int64),
    **dict.fromkeys(("float", "double"), np.float64),
}
# Sums of whole numbers below this, added up as floats, are safe from overflow.
_SAFE: Final = float(1 << 62)


def is_numeric(merge: Merge) -> bool:
    """Whether NumPy can merge these columns."""
    if len(merge.columns) > 1 or isinstance(merge.how, PythonAggregate):
        return False
    (kind,) = merge.columns.values()
    return kind.kind in _KINDS and merge.how in _NUMBERS


@dataclass(frozen=True)
class Column:
    """Values of one partial column: numbers and which of them are known, or objects."""

    values: np.ndarray
    known: np.ndarray | None = None

    @classmethod
    def of_list(cls, values: Sequence[Any], kind: Type, *, is_numeric: bool) -> Column:
        """Make one of values as state has them."""
        if not is_numeric:
            return cls(np.fromiter(values, dtype=object, count=len(values)))
        known = np.array([v is not None for v in values], dtype=bool)
        if not known.all():
            values = [0 if v is None else v for v in values]
        return cls(np.array(values, dtype=_KINDS[kind.kind]), known)

    @classmethod
    def of_arrow(
        cls, column: pa.ChunkedArray, kind: Type, *, is_numeric: bool
    ) -> Column:
        """Make one of a column of the input."""
        if not is_numeric:
            values = state_values(column, kind)
            return cls(np.fromiter(values, dtype=object, count=len(values)))
        known = column.is_valid().to_numpy()
        zero = pa.scalar(0).cast(column.type)
        filled = column if known.all() else column.fill_null(zero)
        return cls(filled.to_numpy().astype(_KINDS[kind.kind]), known)

    def take(self, places: np.ndarray) -> Column:
        """Return some of them."""
        known = None if self.known is None else self.known[places]
        return Column(self.values[places], known)

    def and_also(self, other: Column) -> Column:
        """Return these and others."""
        known = None
        if self.known is not None and other.known is not None:
            known = np.concatenate([self.known, other.known])
        return Column(np.concatenate([self.values, other.values]), known)

    def as_list(self) -> list[Any]:
        """Return the values as state has them."""
        values: list[Any] = self.values.tolist()
        if self.known is None or self.known.all():
            return values
        pairs = zip(values, self.known.tolist(), strict=True)
        return [v if known else None for v, known in pairs]


@dataclass(frozen=True)
class _Round:
    """One of every two neighbours in a run is merged into the other."""

    # Those that are left; of these, which take one in; and those they take.
    kept: np.ndarray
    left: np.ndarray
    right: np.ndarray


class Rounds:
    """How runs of neighbours become one value each."""

    def __init__(self, lengths: np.ndarray) -> None:
        """Take the lengths of runs that follow each other."""
        self._starts = np.cumsum(lengths) - lengths
        self._rounds: list[_Round] = []
        while lengths.max(initial=1) > 1:
            starts = np.cumsum(lengths) - lengths
            within = np.arange(int(lengths.sum())) - np.repeat(starts, lengths)
            is_right = (within & 1).astype(bool)
            right = np.flatnonzero(is_right)
            # So many are gone before each.
            left = right - 1 - np.arange(len(right))
            self._rounds.append(_Round(np.flatnonzero(~is_right), left, right))
            lengths = (lengths + 1) // 2

    def merged(
        self, merge: Merge, columns: Mapping[str, Column]
    ) -> dict[str, Column] | None:
        """Return the merged columns; None if NumPy cannot do it as the loop does."""
        if is_numeric(merge):
            ((name, column),) = ((n, columns[n]) for n in merge.columns)
            if merge.how == "sum" and not self._is_safe(column):
                return None
            return {name: self._numbers(str(merge.how), column)}
        function = merger(merge.how)
        rows = list(zip(*(columns[n].values for n in merge.columns), strict=True))
        for each in self._rounds:
            before, rows = rows, [rows[n] for n in each.kept.tolist()]
            for left, right in zip(
                each.left.tolist(), each.right.tolist(), strict=True
            ):
                rows[left] = function(rows[left], before[right])
        found = zip(*rows, strict=True) if rows else [()] * len(merge.columns)
        return {
            name: Column(np.fromiter(values, dtype=object, count=len(rows)))
            for name, values in zip(merge.columns, found, strict=True)
        }

    def _is_safe(self, column: Column) -> bool:
        """Whether no sum of a run can leave 64 bits."""
        if column.values.dtype != np.int64 or not len(column.values):
            return True
        sizes = np.add.reduceat(np.abs(column.values.astype(float)), self._starts)
        return bool(np.all(sizes < _SAFE))

    def _numbers(self, how: str, column: Column) -> Column:
        merge = _NUMBERS[how]
        values, known = column.values, column.known
        assert known is not None
        with np.errstate(all="ignore"):  # infinity less infinity is NaN, as in Spark
            for each in self._rounds:
                old, new = values[each.kept], values[each.right]
                is_known, is_new = known[each.kept], known[each.right]
                mine = old[each.left]
                both = np.where(is_known[each.left], merge(mine, new), new)
                old[each.left] = np.where(is_new, both, mine)
                is_known[each.left] |= is_new
                values, known = old, is_known
        return Column(values, known)


def _least(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.where((b < a) | _is_nan(a), b, a)


def _greatest(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.where((b > a) | _is_nan(b), b, a)


def _is_nan(values: np.ndarray) -> np.ndarray | bool:
    return np.isnan(values) if values.dtype == np.float64 else False


# For Spark, NaN is greater than any number; of equal ones the first stays.
_NUMBERS: Final[dict[str, Any]] = {"sum": np.add, "min": _least, "max": _greatest}
