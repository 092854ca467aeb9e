"""Sketches: what approximate aggregates keep instead of all values.

Both are functions of the values alone: neither the order of records nor the way they
were split into epochs and tasks makes a difference, not even in the last bit.
"""

from __future__ import annotations

import decimal
import math
import struct
from bisect import bisect_left
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from riverlock.core.types import INTEGERS, Type, type_of
from riverlock.operators.aggregates.partial import PythonAggregate
from riverlock.state.codec import codec_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

__all__ = ["DistinctCount", "Percentiles"]


class DistinctCount(PythonAggregate):
    """How many different values there are: HyperLogLog.

    A hash of ``precision`` bits chooses a register, which keeps the greatest number
    of zeros, plus one, that the rest of a hash has ended with. Registers that were
    touched are kept as ``register * 64 + number``, sorted. The standard error is
    1.04 / sqrt(2 ** precision). The estimate is Ertl's ("New cardinality estimation
    algorithms for HyperLogLog sketches", 2017): unbiased from one value on, without
    tables.
    """

    collects = Type("int")

    def __init__(self, precision: int) -> None:
        """Take the number of bits that choose a register."""
        self.precision = precision
        # Registers of another precision are of another type: state refuses them.
        self.kept = type_of(f"struct<precision_{precision}:array<int>>")

    def code(self, value: str) -> str:
        """Return SQL for the code of a row's value, as it is collected."""
        rest = 64 - self.precision
        hashed = f"xxhash64({value})"
        # The bit above the rest: a rest of nothing but zeros ends there.
        bits = f"(({hashed} & {(1 << rest) - 1}L) | {1 << rest}L)"
        zeros = f"bit_count(({bits} & -{bits}) - 1L)"
        code = f"shiftrightunsigned({hashed}, {rest}) * 64 + {zeros} + 1"
        return f"if({value} is null, null, cast({code} as int))"

    def fold(self, values: Iterable[int]) -> Any:
        """Keep the greatest code of each register."""
        codes = np.unique(np.fromiter(values, dtype=np.int64))
        registers = codes >> 6
        is_last = np.append(registers[1:] != registers[:-1], True)[: len(codes)]
        return codec_of(self.kept).python(codes[is_last].tolist())

    def merge(self, a: Any, b: Any) -> Any:
        """Keep the greatest code of each register."""
        return self.fold([*_codes(a), *_codes(b)])

    def result(self, kept: Any) -> int:
        """Estimate."""
        codes = [] if kept is None else _codes(kept)
        if not codes:
            return 0
        size, most = 1 << self.precision, 64 - self.precision + 1
        counts = np.bincount(np.array(codes) & 63, minlength=most + 1).tolist()
        empty = size - len(codes)
        below = size * _tau(1 - counts[most] / size)
        for number in range(most - 1, 0, -1):
            below = 0.5 * (below + counts[number])
        below += size * _sigma(empty / size)
        return round(size * size / (2 * math.log(2) * below))


def _codes(kept: Any) -> list[int]:
    codes: list[int]
    (codes,) = msgspec.structs.astuple(kept)
    return codes


def _sigma(x: float) -> float:
    """Return x + the sum of x ** 2 ** k * 2 ** (k - 1), over k from 1 on."""
    if x == 1:
        return math.inf
    total, weight = x, 1.0
    while True:
        x *= x
        before, total = total, total + x * weight
        weight += weight
        if total == before:
            return total


def _tau(x: float) -> float:
    """Return a third of 1 - x - the sum of (1 - x ** 2 ** -k) ** 2 / 2 ** k."""
    if x in (0, 1):
        return 0.0
    total, weight = 1 - x, 1.0
    while True:
        x, weight = math.sqrt(x), weight / 2
        before, total = total, total - (1 - x) ** 2 * weight
        if total == before:
            return total / 3


_NAN = math.nan
_EXACT = decimal.Context(prec=76)
_WORD = struct.Struct("<d"), struct.Struct("<q")


