"""Partial aggregates: how two of them become one, and what follows from them.

Spark computes them from the rows of a key in an epoch; state holds those of all epochs.
"""

from __future__ import annotations

import decimal
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from riverlock.core.types import Field, Schema
from riverlock.state.spec import Value

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from riverlock.core.types import Type
    from riverlock.state.spec import StateSpec

__all__ = [
    "Merge",
    "PartialAggregate",
    "PythonAggregate",
    "columns_of",
    "finisher",
    "kept_columns",
    "merger",
    "merges_of",
    "partial_states",
    "results_of",
]


class PythonAggregate:
    """An aggregate that Spark only collects values for; the rest is Python.

    ``fold`` is called once for all values that an epoch brings of a key and pane.

    Attributes:
        collects: Type of the values, which come as a list.
        kept: Type of what is kept of them.
    """

    collects: Type
    kept: Type

    def fold(self, values: Iterable[Any]) -> Any:
        """Return what is kept of values."""
        raise NotImplementedError

    def merge(self, a: Any, b: Any) -> Any:
        """Make one of two that are kept."""
        raise NotImplementedError

    def result(self, kept: Any) -> Any:
        """Return the result; None is kept of nothing."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class Merge:
    """Columns that are merged together, such as mean and variance."""

    columns: dict[str, Type]
    how: str | PythonAggregate


@dataclass(frozen=True, kw_only=True)
class PartialAggregate:
    """One aggregate of the user: what is kept of it, and how its result follows."""

    type: Type
    merges: tuple[Merge, ...]
    result: str | PythonAggregate

    @property
    def columns(self) -> dict[str, Type]:
        """All partial columns."""
        return {n: t for merge in self.merges for n, t in merge.columns.items()}


def merges_of(aggregates: Mapping[str, PartialAggregate]) -> list[Merge]:
    """Return how all partial columns are merged."""
    return [m for each in aggregates.values() for m in each.merges]


def columns_of(aggregates: Mapping[str, PartialAggregate]) -> dict[str, Type]:
    """Return all partial columns."""
    return {n: t for m in merges_of(aggregates) for n, t in m.columns.items()}


def kept_columns(columns: Schema, aggregates: Mapping[str, PartialAggregate]) -> Schema:
    """Return partial rows as they are kept: values that Spark collected are folded."""
    kept = columns_of(aggregates)
    fields = [Field(f.name, kept.get(f.name, f.type)) for f in columns.fields]
    return Schema(tuple(fields))


# Sums of decimal(38) need more digits than Python's default context keeps.
_EXACT = decimal.Context(prec=76)
_NESTED = (list, msgspec.Struct)


def _add(a: Any, b: Any) -> Any:
    return _EXACT.add(a, b) if isinstance(a, decimal.Decimal) else a + b


def _least(a: Any, b: Any) -> Any:
    if isinstance(a, _NESTED):
        return b if _compared(b, a) < 0 else a
    return b if b < a or _is_nan(a) else a


def _greatest(a: Any, b: Any) -> Any:
    if isinstance(a, _NESTED):
        return b if _compared(b, a) > 0 else a
    return b if b > a or _is_nan(b) else a


def _compared(one: Any, other: Any) -> int:
    """Compare as Spark does, nested values too: null comes first, NaN last."""
    if one is None or other is None:
        return (one is not None) - (other is not None)
    if isinstance(one, msgspec.Struct):
        one, other = msgspec.structs.astuple(one), msgspec.structs.astuple(other)
    if isinstance(one, list | tuple):
        for pair in zip(one, other, strict=False):
            if found := _compared(*pair):
                return found
        return (len(one) > len(other)) - (len(one) < len(other))
    if _is_nan(one) or _is_nan(other):
        return _is_nan(one) - _is_nan(other)
    return bool(one > other) - bool(one < other)


def _is_nan(value: Any) -> bool:
    """Whether it is the number that is greater than all others, for Spark."""
    return isinstance(value, float) and value != value


def _distinct(a: list[Any], b: list[Any]) -> list[Any]:
    both = [*a, *b]
    if isinstance((both or [None])[0], list | dict | msgspec.Struct):
        found: dict[Any, Any] = {}
        for v in both:
            found.setdefault(_hashable(v), v)
        return list(found.values())
    # One object for all NaN: as such they are equal.
    return list(dict.fromkeys([math.nan if v != v else v for v in both]))


def _hashable(value: Any) -> Any:
    """Return what is equal for equal values, nested ones too."""
    if isinstance(value, msgspec.Struct):
        return tuple(map(_hashable, msgspec.structs.astuple(value)))
    if isinstance(value, list):
        return tuple(map(_hashable, value))
    if isinstance(value, dict):
        return frozenset((k, _hashable(v)) for k, v in value.items())
    return math.nan if _is_nan(value) else value


def _of_one(merge: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Let a function of two values skip those that are missing."""

    def merged(old: tuple[Any], new: tuple[Any]) -> tuple[Any]:
        if new[0] is None:
            return old
        return new if old[0] is None else (merge(old[0], new[0]),)

    return merged


