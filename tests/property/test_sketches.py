"""Sketches against the values themselves."""

from __future__ import annotations

import math
import struct
from decimal import Decimal
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from riverlock.core.types import Type, type_of
from riverlock.operators.aggregates.partial import PythonAggregate
from riverlock.operators.aggregates.sketches import DistinctCount, Percentiles
from riverlock.state.codec import codec_of

DOUBLE = Type("double")
NUMBERS = st.one_of(
    st.floats(width=64).map(lambda v: v + 0.0),
    st.integers(-20, 20).map(float),
    st.floats(0.01, 1e6),
)
PARTS = st.lists(st.lists(NUMBERS, max_size=25), min_size=1, max_size=6)


def stored(sketch: PythonAggregate, kept: Any) -> Any:
    """Return what is read back after it was written."""
    codec = codec_of(sketch.kept)
    return codec.decoder()(msgspec.msgpack.encode(codec.checked(kept)))


def merged(sketch: PythonAggregate, parts: list[list[Any]], chance: Any) -> Any:
    """Fold the parts, and merge them in any order."""
    kept = [sketch.fold(part) for part in parts]
    while len(kept) > 1:
        chance.shuffle(kept)
        first, second, *rest = kept
        kept = [sketch.merge(stored(sketch, first), stored(sketch, second)), *rest]
    return kept[0]


def content(sketch: PythonAggregate, kept: Any) -> bytes:
    # As bytes, so that NaN equals NaN and zeros of two signs differ.
    return msgspec.msgpack.encode(codec_of(sketch.kept).checked(kept))


@given(PARTS, st.sampled_from([1, 3, 8, 1000]), st.randoms(use_true_random=False))
def test_percentiles_keep_the_same_whatever_the_splits(
    parts: list[list[float]], accuracy: int, chance: Any
) -> None:
    sketch = Percentiles(accuracy, 0.5, DOUBLE)
    whole = sketch.fold([v for part in parts for v in part])

    found = merged(sketch, parts, chance)

    assert content(sketch, found) == content(sketch, whole)
    assert len(found.values) <= accuracy
    assert sum(found.counts) == sum(map(len, parts))


@given(st.lists(NUMBERS, min_size=1, max_size=60), st.floats(0, 1))
def test_percentiles_of_few_values_are_exact(values: list[float], p: float) -> None:
    ordered = sorted(values, key=lambda v: (math.isnan(v), v))
    wanted = ordered[max(1, math.ceil(p * len(values))) - 1]

    sketch = Percentiles(60, p, DOUBLE)

    assert repr(sketch.result(sketch.fold(values))) == repr(wanted)


def octaves(values: list[float]) -> int:
    return len({(math.copysign(1, v), math.frexp(v)[1]) for v in values})


def without_bits(value: float, dropped: int) -> int:
    (bits,) = struct.unpack("<q", struct.pack("<d", value))
    return int(bits >> dropped << dropped)


def fewest_bits(values: list[float], accuracy: int) -> int:
    """Return how many bits must be dropped so that few enough values are left."""
    return next(
        dropped
        for dropped in range(64)
        if len({without_bits(v, dropped) for v in values}) <= accuracy
    )


@given(
    st.lists(
        st.integers(1000, 9000).map(lambda n: n / 7) | st.floats(-90, -1),
        min_size=40,
        max_size=150,
    ),
    st.sampled_from([16, 40, 100]),
    st.floats(0, 1),
)
def test_percentiles_of_many_values_are_near(
    values: list[float], accuracy: int, p: float
) -> None:
    wanted = sorted(values)[max(1, math.ceil(p * len(values))) - 1]
    sketch = Percentiles(accuracy, p, DOUBLE)

    kept = sketch.fold(values)
    error = abs(sketch.result(kept) - wanted)

    assert error <= octaves(values) / accuracy * abs(wanted)
    assert kept.dropped == fewest_bits(values, accuracy)


def test_a_percentile_is_in_the_middle_of_values_that_look_alike() -> None:
    values = [n / 7 for n in range(1000, 9000, 50)]
    shares = [n / len(values) for n in range(1, len(values) + 1)]
    sketch = Percentiles(16, shares, type_of("array<double>"))

    kept = sketch.fold(values)

    half = 2.0 ** (kept.dropped - 53)
    for found, value in zip(sketch.result(kept), values, strict=True):
        assert abs(found - value) <= half * value