class Percentiles(PythonAggregate):
    """Percentiles of numbers: values with how often each occurred.

    If there would be more than ``accuracy`` different values, the lowest bits of all
    are dropped, as few as will do. Exact until then. Afterwards a value is wrong by
    less than octaves / accuracy of itself, octaves being the number of powers of two,
    of both signs, that values lie between: for more than ``accuracy`` numbers from a
    cent to a million (27 octaves) and the usual accuracy, by less than 0.3 %.
    """

    collects = Type("double")
    kept = type_of("struct<dropped:int,values:array<double>,counts:array<bigint>>")

    def __init__(
        self, accuracy: int, percentages: Sequence[float] | float | None, output: Type
    ) -> None:
        """Take what is asked for.

        Args:
            accuracy: How many different values are kept.
            percentages: One or several, from 0 to 1. None: the median, which is the
                mean of the two middle values if there are two.
            output: Type of the result; for several percentages, an array.
        """
        self.accuracy, self.percentages, self.output = accuracy, percentages, output

    def fold(self, values: Iterable[float]) -> Any:
        """Count equal values."""
        counts: dict[float, int] = {}
        _count(counts, ((v, 1) for v in values))
        return self._made(0, counts)

    def merge(self, a: Any, b: Any) -> Any:
        """Count together, in the coarser resolution of the two or a coarser one."""
        dropped = max(a.dropped, b.dropped)
        counts: dict[float, int] = {}
        for each in (a, b):
            values = each.values
            if each.dropped < dropped:
                values = _cut(np.array(values), dropped).tolist()
            _count(counts, zip(values, each.counts, strict=True))
        return self._made(dropped, counts)

    def _made(self, dropped: int, counts: Mapping[float, int]) -> Any:
        ordered = sorted(v for v in counts if v == v)
        if _NAN in counts:
            ordered.append(_NAN)
        made = codec_of(self.kept).python
        if len(ordered) <= self.accuracy:
            return made(dropped, ordered, [counts[v] for v in ordered])
        values = np.array(ordered)
        dropped = self._enough(values, dropped)
        cut: dict[float, int] = {}
        pairs = zip(_cut(values, dropped).tolist(), ordered, strict=True)
        _count(cut, ((v, counts[before]) for v, before in pairs))
        return made(dropped, list(cut), list(cut.values()))

    def _enough(self, values: np.ndarray, dropped: int) -> int:
        """Return how many bits at least must be dropped; values are sorted."""
        low, high = dropped, 64  # too few, enough
        while high - low > 1:
            middle = (low + high) // 2
            found = _cut(values, middle)
            if 1 + np.count_nonzero(found[1:] != found[:-1]) <= self.accuracy:
                high = middle
            else:
                low = middle
        return high

    def result(self, kept: Any) -> Any:
        """Return the percentiles."""
        if kept is None or not kept.counts:
            return None
        below = list(accumulate(kept.counts))

        def ranked(rank: int) -> float:
            return _middle(kept.values[bisect_left(below, rank)], kept.dropped)

        size = below[-1]
        if self.percentages is None:
            low, high = ranked((size + 1) // 2), ranked(size // 2 + 1)
            return low if low == high else 0.5 * low + 0.5 * high
        if not isinstance(self.percentages, float):
            return [
                _typed(ranked(_rank(p, size)), self.output.element)
                for p in self.percentages
            ]
        return _typed(ranked(_rank(self.percentages, size)), self.output)


def _count(counts: dict[float, int], pairs: Iterable[tuple[float, int]]) -> None:
    for value, n in pairs:
        # One object for all NaN: as such they are equal.
        v = value if value == value else _NAN
        counts[v] = counts.get(v, 0) + n


def _rank(percentage: float, size: int) -> int:
    """Return which of this many values, counted from one, as Spark does."""
    return max(1, math.ceil(percentage * size))


def _cut(values: np.ndarray, dropped: int) -> np.ndarray:
    """Drop the lowest bits of numbers; what is left lies nearer to zero."""
    mask = np.int64(-1 << min(dropped, 63))
    cut: np.ndarray = (values.view(np.int64) & mask).view(np.float64)
    return cut + 0.0  # there is one zero


def _middle(value: float, dropped: int) -> float:
    """Return the middle of all values that are one without their lowest bits."""
    if not dropped or value == 0 or not math.isfinite(value):
        return value
    as_double, as_long = _WORD
    (bits,) = as_long.unpack(as_double.pack(value))
    (middle,) = as_double.unpack(as_long.pack(bits | 1 << (dropped - 1)))
    return float(middle)


def _typed(value: float, kind: Type | None) -> Any:
    """Return a number as Spark has it in a column of a type."""
    assert kind
    if kind.kind in INTEGERS:
        limit = 1 << (INTEGERS[kind.kind] - 1)
        return max(-limit, min(limit - 1, round(value)))
    if kind.kind == "decimal":
        unit = decimal.Decimal(1).scaleb(-kind.scale)
        exact = decimal.Decimal(repr(value))
        return exact.quantize(unit, decimal.ROUND_HALF_UP, _EXACT)
    return value