def _moments(old: tuple[Any, ...], new: tuple[Any, ...]) -> tuple[Any, ...]:
    """Merge count, mean and sum of squared distances from it, as Spark does."""
    if not new[0] or not old[0]:
        return old if not new[0] else new
    n = old[0] + new[0]
    delta = new[1] - old[1]
    part = delta / n
    spread = old[2] + new[2] + delta * part * old[0] * new[0]
    return n, old[1] + part * new[0], spread


def _earliest(old: tuple[Any, ...], new: tuple[Any, ...]) -> tuple[Any, ...]:
    if new[0] is None or (old[0] is not None and old[0] <= new[0]):
        return old
    return new


def _latest(old: tuple[Any, ...], new: tuple[Any, ...]) -> tuple[Any, ...]:
    if new[0] is None or (old[0] is not None and old[0] > new[0]):
        return old
    return new


def _by_least(old: tuple[Any, ...], new: tuple[Any, ...]) -> tuple[Any, ...]:
    """Keep the values that come first; None as the first of them is nothing."""
    if new[0] is None or (old[0] is not None and _compared(new, old) >= 0):
        return old
    return new


def _by_greatest(old: tuple[Any, ...], new: tuple[Any, ...]) -> tuple[Any, ...]:
    if new[0] is None or (old[0] is not None and _compared(old, new) >= 0):
        return old
    return new


_MERGES: dict[str, Callable[[Any, Any], Any]] = {
    "sum": _of_one(_add),
    "min": _of_one(_least),
    "max": _of_one(_greatest),
    "concat": _of_one(lambda a, b: [*a, *b]),
    "distinct": _of_one(_distinct),
    "moments": _moments,
    "earliest": _earliest,
    "latest": _latest,
    "by_least": _by_least,
    "by_greatest": _by_greatest,
}


def merger(
    how: str | PythonAggregate,
) -> Callable[[tuple[Any, ...], tuple[Any, ...]], tuple[Any, ...]]:
    """Return the function that merges the columns of two partial aggregates."""
    return _of_one(how.merge) if isinstance(how, PythonAggregate) else _MERGES[how]


def _same(value: Any) -> Any:
    return value


def _count(value: Any) -> int:
    return value or 0


def _average(total: Any, n: Any) -> Any:
    return total / n if n else None


def _second(_: Any, value: Any) -> Any:
    return value


def _spread(missing: int, *, is_root: bool) -> Callable[..., Any]:
    """Return variance or deviation, of a sample (one is missing) or of all."""

    def finish(n: Any, _: Any, squares: Any) -> Any:
        if not n or n <= missing:
            return None
        found = squares / (n - missing)
        return math.sqrt(found) if is_root else found

    return finish


def _decimal_average(scale: int) -> Callable[..., Any]:
    unit = decimal.Decimal(1).scaleb(-scale)

    def finish(total: Any, n: Any) -> Any:
        if not n:
            return None
        exact = _EXACT.divide(total, decimal.Decimal(n))
        return exact.quantize(unit, decimal.ROUND_HALF_UP, _EXACT)

    return finish


def finisher(kind: Type, how: str | PythonAggregate) -> Callable[..., Any]:
    """Return the function from partial columns to a result."""
    if isinstance(how, PythonAggregate):
        return how.result
    if how == "avg" and kind.kind == "decimal":
        return _decimal_average(kind.scale)
    return _RESULTS[how]


_RESULTS: dict[str, Callable[..., Any]] = {
    "same": _same,
    "list": lambda value: value or [],
    "second": _second,
    "count": _count,
    "size": lambda value: len(_distinct(value or [], [])),
    "avg": _average,
    "var_pop": _spread(0, is_root=False),
    "var_samp": _spread(1, is_root=False),
    "stddev_pop": _spread(0, is_root=True),
    "stddev_samp": _spread(1, is_root=True),
}


def partial_states(
    aggregates: Mapping[str, PartialAggregate],
    formerly: Mapping[str, str] | None = None,
) -> dict[str, StateSpec]:
    """Return the state that partial aggregates are kept in.

    Args:
        aggregates: By the name of their column.
        formerly: Names that some of it had in older stores.
    """
    before = formerly or {}
    return {
        name: Value(kind, formerly=before.get(name))
        for name, kind in columns_of(aggregates).items()
    }


def results_of(
    aggregates: Mapping[str, PartialAggregate],
    columns: Mapping[str, Sequence[Any]],
    size: int,
) -> list[list[Any]]:
    """Return the results of many keys from their partial columns."""
    unset = [None] * size
    return [
        list(
            map(
                finisher(each.type, each.result),
                *(columns.get(name, unset) for name in each.columns),
            )
        )
        for each in aggregates.values()
    ]