def test_percentiles_of_very_many_values_are_within_the_documented_bound() -> None:
    chance = np.random.default_rng(7)
    values = np.round(10 ** chance.uniform(-2, 6, 60_000), 2)
    sketch = Percentiles(1000, [0.01, 0.5, 0.99], type_of("array<double>"))
    parts = np.split(values, 6)

    kept = sketch.fold(parts[0].tolist())
    for part in parts[1:]:
        kept = sketch.merge(kept, sketch.fold(part.tolist()))

    wanted = np.quantile(values, [0.01, 0.5, 0.99], method="inverted_cdf")
    assert np.all(np.abs(sketch.result(kept) - wanted) <= 28 / 1000 * wanted)
    assert len(kept.values) <= 1000


@given(st.lists(NUMBERS.filter(math.isfinite), min_size=1, max_size=40))
def test_median_is_the_mean_of_the_middle(values: list[float]) -> None:
    ordered, size = sorted(values), len(values)
    low, high = ordered[(size - 1) // 2], ordered[size // 2]

    sketch = Percentiles(100, None, DOUBLE)

    wanted = low if low == high else 0.5 * low + 0.5 * high
    assert sketch.result(sketch.fold(values)) == wanted


@pytest.mark.parametrize(
    ("kind", "value", "wanted"),
    [
        ("bigint", float(1 << 63), (1 << 63) - 1),
        ("tinyint", 127.0, 127),
        ("decimal(5,2)", 0.285, Decimal("0.29")),
        ("float", 0.5, 0.5),
    ],
)
def test_percentiles_have_the_type_of_the_column(
    kind: str, value: float, wanted: Any
) -> None:
    sketch = Percentiles(10, 0.5, type_of(kind))

    assert sketch.result(sketch.fold([value])) == wanted


def test_sketches_of_nothing() -> None:
    assert DistinctCount(9).result(None) == 0
    assert DistinctCount(9).result(DistinctCount(9).fold([])) == 0
    percentiles = Percentiles(10, 0.5, DOUBLE)
    assert percentiles.result(None) is None
    assert percentiles.result(percentiles.fold([])) is None


def codes(hashes: np.ndarray, precision: int) -> np.ndarray:
    """Return what Spark collects of hashes."""
    rest = 64 - precision
    low = hashes & np.uint64((1 << rest) - 1) | np.uint64(1 << rest)
    zeros = np.bitwise_count((low & -low) - np.uint64(1))
    return (hashes >> np.uint64(rest)) * np.uint64(64) + zeros + np.uint64(1)


@given(
    st.lists(st.lists(st.integers(0, (1 << 64) - 1), max_size=30), min_size=1),
    st.randoms(use_true_random=False),
)
def test_distinct_counts_keep_the_same_whatever_the_splits(
    parts: list[list[int]], chance: Any
) -> None:
    sketch = DistinctCount(4)
    coded = [codes(np.array(p, dtype=np.uint64), 4).tolist() for p in parts]
    whole = sketch.fold([c for part in coded for c in part])

    assert content(sketch, merged(sketch, coded, chance)) == content(sketch, whole)


@pytest.mark.parametrize("precision", [4, 9, 14])
@pytest.mark.parametrize("size", [1, 10, 300, 5_000, 100_000])
def test_distinct_counts_are_near(precision: int, size: int) -> None:
    sketch, rounds = DistinctCount(precision), 12
    chance = np.random.default_rng(size)
    errors = []
    for _ in range(rounds):
        hashes = chance.integers(0, 1 << 64, size, dtype=np.uint64)
        found = sketch.result(sketch.fold(codes(hashes, precision).tolist()))
        errors.append(found / size - 1)

    expected = 1.04 / math.sqrt(1 << precision)
    # Four standard errors of the mean, and of one estimate; half for rounding.
    assert abs(sum(errors) / rounds) <= 4 * expected / math.sqrt(rounds) + 0.5 / size
    assert max(map(abs, errors)) <= 4 * expected + 0.5 / size
